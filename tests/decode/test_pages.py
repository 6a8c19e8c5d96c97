"""Whatever happens to sequences: a page has as many holders as there are tables that name it, and none is lost."""

from collections import Counter

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from regard.decode.pages import Pages, Tables, chain_hash, page_hashes

SLOTS, LONGEST = 5, 12
slots = st.integers(0, SLOTS - 1)


class Life(RuleBasedStateMachine):
    """Sequences of tokens 0 and 1 begin, grow, fork and end. `written` is what each page should hold."""

    def __init__(self):
        super().__init__()
        self.pages = Pages(7, 2)
        self.tables = Tables(self.pages, SLOTS, LONGEST)
        self.texts: list[list[int]] = [[] for _ in range(SLOTS)]
        self.written: dict[int, list[int]] = {}
        self.loose: list[int] = []

    def pages_of(self, slot):
        return self.tables.own[slot, : self.tables.counts[slot]].tolist()

    @rule(slot=slots, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=5))
    def grow(self, slot, tokens):
        """Some tokens more, or not enough pages: then the sequence ends."""
        text, copies = self.texts[slot], []
        end = len(text) + len(tokens)
        if end > LONGEST:
            return
        if not self.tables.extend([slot], len(text), end, copies):
            assert self.pages.available == 0
            self.tables.release([slot])
            self.texts[slot] = []
            return
        for old, new in copies:
            self.written[new] = list(self.written[old])
        for position, token in enumerate(tokens, start=len(text)):
            page = self.pages_of(slot)[position // 2]
            assert self.pages.holders[page] == 1, "what others read is not written into"
            self.written[page] = [*self.written.get(page, [])[: position % 2], token]
            text.append(token)
        for place, name in enumerate(page_hashes(text, 2)):
            self.pages.register(self.pages_of(slot)[place], name)

    @rule(slot=slots, tokens=st.lists(st.integers(0, 1), max_size=LONGEST))
    def begin(self, slot, tokens):
        """As something that was there before, if it still is."""
        self.tables.release([slot])
        known = self.pages.find(page_hashes(tokens, 2))
        self.tables.hold(slot, known)
        self.texts[slot] = tokens[: 2 * len(known)]

    @rule(moves=st.dictionaries(slots, slots, min_size=1))
    def fork(self, moves):
        """Some go on from others, even around a circle."""
        targets, origins = list(moves), list(moves.values())
        self.tables.fork(origins, targets)
        texts = [list(self.texts[origin]) for origin in origins]
        for target, text in zip(targets, texts, strict=True):
            self.texts[target] = text

    @rule(chosen=st.sets(slots))
    def release(self, chosen):
        self.tables.release(sorted(chosen))
        for slot in chosen:
            self.texts[slot] = []

    @precondition(lambda self: self.pages.available)
    @rule()
    def take(self):
        """Without a table, as for a source."""
        self.loose.append(self.pages.take())
        self.written.pop(self.loose[-1], None)

    @rule()
    def drop(self):
        self.pages.drop(np.array(self.loose, dtype=np.int64))
        self.loose = []

    @rule()
    def clear(self):
        self.pages.clear()
        assert not self.pages.idle

    @invariant()
    def holders_are_counted(self):
        counts = Counter(page for slot in range(SLOTS) for page in self.pages_of(slot)) + Counter(self.loose)
        assert self.pages.holders.tolist() == [counts[page] for page in range(self.pages.count)]

    @invariant()
    def no_page_is_lost(self):
        pages = self.pages
        held = {page for page in range(pages.count) if pages.holders[page]}
        assert len(pages.free) == len(set(pages.free))
        assert len(pages.free) + len(pages.idle) + len(held) == pages.count
        assert not held & set(pages.free) and not held & set(pages.idle) and not set(pages.free) & set(pages.idle)
        assert pages.held == len(held) and pages.available == len(pages.free) + len(pages.idle)

    @invariant()
    def names_are_true(self):
        pages = self.pages
        assert pages.hashes == {page: name for name, page in pages.by_hash.items()}
        assert not set(pages.free) & set(pages.hashes) and set(pages.idle) <= set(pages.hashes)

    @invariant()
    def texts_are_in_their_pages(self):
        for slot, text in enumerate(self.texts):
            pages = self.pages_of(slot)
            assert len(pages) == -(-len(text) // 2), "not a page too many"
            assert [token for page in pages for token in self.written[page]][: len(text)] == text


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestLife = Life.TestCase


def test_names_tell_all_that_stands_before():
    text = list(range(12))
    names = page_hashes(text, 4)
    assert len(names) == 3 == len(page_hashes([*text, 1, 2, 3], 4)) and names == page_hashes([*text, 1, 2, 3], 4)
    assert page_hashes(text, 4)[2] != page_hashes([5, *text[1:]], 4)[2], "a page behind another beginning"
    assert not set(names) & set(page_hashes(text, 4, prefix=b"source"))
    assert names[1] == chain_hash(names[0], text[4:8]) and page_hashes(text[:3], 4) == []
    assert page_hashes([1, 256], 2) != page_hashes([1 + 256, 0], 2)
    assert page_hashes([-1, 2], 2) != page_hashes([255, 2], 2)


def test_the_longest_unused_is_forgotten_first():
    pages = Pages(3, 1)
    names = [chain_hash(b"", [number]) for number in range(3)]
    for name in names:
        pages.register(pages.take(), name)
    pages.drop(np.array([1]))
    pages.drop(np.array([0]))
    pages.drop(np.array([2]))
    assert pages.held == 0 and pages.available == 3
    assert pages.find([names[1]]) == [1]
    assert [pages.take(), pages.take()] == [0, 2] and pages.available == 0
    assert pages.find([names[0]]) == pages.find([names[2]]) == []
    assert pages.find([names[1], names[0]]) == [1] and pages.holders.tolist() == [1, 2, 1]


def test_the_first_page_of_a_content_keeps_the_name():
    pages = Pages(3, 1)
    first, second = pages.take(), pages.take()
    pages.register(first, b"a")
    pages.register(second, b"a")
    pages.register(first, b"b")
    assert pages.by_hash == {b"a": first}
    pages.drop(np.array([second, first]))
    assert second in pages.free and first in pages.idle


def test_a_page_is_held_several_times_by_one_who_asks_for_it():
    pages = Pages(2, 1)
    page = pages.take()
    pages.share(np.array([page, page]))
    assert pages.holders[page] == 3
    pages.drop(np.array([page, page]))
    assert pages.held == 1
    pages.drop(np.array([page]))
    assert pages.held == 0 and sorted(pages.free) == [0, 1]
