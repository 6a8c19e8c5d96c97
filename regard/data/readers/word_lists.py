"""Published lists of words to score word vectors on: pairs with a similarity, and analogies."""

import math
import re
from pathlib import Path
from typing import NamedTuple

from regard.data.readers.text_files import read_lines

SCORES = ("simlex999", "score", "similarity", "human (mean)", "mean", "rating")
"""Names of the column with the similarity, in lists that have further ones."""


class WordPair(NamedTuple):
    """Two words, and how similar people find them."""

    first: str
    second: str
    score: float


def read_similarities(path: str | Path) -> list[WordPair]:
    """The pairs of a file with two words and a number in each line, separated by tabs, commas or spaces.

    Lines that begin with # are left out, and a first line without a number names the columns.
    """
    pairs: list[WordPair] = []
    column = 2
    for number, line in rows_of(path):
        cells = [cell.strip() for cell in re.split(r"\t|,|;", line)]
        cells = line.split() if len(cells) < 3 else cells
        try:
            score = float(cells[column])
            pairs.append(WordPair(cells[0], cells[1], score))
            if not math.isfinite(score):
                raise ValueError
        except (IndexError, ValueError):
            if pairs or len(cells) < 3:
                raise ValueError(f"{path}, line {number}: two words and a number are expected, got {line!r}") from None
            names = [cell.lower() for cell in cells]
            column = next((names.index(name) for name in SCORES if name in names), 2)
    if not pairs:
        raise ValueError(f"{path}: no line has two words and a number; give a list such as WordSim-353")
    return pairs


def read_analogies(path: str | Path) -> list[tuple[str, str, str, str]]:
    """The analogies of a file with four words in each line, a : b = c : d; lines that begin with : are titles."""
    found = []
    for number, line in rows_of(path):
        if line.startswith(":"):
            continue
        match line.split():
            case [a, b, c, d]:
                found.append((a, b, c, d))
            case words:
                raise ValueError(f"{path}, line {number}: an analogy has four words, got {len(words)}: {line!r}")
    if not found:
        raise ValueError(f"{path}: no line has four words; give a list of analogies such as questions-words.txt")
    return found


def rows_of(path: str | Path) -> list[tuple[int, str]]:
    """The lines of a file with their numbers, without comments and empty ones."""
    lines = enumerate(read_lines(Path(path)), 1)
    return [(number, line.strip()) for number, line in lines if line.strip() and not line.startswith("#")]
