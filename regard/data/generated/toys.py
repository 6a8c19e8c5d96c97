"""Toy tasks whose right answer is known: copy, sort, recall, addition, parity.

Each is a prompt of symbols with a space between them, a gap of dots, and "=", which asks for the answer:
    copy "a d b . . =" → "a d b"    recall "a 3 d 7 b 1 . . d =" → "7"    addition "2 7 + 8 =" → "3 5"
Item i depends only on (task, split, seed, i, length, gap).
"""

from collections.abc import Callable
from typing import Literal, get_args

from regard.data.generated.splits import Sampler, check_stream, split_by_hash

Toy = Literal["copy", "sort", "recall", "addition", "parity"]
LETTERS = tuple("abcdefghijklmnop")
DIGITS = tuple("0123456789")
GAP, ASK, PLUS = ".", "=", "+"
SYMBOLS = (*LETTERS, *DIGITS, GAP, ASK, PLUS)
HELD_OUT_LENGTH = 3
"""Sequences of at least so many symbols belong to one split each; there are too few shorter ones."""

Symbols = list[str]
Maker = Callable[[Sampler, int], tuple[Symbols, Symbols, Symbols]]
"""A function from random numbers and a length to content, question and answer; the gap is before the question."""


def _letters(sampler: Sampler, length: int) -> Symbols:
    return [sampler.of(LETTERS) for _ in range(length)]


def _copy(sampler: Sampler, length: int) -> tuple[Symbols, Symbols, Symbols]:
    content = _letters(sampler, length)
    return content, [], content


def _sort(sampler: Sampler, length: int) -> tuple[Symbols, Symbols, Symbols]:
    content = _letters(sampler, length)
    return content, [], sorted(content)


def _recall(sampler: Sampler, length: int) -> tuple[Symbols, Symbols, Symbols]:
    keys = list(LETTERS)
    chosen = [keys.pop(sampler.below(len(keys))) for _ in range(min(length, len(LETTERS)))]
    values = [sampler.of(DIGITS) for _ in chosen]
    asked = sampler.below(len(chosen))
    content = [symbol for pair in zip(chosen, values, strict=True) for symbol in pair]
    return content, [chosen[asked]], [values[asked]]


def _addition(sampler: Sampler, length: int) -> tuple[Symbols, Symbols, Symbols]:
    a, b = (sampler.below(10**length) for _ in "ab")
    return [*str(a).zfill(length), PLUS, *str(b).zfill(length)], [], list(str(a + b).zfill(length + 1))


def _parity(sampler: Sampler, length: int) -> tuple[Symbols, Symbols, Symbols]:
    bits = [str(sampler.below(2)) for _ in range(length)]
    return bits, [], [str(bits.count("1") % 2)]


MAKERS: dict[str, Maker] = {
    "copy": _copy, "sort": _sort, "recall": _recall, "addition": _addition, "parity": _parity,
}  # fmt: skip
assert tuple(MAKERS) == get_args(Toy)


def longest(task: str, length: int, gap: int) -> int:
    """The number of symbols of the longest prompt with its answer."""
    content, answer = {
        "recall": (2 * length + 1, 1),
        "addition": (2 * length + 1, length + 1),
        "parity": (length, 1),
    }.get(task, (length, length))
    return content + gap + 1 + answer


def toys(
    task: str, split: str, count: int, start: int = 0, *, length: tuple[int, int], gap: tuple[int, int], seed: int = 0
) -> list[tuple[str, str]]:
    """Items start … start + count of an endless stream of (prompt, answer); lengths and gaps are drawn evenly from
    these ranges, both ends included. A longer sequence that occurs in one split occurs in no other."""
    check_stream(split, count, start)
    return [_item(task, split, index, length, gap, seed) for index in range(start, start + count)]


def _item(
    task: str, split: str, index: int, length: tuple[int, int], gap: tuple[int, int], seed: int
) -> tuple[str, str]:
    sampler = Sampler(f"{task} {split} {seed} {index} {length} {gap}")
    size = length[0] + sampler.below(length[1] - length[0] + 1)
    dots = [GAP] * (gap[0] + sampler.below(gap[1] - gap[0] + 1))
    while True:
        content, question, answer = MAKERS[task](sampler, size)
        if size < HELD_OUT_LENGTH or split_by_hash(f"{task} {' '.join(content)}", 80) == split:
            return " ".join([*content, *dots, *question, ASK]), " ".join(answer)
