"""Text-to-text tasks that a prefix distinguishes, and span corruption for pre-training (Raffel et al., 2020).

Item i depends only on (split, seed, i) and the shares. Every task is held out as its source is: see phrases,
languages and facts; a date belongs to the split that it has among the phrases.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from regard.config import nearest
from regard.data.generated.splits import Sampler, check_stream

PREFIXES = {
    "translate": "translate English to German: ",
    "language": "language: ",
    "date": "date: ",
    "summarize": "summarize: ",
}
Summaries = Literal["reports", "docstrings"]
"""Sources of texts to summarize: generated reports, or docstrings of Python's library (by their first line)."""
# How many of each there are in a round.
SHARES = {"translate": 4, "language": 2, "date": 2, "summarize": 1}


Maker = Callable[[str, int, int], tuple[str, str]]
"""A function from split, seed and index to (source, target)."""


@dataclass(frozen=True, slots=True)
class Task:
    """An example of a task: the task's name, the source with its prefix, and the target."""

    name: str
    source: str
    target: str


def tasks(
    split: str, count: int, start: int = 0, *, seed: int = 0,
    shares: Mapping[str, int] = SHARES, summaries: Summaries = "reports",
) -> list[Task]:  # fmt: skip
    """Items start … start + count of an endless stream that mixes the tasks by their shares.

    Translations, dates and reports are always new. Languages and docstrings are finite: each comes once in a pass, and
    the next pass has another order, and other names together.
    """
    check_stream(split, count, start)
    for name, share in shares.items():
        if name not in PREFIXES:
            raise ValueError(f"shares: unknown task {name!r}; {nearest(name, PREFIXES)}")
        if share < 0:
            raise ValueError(f"shares: {name} has {share}; give 0 or more")
    if not any(shares.values()):
        raise ValueError("shares: all are 0; give one task at least 1")
    makers = _MAKERS if summaries == "reports" else _MAKERS | {"summarize": _summarize_docstring}
    order = _round(tuple(shares.items()))
    return [_item(split, seed, index, order, makers) for index in range(start, start + count)]


@lru_cache
def _round(shares: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The tasks of one round, evenly mixed, each with its rank among those of its name."""
    ordered = sorted(((rank + 0.5) / share, name, rank) for name, share in shares for rank in range(share))
    return tuple((name, rank) for _, name, rank in ordered)


def _item(split: str, seed: int, index: int, order: tuple[tuple[str, int], ...], makers: dict[str, Maker]) -> Task:
    rounds, position = divmod(index, len(order))
    name, rank = order[position]
    share = sum(other == name for other, _ in order)
    source, target = makers[name](split, seed, rounds * share + rank)
    return Task(name, PREFIXES[name] + source, target)


def _translate(split: str, seed: int, index: int) -> tuple[str, str]:
    from regard.data.generated.phrases import phrases

    phrase = phrases(split, 1, seed=seed, start=index)[0]
    return phrase.source, phrase.target


def _language(split: str, seed: int, index: int) -> tuple[str, str]:
    from regard.data.generated.languages import LANGUAGES, languages

    epoch, position = divmod(index, len(languages(split)))
    text, code = languages(split, seed=seed + epoch)[position]
    return text, LANGUAGES[code]


def _date(split: str, seed: int, index: int) -> tuple[str, str]:
    from regard.data.generated.phrases import split_of
    from regard.data.generated.values import DAY_STYLES, write_day

    rng = Sampler(f"date {split} {seed} {index}")
    while split_of("date", day := rng.day()) != split:
        pass
    return write_day(rng.of(DAY_STYLES), day), day.isoformat()


def _summarize(split: str, seed: int, index: int) -> tuple[str, str]:
    from regard.data.generated.facts import summaries

    return summaries(split, 1, seed=seed, start=index)[0]


def _summarize_docstring(split: str, seed: int, index: int) -> tuple[str, str]:
    from regard.data.generated.docs import summaries

    epoch, position = divmod(index, len(summaries(split)))
    body, first = _shuffled_docstrings(split, seed, epoch)[position]
    return body if len(body) <= 300 else body[:300].rpartition(" ")[0] + " …", first


@lru_cache(maxsize=4)
def _shuffled_docstrings(split: str, seed: int, epoch: int) -> list[tuple[str, str]]:
    from regard.data.generated.docs import summaries

    rng = Sampler(f"summaries {split} {seed} {epoch}")
    return sorted(summaries(split), key=lambda _: rng.below(1 << 32))


_MAKERS: dict[str, Maker] = {
    "translate": _translate,
    "language": _language,
    "date": _date,
    "summarize": _summarize,
}


def corrupt(
    ids: Sequence[int], rng: random.Random, *, sentinels: Sequence[int], rate: float = 0.15, mean_span: float = 3.0
) -> tuple[list[int], list[int]]:
    """T5's denoising: spans of ids become one sentinel each in the source, and follow it in the target.

    One more sentinel ends the target. About `rate` of the ids are hidden, in spans of `mean_span` ids on average;
    spans never touch each other.
    """
    if len(ids) < 2:
        raise ValueError(f"got {len(ids)} ids; hiding some and keeping some takes at least 2")
    if not 0 < rate < 1 or mean_span < 1:
        raise ValueError(f"rate={rate} must lie between 0 and 1, and mean_span={mean_span} must be at least 1")
    hidden = min(max(round(len(ids) * rate), 1), len(ids) - 1)
    spans = min(max(round(hidden / mean_span), 1), len(ids) - hidden + 1)
    if spans >= len(sentinels):
        raise ValueError(
            f"{spans} spans need {spans + 1} sentinels, got {len(sentinels)}; give more of them, or shorter texts"
        )
    inside = _parts(hidden, spans, rng)
    # What is kept before, between and behind the spans: only between them it may not be empty.
    between = _parts(len(ids) - hidden + 2, spans + 1, rng)
    between[0] -= 1
    between[-1] -= 1
    source, target, at = list(ids[: between[0]]), [], between[0]
    for sentinel, length, kept in zip(sentinels, inside, between[1:], strict=False):
        target += [sentinel, *ids[at : at + length]]
        source += [sentinel, *ids[at + length : at + length + kept]]
        at += length + kept
    return source, [*target, sentinels[spans]]


def _parts(total: int, count: int, rng: random.Random) -> list[int]:
    """`total` as a sum of so many positive integers, every such sum equally probable."""
    cuts = [0, *sorted(rng.sample(range(1, total), count - 1)), total]
    return [after - before for before, after in zip(cuts, cuts[1:], strict=False)]
