"""Recordings as they sound elsewhere: other loudness, noise, a room's echo; and sounds that are no speech."""

import numpy as np

LOUDNESS = (0.1, 0.9)
"""The peak of a recording, between which every one has its own."""
RATIOS = (5.0, 35.0)
"""Decibels of speech above noise."""
ROOMS = (0.05, 0.4)
"""Seconds in which an echo becomes a thousandth."""


def degraded(samples: np.ndarray, rate: int, rng: np.random.Generator, share: float) -> np.ndarray:
    """A recording with another loudness; with an echo, and with noise, in a `share` of all cases each."""
    if rng.random() < share:
        samples = reverberated(samples, rate, rng)
    if rng.random() < share:
        power = float(np.mean(samples**2)) or 1e-8
        noise = coloured(len(samples), rng)
        samples = samples + noise * np.sqrt(power / 10 ** (rng.uniform(*RATIOS) / 10))
    peak = float(np.abs(samples).max(initial=0)) or 1.0
    return (samples * (rng.uniform(*LOUDNESS) / peak)).astype(np.float32)


def coloured(count: int, rng: np.random.Generator) -> np.ndarray:
    """Noise of power 1 whose spectrum falls with a random slope, from white to brown."""
    if count == 0:
        return np.zeros(0, dtype=np.float32)
    size = 1 << max(1, count - 1).bit_length()  # a Fourier transform of another size takes ten times as long
    real, imaginary = rng.standard_normal((2, size // 2 + 1), dtype=np.float32)
    spectrum = (real + 1j * imaginary) * np.arange(1, size // 2 + 2, dtype=np.float32) ** -rng.uniform(0, 1)
    noise = np.fft.irfft(spectrum, n=size)[:count]
    return (noise / (noise.std() or 1.0)).astype(np.float32)


def reverberated(samples: np.ndarray, rate: int, rng: np.random.Generator) -> np.ndarray:
    """A recording in a room: convolved with noise that decays."""
    seconds = rng.uniform(*ROOMS)
    count = int(rate * seconds)
    decay = np.logspace(0, -3, count, endpoint=False, dtype=np.float32)
    echo = rng.standard_normal(count, dtype=np.float32) * decay
    echo *= rng.uniform(0.1, 0.5) / np.linalg.norm(echo)
    echo[0] += 1
    size = 1 << (len(samples) + count - 1).bit_length()
    whole = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(echo, size), size)
    return whole[: len(samples)].astype(np.float32)


def no_speech(count: int, rate: int, rng: np.random.Generator) -> np.ndarray:
    """A sound without words: silence, noise that comes and goes, or a few chords."""
    kind = rng.integers(4)
    if kind == 0:
        return np.zeros(count, dtype=np.float32)
    if kind == 1:
        return coloured(count, rng) * np.float32(10 ** rng.uniform(-4, -1))
    time = np.arange(count) / rate
    if kind == 2:
        swell = np.interp(time, np.linspace(0, count / rate, 8), rng.uniform(0, 1, 8))
        return (coloured(count, rng) * swell * 0.1).astype(np.float32)
    sound = np.zeros(count)
    for start in np.arange(0, count / rate, rng.uniform(0.2, 0.8)):
        since = np.clip(time - start, 0, None)
        for note in rng.choice(np.arange(40, 80), rng.integers(1, 4)):
            tone = np.sin(2 * np.pi * 440 * 2 ** ((note - 69) / 12) * since) * np.exp(-since * rng.uniform(2, 8))
            sound += tone * (time >= start)
    return (sound / (np.abs(sound).max() or 1.0) * rng.uniform(0.05, 0.8)).astype(np.float32)
