"""Models that are no programs: the engine reaches them through their own `prefill` and `step`.

Sequences that begin together share one cache of the model's and take their steps together, as rows of a batch.
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

from regard.data.sets.batches import pad
from regard.decode.pages import Tables
from regard.decode.requests import Job
from regard.decode.runners import LONGEST, Paged, Plan, Runner, plain_best
from regard.native.program import Unsupported
from regard.nn.positions import Learned


def build_runner(model: Any, *, memory: int, page: int, threads: int | None, fast: bool | None) -> Runner:
    """A program where the model is one, compiled where it can be or as `fast` says; otherwise the model itself."""
    try:
        if not hasattr(model, "parts"):
            raise Unsupported(f"{type(model).__name__} is no stack of attention layers")
        return Paged(model, memory=memory, page=page, threads=threads, fast=fast)
    except Unsupported as why:
        if fast:
            raise ValueError(f"no compiled kernels for this model: {why}") from why
        return Stateful(model, memory=memory, page=page)


@dataclass(slots=True, eq=False)
class Group:
    """Sequences in one cache. What leaves and what is reordered is put off until the next step."""

    cache: Any
    jobs: list[Job]
    slots: list[int]
    rows: list[int]
    """The row of the cache that each slot goes on from."""
    sources: dict[Job, list[int]] = field(default_factory=dict)
    """The rows of the cache's source that belong to each job."""
    moved: bool = False

    def settle(self) -> None:
        """Brings the cache into the order of the slots."""
        if self.moved:
            sources = [row for job in self.jobs for row in self.sources.get(job, [])]
            self.cache.select(torch.tensor(self.rows), sources=torch.tensor(sources) if sources else None)
            numbers = iter(range(len(sources)))
            self.sources = {job: [next(numbers) for _ in self.sources[job]] for job in self.jobs if job in self.sources}
            self.rows, self.moved = list(range(len(self.slots))), False


class Stateful:
    """Any model with `prefill` and `step`. Pages are counted as for other models, but hold nothing."""

    paged = False
    SNAPSHOTS = 64

    def __init__(self, model: Any, *, memory: int, page: int) -> None:
        self.model, self.page = model, page
        self.max_positions = max(LONGEST, model.config.max_len)
        position = getattr(model.parts().stack, "position", None) if hasattr(model, "parts") else None
        if isinstance(position, Learned):
            self.max_positions = position.max_len
        # What a position would cost as keys and values in float32; a state of constant size costs less.
        width = getattr(model.config, "dim", 512) * getattr(model.config, "depth", 1)
        self.pages = max(1, memory // (page * 2 * 4 * width))
        self.device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
        self.homes: dict[int, Group] = {}
        self.constant = getattr(model.new_cache(1), "constant", False)
        self.snapshots: OrderedDict[bytes, Any] = OrderedDict()  # of states of constant size, the latest last

    def run(self, plan: Plan, tables: Tables) -> Float[Tensor, "W V"]:
        scores: dict[int, Tensor] = {}
        starting: dict[tuple[Any, ...], list[Job]] = defaultdict(list)
        going = {id(group): group for group in self.homes.values()}
        for job, count in plan:
            if job.slots[0] not in self.homes:
                shape = getattr(job.request.pixels, "shape", None)  # pictures of one size are one batch
                starting[len(job.pending), count, job.request.beams, shape].append(job)
        pending = {slot: ids for job, _ in plan for slot, ids in zip(job.slots, job.pending, strict=False)}
        steps = [group for group in going.values() if all(len(pending[slot]) == 1 for slot in group.slots)]
        for group in [*self.joined(steps), *(group for group in going.values() if group not in steps)]:
            found = self.read(group, [pending[slot] for slot in group.slots])
            scores |= zip(group.slots, found.split(1), strict=True)
        for jobs in starting.values():
            group = self.start(jobs)
            found = self.read(group, [pending[slot] for slot in group.slots])
            scores |= zip(group.slots, found.split(1), strict=True)
        return torch.cat([scores[slot] for slot in pending])

    def start(self, jobs: list[Job]) -> Group:
        """Jobs with equally many tokens to read, and an empty cache."""
        slots = [slot for job in jobs for slot, _ in zip(job.slots, job.pending, strict=False)]
        # Longer texts may go on from a state of constant size.
        longest = max(len(job.request.prompt) + job.request.max_len for job in jobs)
        cache = self.model.new_cache(self.max_positions if self.constant else longest)
        group = Group(cache, jobs, slots, list(range(len(slots))))
        self.homes |= dict.fromkeys(slots, group)
        return group

    def read(self, group: Group, texts: list[list[int]]) -> Float[Tensor, "B V"]:
        """The next tokens of all sequences of a group, and with the first ones their sources."""
        group.settle()
        tokens, first = torch.tensor(texts, device=self.device), group.jobs[0]
        if group.cache.length == 0 and (given := self.given(group)):
            each = len(group.slots) // len(group.jobs)
            group.sources = {job: list(range(i * each, i * each + each)) for i, job in enumerate(group.jobs)}
            return self.model.prefill(tokens, group.cache, **given)
        if tokens.shape[1] == 1 and group.cache.length:
            return self.model.step(tokens[:, 0], group.cache)
        for start, end in self.pieces(first, tokens.shape[1]):
            scores = self.model.prefill(tokens[:, start:end], group.cache)
            self.remember(group, end)
        return scores

    def given(self, group: Group) -> dict[str, Tensor]:
        """What the model reads besides the texts of a group: sources or pictures, if it does."""
        each = len(group.slots) // len(group.jobs)  # beams that waited are read again one by one
        requests = [job.request for job in group.jobs for _ in range(each)]
        found: dict[str, Tensor] = {}
        if requests[0].source is not None:
            sources = [list(request.source or ()) for request in requests]
            found = dict(source=pad(sources, 0), lengths=torch.tensor([len(source) for source in sources]))
        if requests[0].pixels is not None:
            found["pixels"] = torch.stack([request.pixels for request in requests if request.pixels is not None])
        return {name: tensor.to(self.device) for name, tensor in found.items()}

    def joined(self, groups: list[Group]) -> list[Group]:
        """States that know no position go on as one batch, whatever their lengths."""
        if len(groups) < 2 or not hasattr(groups[0].cache, "join") or groups[0].sources:
            return groups
        for group in groups:
            group.settle()
        slots = [slot for group in groups for slot in group.slots]
        cache = groups[0].cache.join([group.cache for group in groups])
        whole = Group(cache, [job for group in groups for job in group.jobs], slots, list(range(len(slots))))
        self.homes |= dict.fromkeys(slots, whole)
        return [whole]

    def pieces(self, job: Job, count: int) -> list[tuple[int, int]]:
        """Parts of the next `count` tokens, with a state to remember between them: 1, 2, 4, … pages before the end of
        what is known. One that shares all but the last n tokens then reads no more than about 2n of them."""
        back = [0, *(2**power for power in range(len(job.names).bit_length()))] if self.constant else []
        places = [(len(job.names) - pages) * self.page - job.computed for pages in back]
        cuts = [0, *sorted(place for place in places if 0 < place < count), count]
        return list(pairwise(cuts))

    def remember(self, group: Group, count: int) -> None:
        """The state behind a full page, for others that begin alike."""
        for row, job in enumerate(group.jobs if self.constant and len(group.jobs) == len(group.slots) else ()):
            place, rest = divmod(job.computed + count, self.page)
            if not rest and 0 < place <= len(job.names):
                self.snapshots[job.names[place - 1]] = alone(group.cache, row)
        while len(self.snapshots) > self.SNAPSHOTS:
            self.snapshots.popitem(last=False)

    def recall(self, job: Job) -> int:
        for count in range(len(job.names), 0, -1):
            if job.names[count - 1] in self.snapshots:
                self.snapshots.move_to_end(job.names[count - 1])
                cache = deepcopy(self.snapshots[job.names[count - 1]])
                self.homes[job.slots[0]] = Group(cache, [job], job.slots[:1], [0])
                return count
        return 0

    def encode(self, jobs: Sequence[Job], tables: Tables) -> None: ...

    def copy(self, pages: Sequence[tuple[int, int]]) -> None: ...

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
                place = group.slots.index(slot)
                del group.slots[place], group.rows[place]
                group.jobs = [job for job in group.jobs if slot not in job.slots]
                group.moved = True

    best = staticmethod(plain_best)


def alone(cache: Any, row: int) -> Any:
    """A copy of one row of a cache."""
    other = deepcopy(cache)
    other.select(torch.tensor([row]))
    return other
