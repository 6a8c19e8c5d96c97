"""Generated facts: offsets that hit, one answer a question, scores that mean what they say, values that keep apart."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import date, datetime
from functools import cache
from string import Formatter

import pytest

from regard.data.generated.events import EVENTS, PLAIN, THINGS
from regard.data.generated.facts import _fill, _Value, paraphrases, questions, tagged
from regard.data.generated.phrases import SPLITS, Sampler
from regard.data.generated.values import DAY_STYLES, LABEL_OF, sample_value, value_split, write_day, write_value
from regard.data.readers.examples import Question

LABELS = ("DATE", "PLACE", "AMOUNT", "NAME")


@pytest.fixture(scope="module")
def tags():
    return {split: tagged(split, size) for split, size in (("train", 2500), ("valid", 500), ("test", 700))}


@pytest.fixture(scope="module")
def asked():
    return questions("train", 1200) + questions("test", 300)


@pytest.fixture(scope="module")
def similar():
    return paraphrases("train", 1000)


def surfaces(examples) -> set[str]:
    return {example.text[entity.start : entity.end] for example in examples for entity in example.entities}


# What is written.
def test_dates_in_every_style():
    assert [write_day(style, date(1999, 12, 3)) for style in DAY_STYLES] == [
        *("December 3, 1999", "3 December 1999", "Friday, December 3, 1999", "Friday, 3 December 1999"),
        *("03 December 1999", "Dec 3, 1999", "3 Dec 1999", "Fri, Dec 3, 1999", "Fri, 3 Dec 1999", "3-Dec-1999"),
        *("1999-12-03", "1999/12/03", "12/3/1999", "12/03/1999", "December 3rd, 1999", "December third, 1999"),
        *("the 3rd of December 1999", "the third of December 1999", "the third of December nineteen ninety-nine"),
    ]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("price", ("EUR", 2500), {"€25", "25 euros", "twenty-five euros"}),
        ("price", ("USD", 123_450), {"$1,234.50", "1,234.50 US dollars"}),
        ("fund", ("GBP", 250_000_000), {"£2.5 million", "2.5 million British pounds"}),
        ("mass", ("mass-kilogram", 10), {"1 kilogram", "1 kg", "one kilogram"}),
        ("share", ("concentr-percent", 125), {"12.5 percent", "12.5%"}),
        ("temperature", ("temperature-celsius", 210), {"21 degrees Celsius", "21°C", "twenty-one degrees Celsius"}),
        ("person", ("Anna", "Keller"), {"Anna Keller", "A. Keller"}),
        ("person", ("Dr.", "Keller"), {"Dr. Keller"}),
        ("person", ("Anna",), {"Anna"}),
        ("month", (1999, 3), {"March 1999", "Mar 1999"}),
        ("year", 1999, {"1999"}),
    ],
)
def test_values_in_all_their_styles(kind, value, expected):
    rng = Sampler("styles")
    assert {write_value(kind, value, rng) for _ in range(60)} == expected


def test_who_shares_a_writing_shares_a_split():
    assert value_split("person", ("Anna", "Keller")) == value_split("person", ("Alice", "Keller"))
    assert value_split("person", ("Dr.", "Keller")) == value_split("person", ("Professor", "Keller"))
    shares = Counter(value_split("day", date.fromordinal(700_000 + n)) for n in range(20_000))
    assert [round(shares[split] / 20_000, 2) for split in SPLITS] == [0.80, 0.10, 0.10]


def test_an_article_or_a_title_is_no_part_of_the_entity():
    values = {"place": _Value("country", "", "the Netherlands"), "person": _Value("person", "", "Dr. Keller")}
    text, spans = _fill("{place} is where {person} lives.", values)
    assert text == "The Netherlands is where Dr. Keller lives."
    assert {slot: text[a:b] for slot, (a, b) in spans.items()} == {"place": "Netherlands", "person": "Keller"}


# The table of events.
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.wordings[0])
def test_events_are_sound(event):
    def slots(text):
        return sorted(slot for _, slot, *_ in Formatter().parse(text) if slot)

    assert len(event.wordings) >= 3 and len(set(event.wordings)) == len(event.wordings)
    for wording in event.wordings:
        assert slots(wording) == slots(event.wordings[0]) and wording.endswith(".")
    for slot, question in event.questions:
        assert slot in slots(event.wordings[0]) and slot not in slots(question)
        assert slots(question) and set(slots(question)) <= set(slots(event.wordings[0])) and question.endswith("?")
    for slot in slots(event.wordings[0]):
        assert (kind := slot.rstrip("2")) in THINGS or kind in LABEL_OF or kind == "place"


def test_there_is_variety():
    questions_of = [question for event in EVENTS for _, question in event.questions]
    assert sum(len(event.wordings) for event in EVENTS) >= 75 and len(PLAIN) >= 20
    assert len(set(questions_of)) == len(questions_of)  # no event answers the question of another
    with_article = re.findall(r"\b[Aa] {(\w+)}", " ".join(w for event in EVENTS for w in event.wordings))
    assert with_article and not [name for slot in with_article for name in THINGS[slot] if name[0] in "aeiou"]


# Tagging.
def test_entities_hit_their_words(tags):
    dates = 0
    for example in (example for examples in tags.values() for example in examples):
        assert " ".join(example.text.split()) == example.text and "{" not in example.text
        assert example.text[0].isupper() or example.text[0].isdigit() or not example.text[0].isalpha()
        end = 0
        for entity in example.entities:
            word = example.text[entity.start : entity.end]
            assert end <= entity.start < entity.end <= len(example.text) and entity.label in LABELS
            assert word == word.strip() and not word.startswith(("the ", "Dr. ", "Professor "))
            assert not example.text[entity.start - 1 : entity.start].isalnum()
            assert not example.text[entity.end : entity.end + 1].isalnum()
            if entity.label == "AMOUNT":
                assert re.search(r"\d|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|teen|ty", word)
            if entity.label == "DATE" and re.fullmatch(r"\w+ \d+, \d+", word):
                datetime.strptime(word, "%B %d, %Y" if len(word.split()[0]) > 3 else "%b %d, %Y")
                dates += 1
            end = entity.end
    assert dates > 30


def test_what_is_not_tagged_has_no_digits_but_those_of_plain_sentences(tags):
    for example in tags["train"]:
        rest = example.text
        for entity in reversed(example.entities):
            rest = rest[: entity.start] + rest[entity.end :]
        for sentence in PLAIN:
            rest = rest.replace(sentence, "")
        assert not re.search(r"\d", rest)


def test_every_label_two_of_a_kind_and_none(tags):
    counts = Counter(entity.label for example in tags["train"] for entity in example.entities)
    assert set(counts) == set(LABELS) and min(counts.values()) > 0.1 * counts.total()
    assert 0.08 < sum(not example.entities for example in tags["train"]) / len(tags["train"]) < 0.18
    assert sum(len({e.label for e in x.entities}) < len(x.entities) for x in tags["train"]) > 500


def test_no_entity_of_one_split_occurs_in_another(tags):
    found = {split: surfaces(examples) for split, examples in tags.items()}
    assert len(found["test"]) > 1000
    for one, other in (("train", "valid"), ("train", "test"), ("valid", "test")):
        assert not found[one] & found[other]


# Questions.
def test_answers_are_where_they_are_said_to_be(asked):
    for question in asked:
        if question.answer is not None:
            end = question.start + len(question.answer)
            assert question.passage[question.start : end] == question.answer
            assert question.answer not in question.question
    assert 0.17 < sum(question.answer is None for question in asked) / len(asked) < 0.23
    assert any(question.start == 0 for question in asked)


@cache
def _patterns():
    """Every wording and question as a regular expression with its slots: an independent reader."""
    kinds = {slot: "|".join(map(re.escape, names)) for slot, names in THINGS.items()}
    kinds["price"] = r"(?:[A-Z]*[^\w\s]?\d|(?-i:[a-z])).*?"  # no name begins like this
    kinds["day"] = kinds["day2"] = ".+?"  # nothing else may have a comma

    def compiled(text):
        parts = [
            re.escape(literal) + (f"(?P<{slot}>{kinds.get(slot, '(?:(?!, ).)+?')})" if slot else "")
            for literal, slot, *_ in Formatter().parse(text)
        ]
        return re.compile("".join(parts), re.IGNORECASE)

    return [
        ([compiled(wording) for wording in event.wordings], [(slot, compiled(q)) for slot, q in event.questions])
        for event in EVENTS
    ]


def _strip(text: str) -> str:
    return re.sub(r"^(the|Dr\.|Professor) ", "", text, flags=re.IGNORECASE)


def test_an_independent_reader_finds_the_same_one_answer(asked):
    """Match the question against all questions, then every sentence against that event's wordings."""
    for question in asked:
        answers = set()
        sentences = re.split(r"(?<!Dr)(?<! [A-Z])(?<!^[A-Z])\. (?=[A-Z])|\.$", question.passage)
        for wordings, asks in _patterns():
            for slot, ask in asks:
                if not (meant := ask.fullmatch(question.question)):
                    continue
                for sentence in sentences:
                    for wording in wordings:
                        told = wording.fullmatch(f"{sentence}.")
                        if told and all(told[key].lower() == value.lower() for key, value in meant.groupdict().items()):
                            answers.add(_strip(told[slot]))
        assert answers == ({question.answer} if question.answer is not None else set()), question


def test_passages_have_one_to_four_sentences_and_hard_distractors(asked):
    lengths = Counter(len(re.findall(r"\.(?= [A-Z]|$)", re.sub(r"\b(Dr|[A-Z])\.", "", q.passage))) for q in asked)
    assert set(lengths) <= {1, 2, 3, 4} and min(lengths.values()) > 0.1 * len(asked)
    births = [q for q in asked if q.question.startswith("Where was") and q.question.endswith("born?")]
    assert any(len(re.findall("born|came into the world", q.passage)) > 1 for q in births)


def test_unanswerable_questions_often_name_somebody_of_the_passage(asked):
    names = [(set(re.findall(r"[A-Z]\w+ [A-Z]\w+", q.question[4:])), q.passage) for q in asked if q.answer is None]
    named = [any(name in passage for name in found) for found, passage in names if found]
    assert 0.15 < sum(named) / len(named) < 0.85


# Paraphrases.
def test_scores_mean_what_they_say(similar):
    counts = Counter()
    for pair in similar:
        events = [_event_of(text) for text in (pair.a, pair.b)]
        counts["same" if pair.score == 1 else "unrelated" if pair.score == 0 else "partly"] += 1
        if pair.score == 0:
            assert events[0] is not events[1]
        else:
            assert events[0] is events[1] and 0.5 <= pair.score <= 1
            assert pair.a != pair.b
    assert 0.35 < counts["same"] / len(similar) < 0.45 and 0.2 < counts["unrelated"] / len(similar) < 0.3


def _event_of(text: str):
    found = {id(wordings): wordings for wordings, _ in _patterns() if any(w.fullmatch(text) for w in wordings)}
    assert len(found) == 1, text
    return next(iter(found.values()))


def test_partly_the_same_counts_the_values_that_agree(similar):
    scores = {round(pair.score, 3) for pair in similar}
    for slots in (3, 4):
        assert {round(0.5 + 0.5 * agree / slots, 3) for agree in range(slots + 1)} <= scores


# Streams.
@pytest.mark.parametrize("stream", [tagged, questions, paraphrases])
def test_streams_have_random_access_and_differ_by_seed(stream):
    whole = stream("train", 40, seed=5)
    assert stream("train", 10, 30, seed=5) == whole[30:] and stream("train", 0) == []
    assert stream("train", 40, seed=6) != whole and stream("test", 40, seed=5) != whole
    with pytest.raises(ValueError, match="did you mean 'valid'"):
        stream("vallid", 1)
    with pytest.raises(ValueError, match="count=-1"):
        stream("train", -1)


def test_streams_are_the_same_in_another_process_and_need_no_torch():
    code = (
        "import hashlib, sys; from regard.data.generated.facts import tagged, questions, paraphrases\n"
        "text = repr([make(split, 50) for make in (tagged, questions, paraphrases) for split in ('train', 'test')])\n"
        "assert 'torch' not in sys.modules\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "123", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    here = repr([make(split, 50) for make in (tagged, questions, paraphrases) for split in ("train", "test")])
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest(), done.stderr


def test_every_kind_has_values_in_every_split():
    for kind in LABEL_OF:
        for split in SPLITS:
            rng = Sampler(f"{kind} {split}")
            values = {sample_value(kind, split, rng) for _ in range(30)}
            assert len(values) > 8 and {value_split(kind, value) for value in values} == {split}


def test_questions_are_examples():
    assert isinstance(questions("test", 1)[0], Question)
