"""Audio files: WAV of every width, and what soundfile decodes."""

import io
from functools import cache

import numpy as np

from regard.data.readers.audio_files import open_audio, wav_bytes
from regard.tokens.mel import LogMel

READS = ("regard.data.readers.audio_files", "regard.data.readers.mp3", "regard.tokens.mel")
FORMS = [("WAV", "PCM_U8"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAVEX", "PCM_16"), ("WAV", "ALAW"),
         ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16")]  # fmt: skip
WORDS = [b"RIFF", b"WAVE", b"fmt ", b"data", b"LIST", b"fact", b"fLaC", b"OggS", b"ID3", b"FORM", b"\xff\xfb",
         b"\xff\xff\xff\xff", b"\x00\x00\xc0\x7f", b"\xfe\xff"]  # fmt: skip


@cache
def seeds() -> list[bytes]:
    """Return a fraction of a second of noise in every format."""
    import soundfile

    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (900, 2)).astype(np.float32)
    out = [wav_bytes(noise[:, 0], 16_000)]
    for form, subtype in FORMS:
        file = io.BytesIO()
        soundfile.write(file, noise, 16_000, format=form, subtype=subtype)
        out.append(file.getvalue())
    return out


def run(data: bytes) -> None:
    """Read the first second at a model's rate and as frames, and a second from the middle."""
    recording = open_audio(data)
    LogMel()(recording.samples(16_000, 0, 16_000))
    middle = recording.length_at(16_000) // 2
    recording.samples(16_000, middle, middle + 16_000)
