"""Toy tasks: every answer is right, splits share no sequence, and lengths are those that were asked for."""

import pytest

from regard.data.generated.toys import MAKERS, SYMBOLS, longest, toys
from regard.data.sets.toy_tasks import ToyConfig

RANGES = dict(length=(1, 7), gap=(0, 3))


def parts(prompt):
    """Content, dots and question of a prompt."""
    symbols = prompt.split()
    assert symbols[-1] == "=" and set(symbols) <= set(SYMBOLS)
    dots = symbols.count(".")
    first = symbols.index(".") if dots else len(symbols) - 1
    return symbols[:first], dots, symbols[first + dots : -1]


def expected(task, content, question):
    if task == "copy":
        return content
    if task == "sort":
        return sorted(content)
    if task == "parity":
        return [str(sum(map(int, content)) % 2)]
    if task == "addition":
        a, b = "".join(content).split("+")
        return list(str(int(a) + int(b)).zfill(len(a) + 1))
    return [content[content.index(question[0]) + 1]]


@pytest.mark.parametrize("task", MAKERS)
@pytest.mark.parametrize("gap", [(0, 0), (1, 3)])
def test_answers_are_right(task, gap):
    for prompt, answer in toys(task, "train", 60, length=(1, 7), gap=gap):
        content, dots, question = parts(prompt)
        if task == "recall" and not dots:
            content, question = content[:-1], content[-1:]
        assert gap[0] <= dots <= gap[1]
        assert answer.split() == expected(task, content, question)
        assert len(f"{prompt} {answer}".split()) <= longest(task, 7, gap[1])


@pytest.mark.parametrize("task", MAKERS)
def test_splits_share_no_longer_sequence(task):
    splits = {split: {p for p, _ in toys(task, split, 300, length=(3, 6), gap=(0, 0))} for split in ("train", "test")}
    assert not splits["train"] & splits["test"]


def test_items_depend_on_their_index_alone():
    assert toys("sort", "valid", 9, 4, **RANGES) == toys("sort", "valid", 20, **RANGES)[4:13]


def test_lengths_and_gaps_are_exact():
    data = ToyConfig(task="copy", length=5, shortest=5, distance=4, nearest=4)
    assert {(len(content), dots) for content, dots, _ in (parts(e.prompt) for e in data.held_out())} == {(5, 4)}
    assert max(len(f"{e.prompt} {e.answer}".split()) for e in data.held_out()) < data.context


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(shortest=9), "shortest=9 must be from 1 to length=8"),
        (dict(nearest=1), "nearest=1 must be from 0 to distance=0"),
        (dict(task="recall", length=17), "recall has 16 keys"),
        (dict(epoch_size=0), "epoch_size=0 must be at least 1"),
    ],
)
def test_settings_that_do_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        ToyConfig(**fields)
