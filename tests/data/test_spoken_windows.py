"""Windows of recordings with timed phrases, as an encoder–decoder learns them."""

import numpy as np
import pytest

from regard.data.readers.audio_files import from_samples
from regard.data.sets.batches import IGNORE
from regard.data.sets.spoken_windows import SpokenWindows
from regard.data.sets.transcribed_speech import Spoken
from regard.tokens.mel import LogMel

RATE, FIRST = 16_000, 100
MEL = LogMel(style="whisper", hop=320, bands=16, length=100)
"""Windows of two seconds."""


def windows(noise=0.0):
    def encode(texts):
        return [[ord(letter) % 50 for letter in text.strip()] for text in texts]

    return SpokenWindows(features=MEL, encode=encode, start=98, end=99, first=FIRST, noise=noise, masks=False)


def spoken(number, seconds, times=(), text=""):
    samples = np.random.default_rng(number).normal(0, 0.1, int(seconds * RATE)).astype(np.float32)
    return Spoken(lambda: from_samples(samples, RATE), text, number, times=times)


def test_a_phrase_that_the_window_cuts_is_only_begun():
    recording = spoken(0, 3.0, ((0.0, 0.5, "ab"), (1.0, 1.5, "c"), (1.8, 2.6, "d")))
    (window,) = windows().windows([recording])
    a, b, c = (ord(letter) % 50 for letter in "abc")
    assert window.ids == [FIRST, a, b, FIRST + 25, FIRST + 50, c, FIRST + 75, FIRST + 90]
    assert (window.start, window.frames) == (0, 100)
    (silence,) = windows().windows([spoken(1, 1.0)])
    assert silence.ids == [FIRST]


def test_batches_of_whole_windows_hold_as_many_frames_as_others():
    most = 400
    stream = windows().stream([spoken(i, 0.4 + 0.01 * i, text="ab") for i in range(60)], most)
    batches, sizes = stream.batches(), set()
    for _ in range(60):
        _, _, batch = next(batches)
        frames, targets = batch.inputs["frames"], batch.targets
        assert frames.shape[0] * frames.shape[1] <= most
        assert len(batch.examples) == len(frames) == len(targets) == len(batch.inputs["target"])
        assert (targets != IGNORE).any(1).all()
        sizes.add(frames.shape[1])
    assert MEL.length in sizes and min(sizes) < MEL.length


@pytest.mark.parametrize("epoch", [None, 1])
def test_a_window_has_the_frames_of_its_recording(epoch):
    (window,) = windows().windows([spoken(3, 1.5, text="ab")], epoch)
    assert windows().frames(window).shape == (window.frames, 16)
