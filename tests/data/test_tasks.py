"""Text-to-text tasks: right targets, held-out sources, exact shares; and span corruption that can be undone."""

import random
from collections import Counter
from dataclasses import replace
from datetime import date

import pytest
from dateutil import parser
from hypothesis import given
from hypothesis import strategies as st

from regard.data.generated.docs import summaries as docstrings
from regard.data.generated.events import PLAIN
from regard.data.generated.languages import LANGUAGES, languages
from regard.data.generated.phrases import phrases, split_of
from regard.data.generated.text_tasks import PREFIXES, SHARES, Task, corrupt, tasks
from regard.recipes import Recipe, recipe

pytest.importorskip("emoji")
SPLITS = ("train", "valid", "test")


def only(name: str, split: str, count: int, **more) -> list[Task]:
    return tasks(split, count, shares={name: 1}, **more)


@pytest.mark.parametrize("split", SPLITS)
def test_every_source_has_its_prefix_and_one_line(split):
    for task in tasks(split, 300):
        assert task.source.startswith(PREFIXES[task.name]) and task.target
        assert "\n" not in task.source + task.target


def test_shares_are_exact_in_every_round():
    period = sum(SHARES.values())
    for start in (0, 7 * period):
        assert Counter(task.name for task in tasks("train", 3 * period, start)) == {n: 3 * s for n, s in SHARES.items()}
    mixed = Counter(task.name for task in tasks("train", 50, shares={"date": 3, "language": 2, "summarize": 0}))
    assert mixed == {"date": 30, "language": 20}


def test_stream_has_random_access():
    whole = tasks("train", 60, seed=3)
    assert tasks("train", 20, 40, seed=3) == whole[40:] and tasks("train", 0) == []
    assert tasks("train", 60, seed=4) != whole != tasks("valid", 60, seed=3)


def test_translations_are_the_phrases():
    found = only("translate", "test", 30, start=5, seed=2)
    expected = phrases("test", 30, start=5, seed=2)
    assert [(t.source, t.target) for t in found] == [(PREFIXES["translate"] + p.source, p.target) for p in expected]


def test_dates_are_right_and_held_out():
    """An outside parser reads the same day from what it can read; spelled-out numbers it cannot."""
    read = 0
    for split in SPLITS:
        for task in only("date", split, 400):
            day = date.fromisoformat(task.target)
            assert split_of("date", day) == split
            text = task.source.removeprefix(PREFIXES["date"])
            if not any(word in text for word in ("first", "second", "third", "eth ", "th,", "th of", "th, ")):
                assert parser.parse(text.removeprefix("the ")).date() == day
                read += 1
    assert read > 700


def test_languages_come_once_in_a_pass_then_anew():
    size = len(languages("test"))
    first, second = only("language", "test", size), only("language", "test", size, start=size)
    assert len({task.source for task in first}) == size
    assert {task.target for task in first} == set(LANGUAGES.values())
    names = [sorted(name for t in run for name in t.source.split(": ", 1)[1].split(", ")) for run in (first, second)]
    assert len(set(names[0]) & set(names[1])) > 0.6 * len(set(names[0]))  # the rarer languages lose none
    assert [task.source for task in first] != [task.source for task in second]


def test_a_summary_is_the_sentence_that_states_a_fact():
    rows = only("summarize", "valid", 200)
    assert len({task.source for task in rows}) == 200, "they are endless"
    leads = 0
    for task in rows:
        passage = task.source.removeprefix(PREFIXES["summarize"])
        sentences = [sentence for sentence in PLAIN if sentence in passage]
        assert 1 <= len(sentences) <= 3 and task.target not in sentences
        assert set(task.target.split()) & set(passage.split()), "what it names stands in the passage"
        leads += passage.startswith(task.target)
    assert 0 < leads < 60, "the first sentence is seldom the answer"


def test_a_run_that_names_no_summaries_goes_on_with_docstrings(tmp_path):
    new = recipe("t5")
    new.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == new and new.data.summaries == "reports"
    text = (tmp_path / "recipe.toml").read_text()
    (tmp_path / "recipe.toml").write_text(text.replace('summaries = "reports"\n', ""))
    old = Recipe.load(tmp_path / "recipe.toml").data
    assert old == replace(new.data, summaries="docstrings")
    for data, known, share in ((old, [pair[1] for pair in docstrings("valid")], 1), (new.data, [], 3)):
        targets = [target for source, target in data.split()[1] if source.startswith(PREFIXES["summarize"])]
        assert len(targets) in range(1000 * share // (15 + share), 1000 * share // (15 + share) + 2)
        assert all((target in known) == bool(known) for target in targets)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tasks("tests", 1), "unknown split 'tests'; did you mean 'test'?"),
        (lambda: tasks("test", -1), "count=-1"),
        (lambda: tasks("test", 1, shares={"dates": 1}), "unknown task 'dates'; did you mean 'date'?"),
        (lambda: tasks("test", 1, shares={"date": -1}), "date has -1"),
        (lambda: tasks("test", 1, shares={"date": 0}), "all are 0"),
        (lambda: corrupt([1], random.Random(0), sentinels=[9, 8]), "got 1 ids"),
        (lambda: corrupt([1, 2], random.Random(0), sentinels=[9, 8], rate=1.0), "rate=1.0"),
        (lambda: corrupt([1, 2], random.Random(0), sentinels=[9, 8], mean_span=0.5), "mean_span=0.5"),
        (lambda: corrupt(list(range(100)), random.Random(0), sentinels=[9, 8]), "5 spans need 6 sentinels, got 2"),
    ],
)
def test_mistakes_name_their_cure(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


# Span corruption: what is hidden goes back where its sentinel is.
def restored(source: list[int], target: list[int], sentinels: list[int]) -> list[int]:
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in sentinels:
            spans[latest := token] = []
        else:
            spans[latest].append(token)
    assert spans[latest] == []  # the last sentinel only ends the target
    out: list[int] = []
    for token in source:
        out += spans[token] if token in sentinels else [token]
    return out


@given(st.integers(2, 300), st.floats(0.01, 0.9), st.floats(1, 9), st.integers(0, 10**6))
def test_corruption_can_be_undone(length, rate, mean_span, seed):
    ids, sentinels = list(range(length)), list(range(10_000, 9_600, -1))
    source, target = corrupt(ids, random.Random(seed), sentinels=sentinels, rate=rate, mean_span=mean_span)
    assert restored(source, target, sentinels) == ids
    used = [token for token in source if token in sentinels]
    assert used == sentinels[: len(used)] and [t for t in target if t in sentinels] == sentinels[: len(used) + 1]
    assert not any(a >= 9_000 and b >= 9_000 for a, b in zip(source, source[1:], strict=False))  # spans do not touch
    hidden = len(target) - len(used) - 1
    assert hidden == min(max(round(length * rate), 1), length - 1)


def test_corruption_hides_every_position_alike_in_spans_of_the_mean_length():
    hidden, spans, rng, sentinels = Counter(), 0, random.Random(1), list(range(1000, 1101))
    for _ in range(4000):
        source, target = corrupt(list(range(40)), rng, sentinels=sentinels)
        spans += len(target) - 7
        hidden.update(token for token in target if token < 1000)
    assert hidden.total() == 4000 * 6 and spans == 4000 * 2
    assert min(hidden[i] for i in range(40)) > 0.3 * 600 and max(hidden.values()) < 1.5 * 600
