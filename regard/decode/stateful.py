"""The runner for any other model: recurrent ones, restricted or linear attention, your own kernel.

It calls the model's `prefill` and `step`. Sequences that start together share one cache, as rows of a batch.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.decode.pages import Tables
from regard.decode.requests import Job
from regard.decode.runners import LONGEST, Paged, Plan, Runner
from regard.models.base import parts_of
from regard.native.program import Unsupported


def build_runner(model: Any, *, memory: int, page: int, threads: int | None, fast: bool | None) -> Runner:
    """Return a `Paged` runner where the model can be recorded as a program, otherwise a `Stateful` one."""
    try:
        parts = parts_of(model)
        if parts is None:
            raise Unsupported(f"{type(model).__name__} is not one stack of attention layers")
        return Paged(model, parts, memory=memory, page=page, threads=threads, fast=fast)
    except Unsupported as why:
        if fast:
            raise ValueError(f"no compiled kernels for this model: {why}") from why
        return Stateful(model, memory=memory, page=page)


@dataclass(slots=True, eq=False)
class Group:
    """Sequences in one cache. Removing and reordering rows is deferred to the next step."""

    cache: Any
    device: torch.device
    jobs: list[Job]
    slots: list[int]
    rows: list[int]
    """The row of the cache that each slot continues."""
    sources: dict[Job, list[int]] = field(default_factory=dict)
    """The rows of the cached inputs that belong to each job."""
    moved: bool = False

    def settle(self) -> None:
        """Reorder the cache's rows to match the slots."""
        if self.moved:
            sources = [row for job in self.jobs for row in self.sources.get(job, [])]
            rows, chosen = (torch.tensor(numbers, device=self.device) for numbers in (self.rows, sources))
            self.cache.select(rows, sources=chosen if sources else None)
            numbers = iter(range(len(sources)))
            self.sources = {job: [next(numbers) for _ in self.sources[job]] for job in self.jobs if job in self.sources}
            self.rows, self.moved = list(range(len(self.slots))), False


class Stateful(Runner):
    """Runs any model with `prefill` and `step`. Pages are accounted for as with `Paged`, but hold nothing."""

    paged = False
    SNAPSHOTS = 64

    def __init__(self, model: Any, *, memory: int, page: int) -> None:
        self.model, self.page = model, page
        self.max_positions = max(LONGEST, model.config.max_len)
        parts = parts_of(model)
        if parts is not None and parts.stack.position.limit is not None:
            self.max_positions = parts.stack.position.limit
        self.longest_source = self.max_positions
        # The size of a position's keys and values in float32; a state of constant size takes less.
        width = getattr(model.config, "dim", 512) * getattr(model.config, "depth", 1)
        self.pages = max(1, memory // (page * 2 * 4 * width))
        self.device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        self.homes: dict[int, Group] = {}
        self.constant = getattr(model.new_cache(1), "constant", False)
        self.snapshots: OrderedDict[bytes, Any] = OrderedDict()  # states of constant size, least recently used first

    def run(self, plan: Plan, tables: Tables) -> Float[Tensor, "W V"]:
        logits: dict[int, Tensor] = {}
        starting: dict[tuple[Any, ...], list[Job]] = defaultdict(list)
        going = {id(group): group for group in self.homes.values()}
        for job, count in plan:
            if job.slots[0] not in self.homes:
                inputs = job.request.inputs.values()
                shapes = tuple(values.shape for values in inputs if values.dim() != 1)  # equal ones can be stacked
                starting[len(job.pending), count, job.request.beams, shapes].append(job)
        pending = {slot: ids for job, _ in plan for slot, ids in zip(job.slots, job.pending, strict=False)}
        steps = [group for group in going.values() if all(len(pending[slot]) == 1 for slot in group.slots)]
        for group in [*self.joined(steps), *(group for group in going.values() if group not in steps)]:
            logits |= zip(group.slots, self.read(group, pending).split(1), strict=True)
        for jobs in starting.values():
            group = self.start(jobs)
            logits |= zip(group.slots, self.read(group, pending).split(1), strict=True)
        return torch.cat([logits[slot] for slot in pending])

    def start(self, jobs: list[Job]) -> Group:
        """Return a group with an empty cache for jobs that have equally many tokens to read."""
        slots = [slot for job in jobs for slot, _ in zip(job.slots, job.pending, strict=False)]
        # A longer sequence may later continue from a state of constant size.
        longest = max(len(job.request.prompt) + job.request.max_len for job in jobs)
        cache = self.model.new_cache(self.max_positions if self.constant else longest)
        group = Group(cache, self.device, jobs, slots, list(range(len(slots))))
        self.homes |= dict.fromkeys(slots, group)
        return group

    def read(self, group: Group, pending: dict[int, list[int]]) -> Float[Tensor, "B V"]:
        """Run the model on the pending tokens of a group, at first with its inputs; return the last logits."""
        group.settle()
        tokens, first = torch.tensor([pending[slot] for slot in group.slots], device=self.device), group.jobs[0]
        if group.cache.length == 0 and (inputs := self.inputs(group)):
            each = len(group.slots) // len(group.jobs)
            group.sources = {job: list(range(i * each, i * each + each)) for i, job in enumerate(group.jobs)}
            return self.model.prefill(tokens, group.cache, **inputs)
        if tokens.shape[1] == 1 and group.cache.length:
            return self.model.step(tokens[:, 0], group.cache)
        for start, end in self.pieces(first, tokens.shape[1]):
            logits = self.model.prefill(tokens[:, start:end], group.cache)
            self.remember(group, end)
        return logits

    def inputs(self, group: Group) -> dict[str, Tensor]:
        """Return the inputs of a group as batches: token sequences padded, with their `lengths`, others stacked."""
        each = len(group.slots) // len(group.jobs)  # beams that were suspended are read again one by one
        requests = [job.request for job in group.jobs for _ in range(each)]
        batch: dict[str, Tensor] = {}
        for name in requests[0].inputs:
            rows = [request.inputs[name] for request in requests]
            if rows[0].dim() == 1:
                batch |= {name: pad_sequence(rows, batch_first=True), "lengths": torch.tensor([*map(len, rows)])}
            else:
                batch[name] = torch.stack(rows)
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def joined(self, groups: list[Group]) -> list[Group]:
        """Merge groups into one batch, whatever their lengths, where states do not depend on the position."""
        if len(groups) < 2 or not hasattr(groups[0].cache, "join") or groups[0].sources:
            return groups
        for group in groups:
            group.settle()
        slots = [slot for group in groups for slot in group.slots]
        cache = groups[0].cache.join([group.cache for group in groups])
        whole = Group(
            cache, self.device, [job for group in groups for job in group.jobs], slots, list(range(len(slots)))
        )
        self.homes |= dict.fromkeys(slots, whole)
        return [whole]

    def pieces(self, job: Job, count: int) -> list[tuple[int, int]]:
        """Cut the next `count` tokens where states are to be stored: 1, 2, 4, … pages before the end of the prompt.
        A request that shares all but the last n tokens of it then reads about 2n of them at most."""
        back = [0, *(2**power for power in range(len(job.hashes).bit_length()))] if self.constant else []
        ends = [(len(job.hashes) - pages) * self.page - job.computed for pages in back]
        cuts = [0, *sorted(end for end in ends if 0 < end < count), count]
        return list(pairwise(cuts))

    def remember(self, group: Group, count: int) -> None:
        """Store the states at the end of full pages, for requests with the same prefix."""
        for row, job in enumerate(group.jobs if self.constant and len(group.jobs) == len(group.slots) else ()):
            pages, rest = divmod(job.computed + count, self.page)
            if not rest and 0 < pages <= len(job.hashes):
                alone = self.snapshots[job.hashes[pages - 1]] = deepcopy(group.cache)
                alone.select(torch.tensor([row], device=self.device))
        while len(self.snapshots) > self.SNAPSHOTS:
            self.snapshots.popitem(last=False)

    def recall(self, job: Job) -> int:
        for count in range(len(job.hashes), 0, -1):
            if job.hashes[count - 1] in self.snapshots:
                self.snapshots.move_to_end(job.hashes[count - 1])
                cache = deepcopy(self.snapshots[job.hashes[count - 1]])
                self.homes[job.slots[0]] = Group(cache, self.device, [job], job.slots[:1], [0])
                return count
        return 0

    def fork(self, origins: Sequence[int], targets: Sequence[int]) -> None:
        origin = dict(zip(targets, origins, strict=True))
        for group in {id(group): group for group in map(self.homes.__getitem__, origins)}.values():
            before = dict(zip(group.slots, group.rows, strict=True))
            slots = [slot for job in group.jobs for slot in job.slots if origin.get(slot, slot) in before]
            group.slots, group.rows = slots, [before[origin.get(slot, slot)] for slot in slots]
            group.moved = True
            self.homes |= dict.fromkeys(slots, group)

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            group = self.homes.pop(slot, None)
            if group is not None:
                index = group.slots.index(slot)
                del group.slots[index], group.rows[index]
                group.jobs = [job for job in group.jobs if slot not in job.slots]
                group.moved = True
