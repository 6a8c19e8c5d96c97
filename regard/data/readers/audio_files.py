"""Recordings: audio files read in parts, as mono samples at any rate, so that a file of hours takes the memory of a few
seconds. WAV is read here, everything else by soundfile."""

import io
import math
import os
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.readers.mp3 import one_kind
from regard.files import check_regular

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au")
STARTS = (b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"RIFX", b"RF64")
"""The first bytes of files that soundfile decodes, besides the frames of an mp3."""
MOST_BYTES = 1 << 35
"""Most bytes of an audio file; it is never in memory as a whole."""
MOST_CHANNELS, RATES = 64, (1000, 768_000)
MOST_SECONDS = 4 * 3600
"""Seconds that a packed file of any size may claim; a longer one has at least a byte for each second."""
MOST_CHUNKS = 10_000
"""Chunks of a WAV file before its samples."""
LOUDEST = 1e5
"""Samples lie between -1 and 1; floats beyond this are no sound, and their squares would overflow."""
ZEROS, ROLLOFF, BETA = 24, 0.945, 10.0
"""The low-pass filter of resampling: zero crossings to each side, its cutoff as a part of the Nyquist frequency, and
the shape of the Kaiser window (about 100 dB of attenuation)."""
STAY_OPEN = 8
"""Files read by soundfile that stay open for their next part: a process may open a thousand, a test set has more."""
FINEST = 1000
"""Ratios of two rates have at most this denominator; any other ratio is off by at most a millionth."""
BLOCK = 256
"""Least number of input samples of a block that is resampled at once."""
WIDEST = 4096
"""Most samples that such a block is joined to."""
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
"""The encodings in the header of a WAV file."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A piece of audio: its rate, its length, and a function that reads a part of it."""

    name: str
    """For errors: the path, or a few words."""
    rate: int
    """Samples a second."""
    length: int
    """Number of samples."""
    load: Callable[[int, int], np.ndarray]
    """Function from a start and a stop inside the recording to samples, averaged over the channels."""

    @property
    def seconds(self) -> float:
        return self.length / self.rate

    def samples(self, rate: int | None = None, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Samples at a rate (None: its own) from `start` to `stop`, which count samples at that rate.

        A part has the values that it has in the whole, up to rounding.
        """
        rate = self.rate if rate is None else rate
        length = self.length_at(rate)
        start, stop = min(start, length), length if stop is None else min(stop, length)
        if stop <= start:
            return np.zeros(0, dtype=np.float32)
        if rate == self.rate:
            return self.part(start, stop)
        up, down, filters = resampling(self.rate, rate)
        margin = (filters.shape[1] - down) // 2
        first, last = start // up, -(-stop // up)  # blocks: `down` samples of ours become `up`
        source = self.part(first * down - margin, last * down + margin)
        blocks = np.lib.stride_tricks.sliding_window_view(source, filters.shape[1])[::down]
        return (blocks @ filters.T).reshape(-1)[start - first * up : stop - first * up]

    def length_at(self, rate: int) -> int:
        """The number of samples at a rate."""
        return self.length if rate == self.rate else math.ceil(self.length * ratio(self.rate, rate))

    def part(self, start: int, stop: int) -> np.ndarray:
        """Samples at the own rate; zeros before the beginning and behind the end."""
        samples = np.zeros(stop - start, dtype=np.float32)
        first, last = max(0, start), min(self.length, stop)
        if first < last:
            read = self.load(first, last)
            if not np.isfinite(read).all() or np.abs(read).max(initial=0) > LOUDEST:
                raise ValueError(
                    f"{self.name} has samples that are no sound, such as NaN, between second {first / self.rate:.1f} "
                    f"and {last / self.rate:.1f}; write it again"
                )
            samples[first - start : first - start + len(read)] = read  # a damaged file may end early
        return samples


class Upload(io.BytesIO):
    """The bytes of a file. A damaged header may lead before their beginning: there is no position, and no error, which
    soundfile would print with a traceback."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


def ratio(source: int, target: int) -> Fraction:
    """Samples at the target rate for each sample at the source's."""
    finer = math.isqrt(FINEST**2 * source // max(source, target))  # of upwards ones, the numerator is the larger
    return Fraction(target, source).limit_denominator(max(1, finer))


@lru_cache(maxsize=16)
def resampling(source: int, target: int) -> tuple[int, int, np.ndarray]:
    """Two sizes and a matrix of windowed sincs: blocks of `down` samples, with a margin, become blocks of `up`."""
    exact = ratio(source, target)
    if not exact or target > RATES[1]:
        raise ValueError(f"audio of {source:,} samples a second cannot become one of {target:,}; choose closer rates")
    times = math.ceil(BLOCK / exact.denominator)  # short blocks are joined: one large product is faster
    times = max(1, min(times, WIDEST // exact.numerator))
    up, down = exact.numerator * times, exact.denominator * times
    cutoff = ROLLOFF * min(1.0, float(exact))
    margin = math.ceil(ZEROS / cutoff)
    offsets = np.arange(-margin, down + margin)[None] - np.arange(up)[:, None] * (down / up)
    inside = np.clip(1 - (offsets * cutoff / ZEROS) ** 2, 0, None)
    filters = cutoff * np.sinc(offsets * cutoff) * np.i0(BETA * np.sqrt(inside)) / np.i0(BETA) * (inside > 0)
    return up, down, filters.astype(np.float32)


def open_audio(source: str | Path | bytes | io.BufferedIOBase) -> Recording:
    """A recording from the name of a file, its bytes, or an open file."""
    if isinstance(source, str | Path):
        name, source = str(source), Path(source)
        if os.path.isdir(source):  # Path.is_dir raises an error for a name that is too long
            raise ValueError(f"{name} is a folder; name the audio files in it: {name}/*.wav")
        try:
            check_regular(source, MOST_BYTES)
        except FileNotFoundError:
            raise ValueError(f"no such audio file: {name}") from None
    else:
        name, source = "the audio", Upload(source) if isinstance(source, bytes) else source
    with opened(source) as file:
        start = file.read(12)
        if start[:4] == b"RIFF" and start[8:] == b"WAVE":
            recording = open_wav(file, source, name)
        elif start.startswith(STARTS) or (len(start) > 1 and start[0] == 0xFF and start[1] & 0xE0 == 0xE0):
            if isinstance(source, io.BytesIO) and start.startswith((b"ID3", b"\xff")):  # somebody else's mp3, perhaps
                source = Upload(one_kind(source.getvalue()))
            recording = open_other(source, name)
        else:
            known = ", ".join(SUFFIXES)
            raise ValueError(f"{name} is no audio in a format that is known ({known}); convert it to WAV")
    if not RATES[0] <= recording.rate <= RATES[1]:
        raise ValueError(f"{name} has {recording.rate:,} samples a second; {RATES[0]:,} to {RATES[1]:,} are read")
    if recording.length < 1:
        raise ValueError(f"{name} holds no audio: it has no samples; record it again, or leave it out")
    return recording


def opened(source: Path | io.BufferedIOBase) -> AbstractContextManager[io.BufferedIOBase]:
    """A context with the open file of a source, at its beginning."""
    if isinstance(source, Path):
        return source.open("rb")
    source.seek(0)
    return nullcontext(source)


def open_wav(file: io.BufferedIOBase, source: Path | io.BufferedIOBase, name: str) -> Recording:
    """A WAV file: integers of 8 to 32 bits or floats, with any number of channels."""
    size = file.seek(0, io.SEEK_END)
    at, header = 12, b""
    for _ in range(MOST_CHUNKS):
        if at + 8 > size:
            raise ValueError(f"{name} holds no audio: it is a WAV file without a data chunk; record it again")
        file.seek(at)
        tag, length = struct.unpack("<4sI", file.read(8))
        if tag == b"fmt ":
            header = file.read(min(length, 40))
        elif tag == b"data":
            break
        at += 8 + length + length % 2
    else:
        raise ValueError(f"{name} is damaged: {MOST_CHUNKS:,} chunks and no samples; write it again")
    if len(header) < 16:
        raise ValueError(f"{name} is damaged: its format comes after its data, or is cut short; write it again")
    encoding, channels, rate, _, width, bits = struct.unpack("<HHIIHH", header[:16])
    if encoding == EXTENSIBLE and len(header) >= 26:
        encoding = struct.unpack("<H", header[24:26])[0]
    if (encoding, bits) not in [(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64)]:
        if encoding not in (PCM, FLOAT):  # such as A-law
            return open_other(source, name)
        raise ValueError(f"{name} has {bits} bits a sample; 8, 16, 24 and 32 are read")
    if not 1 <= channels <= MOST_CHANNELS or width != channels * bits // 8:
        raise ValueError(f"{name} is damaged: {channels} channels in {width} bytes; write it again")
    # A program that writes into a pipe leaves the length open; in a file that was cut short it is too large.
    count = min(length or size, size - at - 8) // width
    return Recording(name, rate, count, partial(read_wav, source, at + 8, channels, encoding == FLOAT, bits))


def read_wav(
    source: Path | io.BufferedIOBase, data: int, channels: int, floats: bool, bits: int, start: int, stop: int
) -> np.ndarray:
    """Samples of a WAV file whose data begin at the byte `data`, averaged over the channels."""
    width = channels * bits // 8
    with opened(source) as file:
        file.seek(data + start * width)
        content = file.read((stop - start) * width)
    content = content[: len(content) // width * width]
    if floats:
        values = np.frombuffer(content, dtype=f"<f{bits // 8}")
        with np.errstate(over="ignore"):  # what overflows is refused as no sound
            return values.reshape(-1, channels).mean(1, dtype=values.dtype).astype(np.float32)
    if bits == 8:  # the only width without a sign
        integers = np.frombuffer(content, dtype=np.uint8).astype(np.int16) - 128
    elif bits == 24:
        wide = np.zeros((len(content) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3)
        integers = wide.view("<i4")[:, 0] >> 8
    else:
        integers = np.frombuffer(content, dtype=f"<i{bits // 8}")
    scale = np.float32(2.0 ** (1 - bits))
    if channels == 1:
        return integers.astype(np.float32) * scale
    return integers.reshape(-1, channels).mean(1, dtype=np.float64).astype(np.float32) * scale


def open_other(source: Path | io.BufferedIOBase, name: str) -> Recording:
    """A file of another format, by soundfile."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the package is there, and its library is not
        raise ValueError(f"{name}: formats other than WAV need an extra: pip install 'regard[audio]'") from None
    try:
        with opened(source) as file:
            size = file.seek(0, io.SEEK_END)
        if not isinstance(source, Path):
            source.seek(0)
        key = object()
        sound = sound_file(source, key) if isinstance(source, Path) else soundfile.SoundFile(source)
    except (soundfile.SoundFileError, TypeError, RuntimeError) as error:
        raise ValueError(f"{name} is cut short or damaged ({plain(error)}); copy it again, or leave it out") from None
    if not 1 <= sound.channels <= MOST_CHANNELS:
        raise ValueError(f"{name} has {sound.channels} channels; 1 to {MOST_CHANNELS} are read")
    rate, upload = sound.samplerate, None if isinstance(source, Path) else sound
    if sound.frames > rate * max(MOST_SECONDS, size):
        hours = f"{sound.frames / rate / 3600:,.0f} hours in {size:,} bytes"
        raise ValueError(f"{name} is damaged: it claims {hours}; copy it again, or leave it out")

    def load(start: int, stop: int) -> np.ndarray:
        try:
            sound = sound_file(source, key) if upload is None else upload
            if sound.tell() != start:
                sound.seek(start)
            read: np.ndarray = sound.read(stop - start, dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, RuntimeError) as error:
            place = f"from second {start / rate:.0f} on"
            raise ValueError(f"{name} is damaged {place} ({plain(error)}); copy it again, or leave it out") from None
        return read.mean(1, dtype=np.float32)

    return Recording(name, rate, sound.frames, load)


@lru_cache(maxsize=STAY_OPEN)
def sound_file(source: Path, key: object) -> Any:
    """The file that soundfile opens for the recording with this key; it is closed when it leaves the cache."""
    import soundfile

    return soundfile.SoundFile(source)


def plain(error: Exception) -> str:
    """The words of a library's error, without its own ending."""
    return str(error).partition(": ")[2].strip().rstrip(".") or str(error).rstrip(".")


def from_samples(samples: Any, rate: int, name: str = "the audio") -> Recording:
    """A recording from samples in memory: floats from -1 to 1, or integers of 16 bits; several channels are columns."""
    values = np.asarray(samples)
    if values.dtype == np.int16:
        values = values.astype(np.float32) / 32768
    if values.ndim not in (1, 2) or not np.issubdtype(values.dtype, np.floating) or not values.size:
        raise ValueError(
            f"audio is an array of floats from -1 to 1, with a column a channel; got {values.dtype} of shape "
            f"{values.shape}; convert it: samples.astype('float32') / 32768"
        )
    mono = np.ascontiguousarray(values if values.ndim == 1 else values.mean(1), dtype=np.float32)
    return Recording(name, rate, len(mono), lambda start, stop: mono[start:stop])


def wav_bytes(samples: np.ndarray, rate: int) -> bytes:
    """The bytes of a WAV file of 16 bits for samples from -1 to 1."""
    data = (np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, PCM, 1, rate, 2 * rate, 2, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE") + form + struct.pack("<4sI", b"data", len(data)) + data
    )
