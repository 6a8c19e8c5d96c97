"""How the engine reaches a model: here as a program over pages; `stateful.py` is for models that are none."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.pages import Tables
from regard.decode.requests import Job
from regard.decode.sample import best_tokens
from regard.native import compiled as native
from regard.native.compiled import Compiled
from regard.native.plain import Plain
from regard.native.program import Batch, Unsupported
from regard.native.record import record_decoder, record_encoder
from regard.nn.positions import Learned

Plan = Sequence[tuple[Job, int]]
"""Jobs, and how many pending tokens of each of their sequences are read."""
LONGEST = 4096
"""Positions planned for where a model has no limit of its own."""


@runtime_checkable
class Runner(Protocol):
    """Reads tokens for jobs. Sequences are known by their slots."""

    pages: int
    """How many it has room for."""
    max_positions: int
    paged: bool
    """Whether sequences live in pages, which can be shared; and several tokens of one get scores in one run."""

    def run(self, plan: Plan, tables: Tables) -> Float[Tensor, "W V"]:
        """Scores behind the last token of each sequence that has read all, and behind each of its guesses; they are
        good until the next run."""

    def encode(self, jobs: Sequence[Job], tables: Tables) -> None:
        """Reads the sources of jobs."""

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copies the content of pages to others."""

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None:
        """Each target goes on from its origin."""

    def drop(self, slots: Sequence[int]) -> None:
        """Forgets sequences."""

    def recall(self, job: Job) -> int:
        """Behind how many of the job's named pages it remembers the state, from which the job then goes on."""

    def best(
        self, scores: Float[Tensor, "W V"], count: int, forbidden: Sequence[int]
    ) -> tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]: ...


class Paged:
    """A model as a program, its keys and values in a pool of pages."""

    paged = True

    def __init__(self, model: Any, *, memory: int, page: int, threads: int | None, fast: bool | None) -> None:
        parts = model.parts()
        self.max_positions = max(LONGEST, model.config.max_len)
        for stack in (parts.stack, *([parts.source[1]] if parts.source else [])):
            if isinstance(stack.position, Learned):
                self.max_positions = min(self.max_positions, stack.position.max_len)
        attention = parts.stack.blocks[0].attention
        shape = (len(parts.stack.blocks), -1, 2, attention.kv_heads, page, attention.head_dim)
        like = parts.stack.blocks[0].norms["attention"].weight
        page_bytes = abs(int(np.prod(shape))) * like.element_size()
        self.pages = max(1, memory // page_bytes)
        # Not touched before it is used: what is never needed costs nothing.
        self.pool = torch.empty(shape[0], self.pages, *shape[2:], dtype=like.dtype, device=like.device)
        self.fast = native.available() if fast is None else fast
        if like.dtype != torch.float32 or like.device.type != "cpu":
            if fast:
                raise Unsupported(f"they work in float32 on the CPU, the model in {like.dtype} on {like.device}")
            self.fast = False
        self.threads = threads
        programs = [record_decoder(parts, self.max_positions)]
        if parts.source:
            programs.append(record_encoder(parts, self.max_positions))
        self.decoder, *self.encoders = [
            Compiled(program, self.pool, threads=threads) if self.fast else Plain(program, self.pool)
            for program in programs
        ]

    def run(self, plan: Plan, tables: Tables) -> Float[Tensor, "W V"]:
        ids: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wanted: list[int] = []
        for job, count in plan:
            scored = 1 + len(job.guesses) if count == len(job.pending[0]) else 0
            for slot, pending in zip(job.slots, job.pending, strict=False):
                ids += pending[:count]
                positions += range(job.computed, job.computed + count)
                sequences += [slot] * count
                wanted += range(len(ids) - scored, len(ids))
        scores = self.decoder.run(batch_of(tables, ids, positions, sequences, wanted))
        assert scores is not None
        return scores

    def encode(self, jobs: Sequence[Job], tables: Tables) -> None:
        sources = [job.request.source or () for job in jobs]
        ids = [id for source in sources for id in source]
        positions = [position for source in sources for position in range(len(source))]
        sequences = [job.slots[0] for job, source in zip(jobs, sources, strict=True) for _ in source]
        self.encoders[0].run(batch_of(tables, ids, positions, sequences, []))

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        if pages:
            olds, news = torch.tensor(pages, device=self.pool.device).T
            self.pool[:, news] = self.pool[:, olds]

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None: ...

    def drop(self, slots: Sequence[int]) -> None: ...

    def recall(self, job: Job) -> int:
        return 0

    def best(
        self, scores: Float[Tensor, "W V"], count: int, forbidden: Sequence[int]
    ) -> tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]:
        if not self.fast:
            return plain_best(scores, count, forbidden)
        count = min(count, scores.shape[1] - len(set(forbidden)))
        ids, log_probs = native.best(scores, count, np.array(forbidden, dtype=np.int32), self.threads)
        return torch.from_numpy(ids).long(), torch.from_numpy(log_probs)


def batch_of(tables: Tables, ids: list[int], positions: list[int], sequences: list[int], wanted: list[int]) -> Batch:
    arrays = (np.array(numbers, dtype=np.int32) for numbers in (ids, positions, sequences, wanted))
    names = ("ids", "positions", "sequences", "wanted")
    return Batch(
        **dict(zip(names, arrays, strict=True)), tables=tables.own, source_tables=tables.source,
        source_lengths=tables.source_lengths,
    )  # fmt: skip


def plain_best(
    scores: Float[Tensor, "W V"], count: int, forbidden: Sequence[int]
) -> tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]:
    log_probs = scores.log_softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    log_probs[:, list(forbidden)] = -torch.inf
    values, ids = best_tokens(log_probs, count)
    return ids, values
