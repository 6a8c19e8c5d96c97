"""Who holds which page of keys and values: counted holders, and pages found again by what they hold.

Nothing here touches a tensor. A page that nobody holds keeps its content until its place is needed, so that a later
request with the same beginning finds it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np


class Pages:
    """`count` pages of `size` positions each."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.holders = np.zeros(count, dtype=np.int32)
        self.free = list(range(count - 1, -1, -1))  # the last one given back is the first one taken: it is in the cache
        self.names: dict[int, bytes] = {}
        self.found: dict[bytes, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()  # named, held by nobody, the longest unused first

    @property
    def held(self) -> int:
        return self.count - self.available

    @property
    def available(self) -> int:
        return len(self.free) + len(self.idle)

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.size)

    def take(self) -> int:
        """A page for one holder. Asked for only where one is available."""
        if self.free:
            page = self.free.pop()
        else:
            page, _ = self.idle.popitem(last=False)
            self.forget(page)
        self.holders[page] = 1
        return page

    def share(self, pages: np.ndarray) -> None:
        """One more holder for each; they have some."""
        np.add.at(self.holders, pages, 1)

    def drop(self, pages: np.ndarray) -> None:
        """One holder fewer; what nobody holds is free, or waits for someone with the same beginning."""
        np.subtract.at(self.holders, pages, 1)
        for page in np.unique(pages[self.holders[pages] == 0]).tolist():
            if page in self.names:
                self.idle[page] = None
            else:
                self.free.append(page)

    def name(self, page: int, name: bytes) -> None:
        """Says what a full page holds; the first page of that content keeps the name."""
        if name not in self.found and page not in self.names:
            self.found[name], self.names[page] = page, name

    def forget(self, page: int) -> None:
        name = self.names.pop(page, None)
        if name is not None:
            del self.found[name]

    def find(self, names: Sequence[bytes]) -> list[int]:
        """The pages of the longest beginning that is still there; the caller becomes a holder."""
        pages = []
        for name in names:
            if name not in self.found:
                break
            pages.append(self.found[name])
            self.idle.pop(pages[-1], None)
        self.share(np.array(pages, dtype=np.int64))
        return pages

    def clear(self) -> None:
        """Forgets what nobody holds."""
        while self.idle:
            page, _ = self.idle.popitem()
            self.forget(page)
            self.free.append(page)


def name_after(before: bytes, ids: Sequence[int]) -> bytes:
    """A name for some tokens behind what another name stands for."""
    return blake2b(np.asarray(ids, dtype=np.int64).tobytes() + before, digest_size=16).digest()


def names_of(ids: Sequence[int], size: int, before: bytes = b"") -> list[bytes]:
    """A name for each full page of a text; it tells all that stands before it too."""
    names = []
    for first in range(0, len(ids) - size + 1, size):
        before = name_after(before, ids[first : first + size])
        names.append(before)
    return names


class Tables:
    """Which pages each sequence holds, in order; a sequence is a row (`slot`) of the tables."""

    def __init__(self, pages: Pages, slots: int, longest: int) -> None:
        self.pages = pages
        self.own = np.zeros((slots, pages.pages_for(longest)), dtype=np.int32)
        self.counts = np.zeros(slots, dtype=np.int32)
        self.source = np.zeros_like(self.own)
        self.source_lengths = np.zeros(slots, dtype=np.int32)

    def hold(self, slot: int, pages: Sequence[int]) -> None:
        """A sequence begins with pages that it is a holder of already."""
        self.own[slot, : len(pages)] = pages
        self.counts[slot] = len(pages)

    def extend(self, slots: Sequence[int], start: int, end: int, copies: list[tuple[int, int]]) -> bool:
        """Pages for positions start … end of some sequences, or False where there are not enough. A page that others
        hold too is not written into: (it, its copy) is added to `copies`, to be copied before anything is run."""
        size, first, last = self.pages.size, start // self.pages.size, self.pages.pages_for(end)
        for slot in slots:
            count = int(self.counts[slot])
            if first < count and self.pages.holders[self.own[slot, first]] > 1:
                if not self.pages.available:
                    return False
                shared, copy = self.own[slot, first : first + 1].copy(), self.pages.take()
                self.own[slot, first] = copy
                self.pages.drop(shared)
                if start % size:
                    copies.append((int(shared[0]), copy))
            for place in range(count, last):
                if not self.pages.available:
                    return False
                self.own[slot, place] = self.pages.take()
                self.counts[slot] = place + 1
        return True

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None:
        """Each target goes on from its origin: it holds the same pages, and no longer its own."""
        before = self.held(targets)
        self.own[targets], self.counts[targets] = self.own[origins], self.counts[origins]
        self.pages.share(self.held(targets))
        self.pages.drop(before)

    def release(self, slots: Sequence[int]) -> None:
        self.pages.drop(self.held(slots))
        self.counts[slots] = 0

    def held(self, slots: Sequence[int]) -> np.ndarray:
        """All pages that some sequences hold, one after the other."""
        chosen = self.own[slots]
        return chosen[np.arange(chosen.shape[1]) < self.counts[slots][:, None]]
