"""/v1/videos: the labels of clips over HTTP are those of Python for their files, and what is refused in one line."""

import base64

import pytest

import regard
from regard.data.generated.clips import clip
from regard.data.sets import labelled_clips
from regard.modalities.video import VIDEO, gif
from regard.recipes import fit
from tests.serve.running import serving_here


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    out = tmp_path_factory.mktemp("serve") / "clips"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled_clips, "PARTS", {"train": (0, 40), "valid": (1, 9), "test": (2, 9)})
        fit("video", out=out, quiet=True, **{"model.dim": 16, "model.depth": 1, "train.steps": 1})
        with serving_here({"clips": str(out)}, preload=True) as running:
            running.path = out
            yield running


def test_a_clip_is_labelled_as_in_python(server):
    frames = clip("motion", "test", 5).frames
    rows = server.post("/v1/videos", model="clips", input=[VIDEO.send(frames)] * 2).json["data"]
    wanted = regard.load(server.path).classify(gif(frames))
    assert len(rows) == 2 and rows[0]["object"] == "video"
    for row in rows:
        assert [one["label"] for one in row["labels"]] == [one.label for one in wanted]


@pytest.mark.parametrize(("value", "error"), [
    ("/etc/passwd", "no data: URI of a clip"),
    ("data:video/mp4,AAAA", "no data: URI of a clip"),
    ("data:video/mp4;base64,AAAA", "no video in a format that is known"),
    ("data:video/mp4;base64," + base64.b64encode(b"\0\0\0\x18ftypisom" + bytes(40)).decode(), "damaged"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(server, value, error):
    answer = server.post("/v1/videos", model="clips", input=value)
    assert answer.status == 400 and error in answer.error["message"]


def test_a_look_at_a_clip_has_its_frames_and_what_counts_in_them(server):
    page = server.post("/v1/look", model="clips", video=VIDEO.send(clip("motion", "test", 5).frames)).json
    answer = page["answer"]
    assert len(answer["frames"]) == 8 and len(answer["shares"]) == 4 and answer["cover"] == [1, 1]
    assert [each["name"] for each in page["sequences"]] == ["video", "step", "steps"]
    for layer in range(len(page["layers"])):
        assert server.post("/v1/look/layer", model="clips", look=page["look"], layer=layer).status == 200
    row = server.get("/v1/look/examples?model=clips").json["data"][0]
    assert row["video"].startswith("data:image/gif;base64,")
