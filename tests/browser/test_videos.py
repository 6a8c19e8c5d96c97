"""A clip is dropped: it plays, its labels are shown, and its frames with what counts in them."""

import base64

import pytest
from playwright.sync_api import expect

import regard
from regard.data.generated.clips import clip
from regard.data.sets import labelled_clips
from regard.modalities.video import gif
from regard.recipes import fit
from tests.browser.test_transcribe import DROP
from tests.serve.running import serving_here


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "clips"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled_clips, "PARTS", {"train": (0, 40), "valid": (1, 9), "test": (2, 9)})
        fit("video", out=out, quiet=True, **{"model.dim": 16, "model.depth": 1, "train.steps": 1})
    with serving_here({"clips": str(out)}, preload=True) as running:
        running.path = out
        yield running


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_clip_is_dropped_and_labelled(visit, address, theme, tmp_path):
    page = visit("#/videos?model=clips", address=address.address, color_scheme=theme)
    page.locator("[name=video]").wait_for()
    frames = clip("motion", "test", 5).frames
    drop = DROP.replace("talk.wav", "clip.gif").replace("audio/wav", "image/gif")
    page.evaluate(drop, [".drop", base64.b64encode(gif(frames)).decode()])
    wanted = regard.load(address.path).classify(gif(frames))
    expect(page.locator(".sentence")).to_have_text(wanted[0].label)
    expect(page.locator(".bars li")).to_have_count(7)
    expect(page.locator(".frames li")).to_have_count(8)
    expect(page.locator("img.clip")).to_be_visible()
    assert page.locator(".frames canvas").first.evaluate("canvas => [canvas.width, canvas.height]") == [4, 4]
    page.screenshot(path=tmp_path / f"{theme}.png", full_page=True)


def test_what_is_no_clip_is_said_in_a_line(visit, address):
    page = visit("#/videos?model=clips", address=address.address)
    page.locator("[name=video]").set_input_files({"name": "x.mp4", "mimeType": "video/mp4", "buffer": b"no film"})
    expect(page.locator("[role=alert]").first).to_contain_text("is no video in a format that is known")
    visit.watched[-1].errors.clear()  # the browser notes each refusal
