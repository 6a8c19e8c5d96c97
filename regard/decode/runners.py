"""Runners: how the engine runs a model. Here as a compiled program over pages; `stateful.py` has the general one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.pages import Tables
from regard.decode.requests import Job, Request
from regard.decode.sample import best_tokens
from regard.native import compiled as native
from regard.native.compiled import Compiled
from regard.native.plain import Plain
from regard.native.program import Batch, Unsupported
from regard.native.record import record_decoder, record_encoder
from regard.nn.kernels import Normalized
from regard.nn.stack import Encoder, Parts

Plan = Sequence[tuple[Job, int]]
"""Jobs, and the number of pending tokens that each of their sequences reads."""
LONGEST = 4096
"""Positions of the page tables where a model has no limit of its own."""


class Runner:
    """Runs a model on the tokens of jobs. Sequences are identified by their slots."""

    pages: int
    """Pages that fit into its memory."""
    max_positions: int
    longest_source: int
    """Most positions of an encoded input."""
    paged: bool
    """Whether keys and values live in shared pages, and one run gives logits for several tokens of a sequence."""

    def source_length(self, request: Request) -> int:
        """Return the positions that the encoded inputs of a request take."""
        return request.source_length

    def run(self, plan: Plan, tables: Tables) -> Float[Tensor, "W V"]:
        """Return the logits after the last token of each sequence that has read all, and after each of its guesses;
        valid until the next run."""
        raise NotImplementedError

    def encode(self, jobs: Sequence[Job], tables: Tables) -> None:
        """Encode the sources of jobs into their pages."""

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        """Copy the content of pages: (from, to) pairs."""

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None:
        """Make each target slot continue from its origin's state."""

    def drop(self, slots: Sequence[int]) -> None:
        """Forget the sequences of these slots."""

    def recall(self, job: Job) -> int:
        """Restore a stored state for the prefix of a job; return how many of its pages that covers."""
        return 0

    def best(
        self, logits: Float[Tensor, "W V"], count: int, forbidden: Sequence[int]
    ) -> tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]:
        """Return the `count` most probable tokens of each row and their log-probabilities."""
        log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        log_probs[:, list(forbidden)] = -torch.inf
        values, ids = best_tokens(log_probs, count)
        return ids, values


class Paged(Runner):
    """Runs a model as a recorded program, with keys and values in a pool of pages."""

    paged = True

    def __init__(
        self, model: Any, parts: Parts, *, memory: int, page: int, threads: int | None, fast: bool | None
    ) -> None:
        self.max_positions = max(LONGEST, model.config.max_len)
        for stack in (parts.stack, *([parts.source[1]] if parts.source else [])):
            if stack.position.limit is not None:
                self.max_positions = min(self.max_positions, stack.position.limit)
        self.blocks: list[Any] = list(parts.stack.blocks)
        self.longest_source = parts.encoder.longest if parts.encoder else self.max_positions
        self.encoder, block = parts.encoder, self.blocks[0]
        attention = block.attention
        shape = (len(parts.stack.blocks), -1, 2, attention.kv_heads, page, attention.head_dim)
        tensors = [*parts.stack.parameters(), *parts.stack.buffers()]  # of quantised layers, the scales
        floats = [tensor for tensor in tensors if tensor.is_floating_point()]
        like = max(floats, key=lambda tensor: tensor.element_size())
        page_bytes = abs(int(np.prod(shape))) * like.element_size()
        self.pages = max(1, memory // page_bytes)
        # Uninitialised: memory that is never used is never allocated by the operating system.
        self.pool = torch.empty(shape[0], self.pages, *shape[2:], dtype=like.dtype, device=like.device)
        self.fast = native.available() if fast is None else fast
        other = next((tensor for tensor in floats if tensor.dtype != torch.float32 or not tensor.is_cpu), None)
        if other is not None:
            if fast:
                raise Unsupported(f"they need float32 on the CPU, the model has {other.dtype} on {other.device}")
            self.fast = False
        self.threads = threads
        programs = [record_decoder(parts, self.max_positions)]
        if parts.source:
            programs.append(record_encoder(parts, self.max_positions))
        if parts.encoder and isinstance(block.cross.kernel, Normalized):
            raise Unsupported("normalised keys of an encoder of other inputs than tokens")
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
        logits = self.decoder.run(batch_of(tables, ids, positions, sequences, wanted))
        assert logits is not None
        return logits

    def source_length(self, request: Request) -> int:
        return self.encoder.length(request.inputs) if self.encoder else request.source_length

    def encode(self, jobs: Sequence[Job], tables: Tables) -> None:
        if self.encoder is not None:
            return self.encode_inputs(jobs, self.encoder)
        sources = [source.tolist() for job in jobs for source in job.request.sequences.values()]
        ids = [id for source in sources for id in source]
        positions = [position for source in sources for position in range(len(source))]
        sequences = [job.slots[0] for job, source in zip(jobs, sources, strict=True) for _ in source]
        self.encoders[0].run(batch_of(tables, ids, positions, sequences, []))

    def encode_inputs(self, jobs: Sequence[Job], encoder: Encoder) -> None:
        """Encode inputs that are no tokens, and write their keys and values for every layer into the jobs' pages."""
        for job in jobs:  # one by one: an input alone keeps all cores at work, and its shape may be its own
            inputs = {name: values[None].to(self.pool) for name, values in job.request.inputs.items()}
            memory = encoder.encode(**inputs)[0]
            count, size = len(job.source), self.pool.shape[4]
            pages = torch.tensor(job.source, device=self.pool.device)
            for layer, block in enumerate(self.blocks):
                both = F.pad(block.cross.key_value(memory), (0, 0, 0, count * size - len(memory)))  # S 2·G·K
                both = both.view(count, size, 2, -1, self.pool.shape[5])  # N P 2 G K
                self.pool[layer].index_copy_(0, pages, both.permute(0, 2, 3, 1, 4))

    def copy(self, pages: Sequence[tuple[int, int]]) -> None:
        if pages:
            olds, news = torch.tensor(pages, device=self.pool.device).T
            self.pool[:, news] = self.pool[:, olds]

    def best(
        self, logits: Float[Tensor, "W V"], count: int, forbidden: Sequence[int]
    ) -> tuple[Int[Tensor, "W C"], Float[Tensor, "W C"]]:
        if not self.fast:
            return super().best(logits, count, forbidden)
        count = min(count, logits.shape[1] - len(set(forbidden)))
        ids, log_probs = native.best(logits, count, np.array(forbidden, dtype=np.int32), self.threads)
        return torch.from_numpy(ids).long(), torch.from_numpy(log_probs)


def batch_of(tables: Tables, ids: list[int], positions: list[int], sequences: list[int], wanted: list[int]) -> Batch:
    """Return a program's input: lists as arrays, and the page tables."""
    arrays = [np.array(numbers, dtype=np.int32) for numbers in (ids, positions, sequences, wanted)]
    return Batch(arrays[0], arrays[1], arrays[2], arrays[3], tables.own, tables.source, tables.source_lengths)
