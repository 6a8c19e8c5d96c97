"""The embedded speech by the recipes' defaults: error rates, what is no speech, and hours in one file. Minutes each."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import regard
from regard.data.generated.speech import speech
from regard.data.readers.audio_files import from_samples, wav_bytes
from regard.data.sets.degrade import coloured, no_speech
from regard.data.sets.transcribed_speech import plain_text
from regard.eval.scores import evaluate
from regard.recipes import fit, recipe
from regard.tasks.speech_scores import error_rates

RATE, PAUSE = 16_000, 0.6
MEASURE = """
import sys, regard
text = regard.load(sys.argv[1]).transcribe(sys.argv[2])
times = [time for segment in text.segments for word in segment.words for time in (word.start, word.end)]
assert times == sorted(times), "times go back"
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]  # not that of our parent
print(int(peak) // 1024, text.text)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run by the recipe's defaults."""
    pytest.importorskip("espeakng_loader")
    out = tmp_path_factory.mktemp("speech") / "run"
    fit(recipe("speech"), out, quiet=True)
    return out


def test_phrases_and_voices_that_nobody_heard(run):
    scores = evaluate(run, {}).scores
    assert scores["examples"] >= 1000 and scores["wer"] <= 5, scores


def test_silence_noise_and_music_are_nothing(run):
    task, rng = regard.load(run), np.random.default_rng(11)
    assert task.transcribe(np.zeros(600 * RATE, dtype=np.float32)).text == ""
    noise = 0.05 * coloured(60 * RATE, rng)
    sounds = [noise, *(no_speech(20 * RATE, RATE, rng) for _ in range(12))]
    words = [len(transcript.text.split()) for transcript in task.transcribe(sounds)]
    assert sum(words) <= 2, words


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory in /proc")
def test_two_hours_take_the_memory_of_minutes(run, tmp_path):
    """Known phrases with pauses, for two hours and for ten minutes: nearly as few words are wrong as in phrases alone,
    times go forward, and the memory is that of a short file."""
    test, pause = speech("test", 200, ("en",)), np.zeros(int(PAUSE * RATE), dtype=np.int16)
    spoken = np.concatenate([part for samples in test.samples for part in (samples, pause)])
    texts = [plain_text(each.text) for each in test.utterances]
    alone = regard.load(run).transcribe([from_samples(samples, RATE) for samples in test.samples])
    expected = error_rates([each.text for each in alone], texts)["wer"]
    memory, rates = [], []
    for name, seconds in (("short", 600), ("long", 7200)):
        times = max(1, round(seconds * RATE / len(spoken)))
        (tmp_path / f"{name}.wav").write_bytes(wav_bytes(np.tile(spoken, times) / 32768, RATE))
        command = [sys.executable, "-c", MEASURE, str(run), str(tmp_path / f"{name}.wav")]
        peak, _, text = subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition(" ")
        memory.append(int(peak))
        rates.append(error_rates([text], [" ".join(texts * times)])["wer"])
    assert max(rates) <= expected + 3, (expected, rates)
    assert all(later <= 1.1 * earlier for earlier, later in pairwise(memory)), memory


def test_an_encoder_decoder_learns_them_too(tmp_path):
    pytest.importorskip("espeakng_loader")
    fit(recipe("speech", {"model": "whisper"}), tmp_path / "run", quiet=True)
    scores = evaluate(tmp_path / "run", {}).scores
    assert scores["examples"] >= 1000 and scores["wer"] <= 15, scores


def test_digits_by_voices_that_nobody_heard(tmp_path):
    pytest.importorskip("espeakng_loader")
    fit(recipe("sound"), tmp_path / "run", quiet=True)
    scores = evaluate(tmp_path / "run", {}).scores
    assert scores["accuracy"] >= 95, scores
