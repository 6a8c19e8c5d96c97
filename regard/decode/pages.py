"""Page accounting for keys and values: reference counts, page tables, and pages found again by a hash of their content.

Nothing here touches a tensor. A page without holders keeps its content until its memory is needed, so that a later
request with the same prefix can reuse it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np


class Pages:
    """A pool of `count` pages of `size` positions each, with a reference count for every page."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.holders = np.zeros(count, dtype=np.int32)
        self.free = list(range(count - 1, -1, -1))  # last freed, first taken: it is still in the CPU's cache
        self.hashes: dict[int, bytes] = {}
        self.by_hash: dict[bytes, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()  # hashed pages without holders, least recently used first

    @property
    def held(self) -> int:
        return self.count - self.available

    @property
    def available(self) -> int:
        return len(self.free) + len(self.idle)

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.size)

    def take(self) -> int:
        """Return a page with one holder. The caller has checked that one is available."""
        if self.free:
            page = self.free.pop()
        else:
            page, _ = self.idle.popitem(last=False)
            self.forget(page)
        self.holders[page] = 1
        return page

    def share(self, pages: np.ndarray) -> None:
        """Add a holder to each of these pages."""
        np.add.at(self.holders, pages, 1)

    def drop(self, pages: np.ndarray) -> None:
        """Remove a holder from each; a page without holders becomes free, or idle where its content has a hash."""
        np.subtract.at(self.holders, pages, 1)
        for page in np.unique(pages[self.holders[pages] == 0]).tolist():
            if page in self.hashes:
                self.idle[page] = None
            else:
                self.free.append(page)

    def register(self, page: int, digest: bytes) -> None:
        """Record the hash of a full page's content; of equal pages, the first keeps it."""
        if digest not in self.by_hash and page not in self.hashes:
            self.by_hash[digest], self.hashes[page] = page, digest

    def forget(self, page: int) -> None:
        digest = self.hashes.pop(page, None)
        if digest is not None:
            del self.by_hash[digest]

    def find(self, hashes: Sequence[bytes]) -> list[int]:
        """Return the pages of the longest prefix of `hashes` that is still stored; the caller becomes a holder."""
        pages = []
        for digest in hashes:
            if digest not in self.by_hash:
                break
            pages.append(self.by_hash[digest])
            self.idle.pop(pages[-1], None)
        self.share(np.array(pages, dtype=np.int64))
        return pages

    def clear(self) -> None:
        """Forget the content of all pages without holders."""
        while self.idle:
            page, _ = self.idle.popitem()
            self.forget(page)
            self.free.append(page)


def chain_hash(prefix: bytes, ids: Sequence[int]) -> bytes:
    """Hash token ids together with the hash of everything before them."""
    return blake2b(np.asarray(ids, dtype=np.int64).tobytes() + prefix, digest_size=16).digest()


def page_hashes(ids: Sequence[int], size: int, prefix: bytes = b"") -> list[bytes]:
    """Return a hash for each full page of a sequence; it covers all tokens up to the end of that page."""
    hashes = []
    for first in range(0, len(ids) - size + 1, size):
        prefix = chain_hash(prefix, ids[first : first + size])
        hashes.append(prefix)
    return hashes


class Tables:
    """The pages of each sequence, in order; a sequence is a row (`slot`) of the tables."""

    def __init__(self, pages: Pages, slots: int, longest: int, longest_source: int | None = None) -> None:
        self.pages = pages
        self.own = np.zeros((slots, pages.pages_for(longest)), dtype=np.int32)
        self.counts = np.zeros(slots, dtype=np.int32)
        self.source = np.zeros((slots, pages.pages_for(longest_source or longest)), dtype=np.int32)
        self.source_lengths = np.zeros(slots, dtype=np.int32)

    def hold(self, slot: int, pages: Sequence[int]) -> None:
        """Start a sequence with pages that it already counts as a holder of."""
        self.own[slot, : len(pages)] = pages
        self.counts[slot] = len(pages)

    def extend(self, slots: Sequence[int], start: int, end: int, copies: list[tuple[int, int]]) -> bool:
        """Provide pages for positions start … end of each slot; False where too few are available. A shared page is
        never written to: (page, new copy) is appended to `copies`, to be copied before the next run."""
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
            for index in range(count, last):
                if not self.pages.available:
                    return False
                self.own[slot, index] = self.pages.take()
                self.counts[slot] = index + 1
        return True

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None:
        """Make each target continue from its origin: it holds the origin's pages and drops its own."""
        before = self.held(targets)
        self.own[targets], self.counts[targets] = self.own[origins], self.counts[origins]
        self.pages.share(self.held(targets))
        self.pages.drop(before)

    def release(self, slots: Sequence[int]) -> None:
        self.pages.drop(self.held(slots))
        self.counts[slots] = 0

    def held(self, slots: Sequence[int]) -> np.ndarray:
        """Return all pages held by these slots, slot after slot."""
        rows = self.own[slots]
        return rows[np.arange(rows.shape[1]) < self.counts[slots][:, None]]
