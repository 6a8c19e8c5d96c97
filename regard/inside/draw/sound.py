"""Figures of sound: spectrograms with what was heard in them, mel bands, and the paths of CTC."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.audio_files import open_audio
from regard.inside.draw.canvas import INK, LINES, SOFT, Axes, Figure, Number, Sheet, Target, name_lines, pen, ramp
from regard.inside.draw.figures import FIGURES
from regard.inside.draw.matrices import label_cells, shade, write_title
from regard.tokens.mel import LogMel, mel_filters

WIDEST, INCHES, HEIGHT = 16.0, 2.4, 1.8
"""Inches of the widest spectrogram, of a second of it, and its height."""
LETTER = 0.08
"""Inches of a letter."""
MOST = 10.0
"""Seconds of a recording that are drawn."""

Token = tuple[str, float]
"""A token as it is written, and the second when it begins."""


def place_spectrogram(sheet: Sheet, frames: Float[Tensor, "T M"], seconds: Number, title: str) -> Axes:
    """Add a spectrogram: time from left to right, pitch from below."""
    width = min(WIDEST, max(3.0, INCHES * seconds))
    axes = sheet.place(0, 0, width, HEIGHT, title=title, xlabel="seconds", ylabel="mel band")
    axes.imshow(
        frames.T.numpy(), aspect="auto", origin="lower", cmap=ramp(), extent=(0, seconds, 0, frames.shape[1]),
        interpolation="nearest", vmin=float(frames.quantile(0.02)), vmax=float(frames.max()),
    )  # fmt: skip
    return axes


def draw_heard(
    frames: Float[Tensor, "T M"], seconds: Number, tokens: Sequence[Token], blank: Sequence[float],
    best: Sequence[float], path: Target = None, title: str = "",
) -> Figure:  # fmt: skip
    """A spectrogram with each token where it begins; below, for every vector, the probabilities of blank and of the
    most probable token."""
    sheet = Sheet()
    axes = place_spectrogram(sheet, frames, seconds, "")
    width, top = axes.get_position().width * sheet.figure.get_size_inches()[0], frames.shape[1]
    inch, end, level = width / max(seconds, 1e-6), -math.inf, 0
    for text, start in tokens:
        axes.axvline(start, color=LINES[1], linewidth=0.5, alpha=0.7)
        level = (level + 1) % 3 if start * inch < end else 0  # tokens that are close stand above each other
        place = (start, top * (1.03 + 0.09 * level))
        axes.text(*place, text if text.strip() else "␣", clip_on=False, **pen(8, ha="left", color=INK))
        end = start * inch + LETTER * max(1, len(text)) + 0.04
    axes.text(0, top * 1.36, title, clip_on=False, **pen(9.5, fontweight="bold"))
    below = sheet.chart(0, -1.35, width, 0.7, ylabel="probability")
    times = (np.arange(len(blank)) + 0.5) * seconds / max(1, len(blank))
    below.plot(times, blank, linewidth=1.2, label="blank", color=SOFT)
    below.plot(times, best, linewidth=1.2, label="a token", color=LINES[1])
    below.set(xlim=(0, seconds), ylim=(0, 1.02))
    name_lines(below)
    return sheet.save(path)


@FIGURES.register("spectrogram")
def draw_spectrogram(path: Target = None, *, audio: str = "", bands: int = 80) -> Figure:
    """The log-mel frames of a recording as Whisper reads them; without `--audio`, of a tone that rises in steps."""
    features = LogMel(bands=bands)
    if audio:
        samples, title = open_audio(audio).samples(features.rate, 0, int(MOST * features.rate)), Path(audio).name
    else:
        time, title = np.arange(2 * features.rate) / features.rate, "a tone that rises by an octave every half second"
        pitch = 220 * 2.0 ** np.floor(time * 2)
        samples = (0.3 * np.sin(2 * np.pi * np.cumsum(pitch) / features.rate)).astype(np.float32)
    sheet = Sheet()
    place_spectrogram(sheet, features(samples), len(samples) / features.rate, title)
    return sheet.save(path)


@FIGURES.register("mel")
def draw_mel(path: Target = None, *, bands: int = 20, rate: int = 16_000) -> Figure:
    """Mel bands: the weight of each frequency in each, and how pitch grows with frequency."""
    features = LogMel(bands=bands, rate=rate)
    weights = mel_filters(features.style, rate, bands, features.fft)
    hertz, sheet = np.linspace(0, rate / 2, len(weights)), Sheet()
    axes = sheet.chart(0, 0, 5.2, 2.0, title=f"{bands} bands", xlabel="hertz", ylabel="weight")
    axes.plot(hertz, weights.numpy(), linewidth=1.0)
    peaks = hertz[weights.argmax(0).numpy()]
    curve = sheet.chart(6.3, 0, 2.6, 2.0, title="their middles", xlabel="band", ylabel="hertz")
    curve.plot(range(1, bands + 1), peaks, marker="o", markersize=2.5, linewidth=1.0)
    return sheet.save(path)


@FIGURES.register("ctc")
def draw_ctc(path: Target = None, *, word: str = "hello", vectors: int = 12) -> Figure:
    """The paths by which CTC spells a word: the share of all alignments that is at each letter, or blank, in time."""
    if not word or vectors < len(word) + sum(a == b for a, b in zip(word, word[1:], strict=False)):
        raise ValueError(f"{vectors} vectors cannot spell {word!r}; raise --vectors")
    spelled = [part for letter in word for part in ("", letter)] + [""]
    forward, backward = counted(spelled, vectors), counted(spelled[::-1], vectors)
    share = forward * backward.flip(0, 1)
    share = share / share.sum(0).clamp(min=1e-30)
    cell, sheet = 0.34, Sheet()
    axes = shade(sheet, (0, 0, vectors * cell, len(spelled) * cell), share.numpy(), 1.0)
    label_cells(axes, [str(t) for t in range(1, vectors + 1)], [part or "blank" for part in spelled], (cell, cell))
    total = int(forward[-1, -1] + forward[-2, -1])
    write_title(axes, f"{total:,} paths of {vectors} vectors spell “{word}”", 9.5)
    return sheet.save(path)


def counted(spelled: Sequence[str], vectors: int) -> Float[Tensor, "S T"]:
    """The number of paths from the beginning to each letter or blank, "", at each time; between two different letters
    blank may be left out."""
    skips = torch.tensor([bool(s) and i > 1 and s != spelled[i - 2] for i, s in enumerate(spelled)])
    counts = torch.zeros(len(spelled), vectors, dtype=torch.float64)
    counts[:2, 0] = 1
    for time in range(1, vectors):
        before = counts[:, time - 1]
        counts[:, time] = before
        counts[1:, time] += before[:-1]
        counts[2:, time] += before[:-2] * skips[2:]
    return counts
