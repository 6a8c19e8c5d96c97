"""A recording is chosen or dropped, its phrases come one by one, and each can be played."""

import base64

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


def test_what_is_no_recording_is_said_in_a_line(visit, address):
    page = visit(address=address)
    page.locator("[name=audio]").set_input_files({"name": "x.wav", "mimeType": "audio/wav", "buffer": b"no sound"})
    expect(page.locator(".problem, [role=alert]").first).to_contain_text("is no audio in a format that is known")
    visit.watched[-1].errors.clear()  # the browser notes each refusal
