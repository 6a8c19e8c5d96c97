"""A recording is chosen or dropped, its phrases come one by one, and each can be played."""

import base64
import re

import numpy as np
import pytest
from playwright.sync_api import expect

import regard
from regard.data.readers.audio_files import wav_bytes
from tests.serve.running import serving_here
from tests.tasks.whispers import make_whisper

RATE = 16_000
DROP = """([zone, uri]) => {
  const bytes = Uint8Array.from(atob(uri), (one) => one.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "talk.wav", { type: "audio/wav" }));
  document.querySelector(zone).dispatchEvent(
    new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return make_whisper(tmp_path_factory.mktemp("page") / "whisper", seed=4)


@pytest.fixture(scope="module")
def address(directory):
    with serving_here({"whisper": str(directory)}, preload=True) as running:
        yield running.address


@pytest.fixture(scope="module")
def recording():
    return wav_bytes(np.random.default_rng(0).normal(0, 0.1, 9 * RATE), RATE)


def test_a_recording_is_dropped_and_a_phrase_is_played(visit, address, directory, recording):
    page = visit(address=address)
    page.locator("[name=audio]").wait_for()
    page.evaluate(DROP, [".drop", base64.b64encode(recording).decode()])
    wanted = [segment.text.strip() for segment in regard.load(directory).transcribe(recording).segments]
    expect(page.locator(".phrases li")).to_have_count(len(wanted))
    expect(page.locator(".status").first).to_contain_text(f"{len(wanted)} phrase")
    shown = page.locator(".phrases li span").all_text_contents()
    assert shown == wanted
    page.locator(".phrases .time").last.click()
    start = regard.load(directory).transcribe(recording).segments[-1].start
    page.wait_for_function("start => document.querySelector('audio').currentTime >= start - 0.01", arg=start)


def test_a_microphone_is_recorded(visit, address):
    """Chromium's own device, which beeps."""
    page = visit(address=address)
    page.get_by_role("button", name="Record", exact=True).click()
    page.get_by_role("button", name="Stop recording").wait_for()
    page.wait_for_timeout(1200)
    page.get_by_role("button", name="Stop recording").click()
    page.wait_for_function("() => document.querySelector('audio').duration > 0.8")
    expect(page.locator(".status").first).to_contain_text(re.compile("phrase|Nothing is said"))
    expect(page.locator(".problem")).to_have_count(0)


def test_the_stretch_of_a_token_is_played(visit, address, recording):
    page = visit("#/look?model=whisper", address=address)
    page.locator(".drop").wait_for()
    page.evaluate(DROP, [".drop", base64.b64encode(recording).decode()])
    panel = page.locator("[data-panel=sound]")
    expect(panel.locator("[data-said=sound]")).to_contain_text("Choose a token")
    page.locator('[data-key="token 0 60"]').click()
    expect(panel.locator("[data-said=sound]")).to_contain_text("of second 1.20 to 1.22")
    panel.get_by_role("button", name="Play the token").click()
    page.wait_for_function("() => document.querySelector('[data-panel=sound] audio').currentTime >= 1.1")
    page.locator('[data-key="token 1 1"]').click()
    expect(panel.locator("[data-said=sound]")).to_contain_text("of second")


def test_what_is_no_recording_is_said_in_a_line(visit, address):
    page = visit(address=address)
    page.locator("[name=audio]").set_input_files({"name": "x.wav", "mimeType": "audio/wav", "buffer": b"no sound"})
    expect(page.locator(".problem, [role=alert]").first).to_contain_text("is no audio in a format that is known")
    visit.watched[-1].errors.clear()  # the browser notes each refusal
