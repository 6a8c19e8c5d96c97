"""Audio: recordings, read by the settings of log-mel frames, which are saved as `preprocessor_config.json`."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.data.readers.audio_files import SUFFIXES, Recording, from_samples, open_audio, wav_bytes
from regard.hub.feature_extractor import load_features, save_features
from regard.hub.preprocessor import PREPROCESSOR
from regard.modalities.base import Modality
from regard.registry import register_modality

RATE = 16_000
"""Samples a second of arrays that come without a rate, which is what nearly every model reads."""


def read(item: Any) -> Recording:
    """A recording, from one, a file, its bytes, or samples: an array alone is of 16 kHz, (array, rate) of any rate."""
    if isinstance(item, Recording):
        return item
    samples, rate = item if isinstance(item, tuple) and len(item) == 2 else (item, RATE)
    if isinstance(samples, Tensor):
        samples = samples.detach().cpu().numpy()
    if isinstance(samples, np.ndarray):
        return from_samples(samples, int(rate))
    return open_audio(samples)


def samples_of(data: bytes) -> int:
    """The number of samples of 16 kHz that a file claims to have in its header."""
    return open_audio(data).length_at(RATE)


def wav(item: Any) -> bytes:
    """The bytes of a WAV file for audio in any form."""
    recording = read(item)
    return wav_bytes(recording.samples(), recording.rate)


def write(item: Any, folder: Path) -> Path:
    """Save audio in any form as a WAV file in a folder."""
    (folder / "audio.wav").write_bytes(wav(item))
    return folder / "audio.wav"


AUDIO = register_modality("audio")(
    Modality(
        name="audio", suffixes=SUFFIXES, types=(Recording, np.ndarray, Tensor, tuple, bytes, io.BytesIO),
        file=PREPROCESSOR, load=load_features, save=lambda features, path: save_features(path, features), read=read,
        pixels=samples_of, pixel="sample", unit="seconds", field="audio", item="recording", accept="audio/*",
        write=write,
        send=lambda item: "data:audio/wav;base64," + base64.b64encode(wav(item)).decode(),
    )
)  # fmt: skip
