"""The embedded speech: phrases of our generators in English and German, spoken by many voices of eSpeak NG.

Numbers, dates, times, amounts of money, durations and measures, all in words. Neither a value nor a voice of the test
ever occurs in training. What was spoken is kept in the cache folder.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as counting
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from num2words import num2words

from regard.data.cache import cache_folder
from regard.data.generated.espeak import SAMPLE_RATE, check_installed, speak
from regard.data.generated.phrases import phrases
from regard.data.generated.splits import Sampler, check_stream
from regard.data.notices import track
from regard.data.readers.audio_files import from_samples
from regard.files import write_atomically

RATE = 16_000
LANGUAGES = ("en", "de")
ACCENTS = {"en": ("en-us", "en", "en-gb-x-rp", "en-gb-scotland"), "de": ("de",)}
VOICES = {
    "train": tuple(
        "Alex Andrea Annie Denis Diogo Gene2 Henrique Hugo Jacky Marco Mario Mike Nguyen Reed Storm adam anika "
        "announcer antonio aunty benjamin boris caleb david ed edward2 f1 f2 f3 f5 grandma grandpa gustave ian "
        "iven john linda m1 m2 m4 m5 m6 m8 marcelo michel mike2 norbert pablo paul quincy rob robert sandro shelby "
        "steph travis zac".split()
    ),
    "valid": ("Gene", "Lee", "f4", "m3", "miguel"),
    "test": ("Alicia", "Andy", "Michael", "belinda", "edward", "m7", "max", "victor"),
}
"""The variants of eSpeak NG's voices that speak each split, without whispering ones and robots."""
PACES, PITCHES = (120, 180), (25, 75)
"""Words a minute and pitches, between which every utterance has its own."""
CHUNK = 250
"""Utterances that are spoken by one process and kept in one file."""
MOST_KEPT = 2 << 30
"""Most bytes of spoken phrases in the cache folder; the oldest are deleted for new ones."""
YEAR = re.compile(r"\d{4}$")
SYMBOLS = re.compile(r"[\d$€£%°/]")


@dataclass(frozen=True, slots=True)
class Utterance:
    """A phrase as it is written and as it is spoken."""

    text: str
    language: str
    voice: str
    pace: int
    pitch: int


@lru_cache(maxsize=1 << 16)
def in_words(text: str, language: str) -> str | None:
    """A phrase with the year at its end in words; None for one that still holds digits or symbols."""
    text = YEAR.sub(lambda year: num2words(int(year[0]), lang=language, to="year"), text)
    return None if SYMBOLS.search(text) else text


def utterances(split: str, language: str) -> Iterator[Utterance]:
    """The endless stream of utterances of a split and a language."""
    check_stream(split)
    for index in counting():
        (phrase,) = phrases(split, 1, start=index)
        text = in_words(phrase.source if language == "en" else phrase.target, language)
        if text is None:
            continue
        rng = Sampler(f"speech {split} {language} {index}")
        voice = f"{rng.of(ACCENTS[language])}+{rng.of(VOICES[split])}"
        pace, pitch = (low + rng.below(high + 1 - low) for low, high in (PACES, PITCHES))
        yield Utterance(text, language, voice, pace, pitch)


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """Utterances with their samples, 16,000 a second."""

    utterances: list[Utterance]
    samples: list[np.ndarray]


def speech(split: str, count: int, languages: tuple[str, ...] = LANGUAGES) -> Speech:
    """The first `count` utterances of a split, as many of each language, spoken or from the cache."""
    streams = [utterances(split, language) for language in languages]
    listed = [next(streams[index % len(streams)]) for index in range(count)]
    chunks = [listed[first : first + CHUNK] for first in range(0, count, CHUNK)]
    samples = [each for chunk in track(chunks, "spoken phrases:", count, len) for each in spoken(chunk)]
    return Speech(listed, samples)


def spoken(chunk: list[Utterance]) -> list[np.ndarray]:
    """The samples of utterances, 16 bits each."""
    lines = [(each.voice, each.pace, each.pitch, each.text) for each in chunk]
    key = hashlib.blake2b(json.dumps(["1", lines]).encode(), digest_size=16).hexdigest()
    path = cache_folder() / f"{key}.speech"
    try:
        with path.open("rb") as file, np.load(file) as stored:
            return np.split(stored["samples"], stored["ends"][:-1])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):  # none there, or one that was cut short
        check_installed()
    samples = [at_rate(each) for each in speak(lines)]
    ends = np.cumsum([len(each) for each in samples])
    make_room(path.parent, sum(each.nbytes for each in samples))
    whole = np.concatenate(samples)

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez(file, samples=whole, ends=ends)

    try:
        write_atomically(path, write)
    except OSError:  # a full disk, or a folder that cannot be written: it is spoken again the next time
        pass
    return samples


def at_rate(samples: np.ndarray) -> np.ndarray:
    """The samples of eSpeak NG resampled, as 16 bits again."""
    resampled = from_samples(samples, SAMPLE_RATE).samples(RATE) if len(samples) else np.zeros(0, dtype=np.float32)
    return (resampled * 32767).clip(-32768, 32767).astype(np.int16)


def make_room(folder: Path, size: int) -> None:
    """Delete the oldest spoken phrases of the cache folder until there is room for so many bytes."""
    kept = sorted((state.st_mtime, state.st_size, path) for path in folder.glob("*.speech") if (state := path.stat()))
    total = sum(bytes_ for _, bytes_, _ in kept) + size
    for _, bytes_, path in kept:
        if total <= MOST_KEPT:
            return
        path.unlink(missing_ok=True)
        total -= bytes_


def digits(split: str) -> Speech:
    """The digits from zero to nine in English, spoken by every voice of a split, at several paces and pitches."""
    check_stream(split)
    times = 6 if split == "train" else 4
    listed = []
    for index in range(10 * times * len(VOICES[split])):
        rng = Sampler(f"digits {split} {index}")
        voice = f"{rng.of(ACCENTS['en'])}+{VOICES[split][index // 10 % len(VOICES[split])]}"
        pace, pitch = (low + rng.below(high + 1 - low) for low, high in (PACES, PITCHES))
        listed.append(Utterance(num2words(index % 10), "en", voice, pace, pitch))
    chunks = [listed[first : first + CHUNK] for first in range(0, len(listed), CHUNK)]
    samples = [each for chunk in track(chunks, "spoken digits:", len(listed), len) for each in spoken(chunk)]
    return Speech(listed, samples)
