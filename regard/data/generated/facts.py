"""Endless, seeded English sentences with dates, places, amounts and names, to tag, to ask about and to compare.

A value belongs to one split, in whatever style it is written: no entity of the test ever occurs in training.
Item i depends only on (split, seed, i). Nothing is stored, nothing is downloaded.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

from regard.data.generated.events import EVENTS, PLAIN, THINGS, Event
from regard.data.generated.phrases import Sampler, check_stream
from regard.data.generated.values import LABEL_OF, PREFIXES, sample_value, write_value
from regard.data.readers.examples import Entity, Question, Similar, Tagged


def tagged(split: str, count: int, start: int = 0, *, seed: int = 0) -> list[Tagged]:
    """One or two sentences with the entities in them; about one in eight has none."""
    return _stream(_tagged, "tagged", split, count, start, seed)


def questions(split: str, count: int, start: int = 0, *, seed: int = 0) -> list[Question]:
    """A passage of one to four sentences and a question on it; one in five is not answered there."""
    return _stream(_question, "questions", split, count, start, seed)


def summaries(split: str, count: int, start: int = 0, *, seed: int = 0) -> list[tuple[str, str]]:
    """(a passage of two to four sentences, the only one of them that states a fact, in the event's first wording)."""
    return _stream(_summary, "summaries", split, count, start, seed)


def paraphrases(split: str, count: int, start: int = 0, *, seed: int = 0) -> list[Similar]:
    """Pairs of sentences with their similarity.

    1 is the same facts in other words (40 %), 0 another kind of event with nothing in common (25 %). In between,
    the same kind of event with other values: from 0.5, where all differ, towards 1 by the share of values that agree.
    """
    return _stream(_paraphrase, "paraphrases", split, count, start, seed)


def _stream(make: Callable[..., Any], name: str, split: str, count: int, start: int, seed: int) -> list[Any]:
    check_stream(split, count, start)
    return [make(_Story(split, Sampler(f"{name} {split} {seed} {index}"))) for index in range(start, start + count)]


@dataclass(frozen=True, slots=True)
class _Value:
    kind: str
    key: Any
    text: str
    """The written form, which does not belong to the value's identity."""


@dataclass(frozen=True, slots=True)
class _Fact:
    event: Event
    values: dict[str, _Value]
    """The values by slot."""

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(self.values)


Spans = dict[str, tuple[int, int]]


class _Story:
    """A set of facts without accidentally equal values, so that every question or comparison has one answer."""

    def __init__(self, split: str, rng: Sampler) -> None:
        self.split, self.rng = split, rng
        self._taken: set[tuple[str, Any]] = set()
        # Berlin and Germany in one passage would make "Who was born in Germany?" a riddle.
        self._place = rng.of(("city", "city", "country"))

    def value(self, slot: str) -> _Value:
        kind = self._place if slot.startswith("place") else slot.rstrip("2")
        while True:
            key = self.rng.of(THINGS[kind]) if kind in THINGS else sample_value(kind, self.split, self.rng)
            # Neither two Annas nor two Kellers: either could stand alone.
            parts = {(kind, part) for part in key if f"{part} " not in PREFIXES} if kind == "person" else {(kind, key)}
            if not parts & self._taken:
                self._taken |= parts
                return self.rewritten(_Value(kind, key, str(key)))

    def rewritten(self, value: _Value) -> _Value:
        """The value, possibly written in another style."""
        return value if value.kind in THINGS else replace(value, text=write_value(value.kind, value.key, self.rng))

    def fact(self, event: Event, **fixed: _Value) -> _Fact:
        slots = [slot for _, slot, *_ in Formatter().parse(event.wordings[0]) if slot]
        values = {slot: fixed.get(slot) or self.value(slot) for slot in slots}
        if "day2" in values and values["day"].key > values["day2"].key:
            values["day"], values["day2"] = values["day2"], values["day"]
        return _Fact(event, values)

    def another(self, *events: Event) -> Event:
        return self.rng.of(tuple(event for event in EVENTS if event not in events))

    def passage(self, facts: list[_Fact | None]) -> tuple[str, list[Spans]]:
        """A sentence for each fact (for None one without facts), and the positions of the values."""
        text, positions = "", []
        for fact in facts:
            wording = self.rng.of(fact.event.wordings if fact else PLAIN)
            sentence, spans = _fill(wording, fact.values if fact else {})
            offset = len(text) + bool(text)
            text = f"{text} {sentence}" if text else sentence
            positions.append({slot: (begin + offset, end + offset) for slot, (begin, end) in spans.items()})
        return text, positions


def _fill(wording: str, values: dict[str, _Value]) -> tuple[str, Spans]:
    text, spans = "", {}
    for literal, slot, *_ in Formatter().parse(wording):
        text += literal
        if slot:
            written = values[slot].text
            prefix = next((prefix for prefix in PREFIXES if written.startswith(prefix)), "")
            spans[slot] = len(text) + len(prefix), len(text) + len(written)
            text += written
    return text[0].upper() + text[1:], spans


def _tagged(story: _Story) -> Tagged:
    rng = story.rng
    facts = [story.fact(rng.of(EVENTS)) if rng.below(6) else None for _ in range(rng.of((1, 1, 1, 2)))]
    text, positions = story.passage(facts)
    entities = [
        Entity(begin, end, LABEL_OF[fact.values[slot].kind])
        for fact, spans in zip(facts, positions, strict=True)
        for slot, (begin, end) in spans.items()
        if fact and fact.values[slot].kind in LABEL_OF
    ]
    return Tagged(text, tuple(sorted(entities, key=lambda entity: entity.start)))


def _summary(story: _Story) -> tuple[str, str]:
    fact = story.fact(story.rng.of(EVENTS))
    shuffled: list[_Fact | None] = [fact, *[None] * (1 + story.rng.below(3))]
    passage, _ = story.passage(sorted(shuffled, key=lambda _: story.rng.below(1 << 16)))
    return passage, _fill(fact.event.wordings[0], fact.values)[0]


def _question(story: _Story) -> Question:
    rng = story.rng
    length = 1 + rng.below(4)
    facts = [story.fact(rng.of(EVENTS))]
    for _ in range(rng.below(min(length, 3))):
        facts.append(_distractor(story, facts, rng.of(("twin", "same person", "other"))))
    if rng.below(5):
        fact = rng.of(tuple(facts))
    else:
        fact = _distractor(story, facts, rng.of(("twin", "same person")))
    shuffled: list[_Fact | None] = [*facts, *[None] * (length - len(facts))]
    shuffled = sorted(shuffled, key=lambda _: rng.below(1 << 16))
    passage, positions = story.passage(shuffled)
    slot, question = rng.of(fact.event.questions)
    question, _ = _fill(question, fact.values)
    if fact not in facts:
        return Question(question, passage, None, None)
    begin, end = positions[shuffled.index(fact)][slot]
    return Question(question, passage, passage[begin:end], begin)


def _distractor(story: _Story, facts: list[_Fact], relation: str) -> _Fact:
    """A fact that is easily confused with another: the same event, or the same person, elsewhere."""
    if relation == "twin":
        return story.fact(facts[0].event)
    event = story.another(*(fact.event for fact in facts))
    persons = tuple(fact.values["person"] for fact in facts if "person" in fact.values)
    return story.fact(event, **{"person": story.rng.of(persons)} if persons and relation == "same person" else {})


def _paraphrase(story: _Story) -> Similar:
    rng = story.rng
    fact = story.fact(rng.of(EVENTS))
    wording, other_wording = rng.of(fact.event.wordings), rng.of(fact.event.wordings)
    draw = rng.below(20)
    if draw < 5:
        other = story.fact(story.another(fact.event))
        other_wording, score = rng.of(other.event.wordings), 0.0
    else:
        # Which values change: none in the case of a paraphrase, else at least one.
        changed = sorted(fact.slots, key=lambda _: rng.below(1 << 16))[: draw < 12 and 1 + rng.below(len(fact.slots))]
        kept = {slot: story.rewritten(value) for slot, value in fact.values.items() if slot not in changed}
        other = story.fact(fact.event, **kept)
        while not changed and other_wording == wording:
            other_wording = rng.of(fact.event.wordings)
        agree = sum(fact.values[slot].key == other.values[slot].key for slot in fact.slots)
        score = 0.5 + 0.5 * agree / len(fact.slots)
    return Similar(_fill(wording, fact.values)[0], _fill(other_wording, other.values)[0], score)
