"""Many processes that train one model, each its part: `torch.distributed` does the work, by its data-parallel and fully
sharded modules where they apply. Imported only where there are many, because these modules are slow to load.
"""

import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Int
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from regard.data.sets.batches import Batch
from regard.files import own_tensors
from regard.nn.cut import Piece, cut
from regard.nn.rows import batch_norm, sharing
from regard.train import processes
from regard.train.device import device_of
from regard.train.layout import Layout, describe
from regard.train.parallel import Objective, Parallel


class Step(nn.Module):
    """An objective of a model as a module, so that one call is one forward pass of all its weights."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Batch, **options: float) -> tuple[Tensor, int]:
        return self.objective(self.model, batch, **options)


class Processes(Parallel):
    """Many processes, each with some rows of a batch and, by the layout, some of the weights."""

    alone = False

    def __init__(self, model: nn.Module, objective: Objective, layout: Layout, seed: int | None = None) -> None:
        self.layout, self.chief = layout, dist.get_rank() == 0
        device = device_of(model)
        sizes = (layout.pipeline, layout.data, layout.shard, layout.tensor)
        self.mesh = init_device_mesh(device.type, sizes, mesh_dim_names=("pipeline", "data", "shard", "tensor"))
        ranks = torch.arange(dist.get_world_size()).view(sizes)
        own = [int(each) for each in (ranks == dist.get_rank()).nonzero()[0]]
        groups = [dist.new_group(ranks[..., t].flatten().tolist()) for t in range(layout.tensor)]
        self.rows = groups[own[3]]
        self.row = dist.get_rank(self.rows)
        self.divided = layout.data < dist.get_world_size()
        every = copy.deepcopy(model) if self.divided and self.chief else model
        super().__init__(every, objective, seed)
        self.original = model
        """The whole model, on the first process: what is published and scored."""
        self.pieces: dict[str, Piece] = {}
        self.numbers: list[Tensor] = []
        """The numbers that the rows of each process have within the step."""
        for module in every.modules():
            if getattr(type(module), "forward", None) is _BatchNorm.forward:  # others share rows themselves
                module.forward = partial(batch_norm, module)  # type: ignore[method-assign]
        self.shapes = {name: p.shape for name, p in every.named_parameters()}
        paces = {name: p.pace for name, p in model.named_parameters() if hasattr(p, "pace")}
        left: list[str] = []
        if layout.tensor > 1:
            self.pieces, left = cut(every, own[3], layout.tensor, self.mesh["tensor"].get_group())
            if not self.pieces:
                raise ValueError(
                    f"tensor={layout.tensor}: no layer of {type(model).__name__} can be divided; use data or shard"
                )
        self.stages: dict[str, int] = {}
        if layout.pipeline > 1:
            from regard.train.pipeline import stages

            self.stages, left = stages(every, self, own[0], layout.pipeline, self.mesh["pipeline"].get_group())
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        self.about = f"{dist.get_world_size()} processes: {describe(layout)}"
        self.about += f"; whole on each: {', '.join(left[:3])}{more}" if left else ""
        self.step: nn.Module = Step(every, objective)
        if layout.shard > 1:
            shard(self.step, self.mesh["data", "shard"] if layout.data > 1 else self.mesh["shard"])
        elif layout.data > 1 and layout.pipeline == 1:
            with warnings.catch_warnings(action="ignore"):  # of names that newer versions have for the same
                self.step = DistributedDataParallel(
                    self.step, process_group=self.rows, broadcast_buffers=False, init_sync=False,
                    find_unused_parameters=True,
                )  # fmt: skip
        self.names = {id(p): name for name, p in every.named_parameters()}
        for name, parameter in every.named_parameters():
            if name in paces:  # a copy, or a shard, has no attributes of the original
                setattr(parameter, "pace", paces[name])  # noqa: B010  a type of torch's

    def mine(self, batch: Batch) -> tuple[Batch, bool]:
        """Return this process's rows of a batch, and whether it has any: one without computes what does not count."""
        share = self.share(batch.count, self.row)
        return batch.pick(share or [0], apart=False), bool(share)

    def share(self, count: int, row: int) -> range:
        """Return the examples of one of the processes that share the rows."""
        parts = self.layout.rows
        return range(count * row // parts, count * (row + 1) // parts)

    def rows_of(self, batch: Batch, row: int) -> Int[Tensor, "B"]:
        """Return the numbers that the rows of a process have within the batch."""
        examples = torch.tensor(self.share(batch.count, row) or [0])
        return torch.cat([examples + batch.count * part for part in range(batch.rows // batch.count)])

    def loss(self, batch: Batch, *, step: int = 0, before: int = 0, **options: float) -> tuple[Tensor, int]:
        if len(every := batch.inputs) and any(not x.dim() or len(x) % batch.count for x in every.values()):
            raise ValueError("these batches cannot be divided by rows; train with one process")
        mine, own = self.mine(batch)
        if self.noise is not None and self.model.training:
            self.numbers = [self.rows_of(batch, row) + before for row in range(self.layout.rows)]
            self.noise.at(step, self.numbers[self.row])
        with sharing(self.rows, own):
            summed, count = self.step(mine.to(device_of(self.model)), **options)
        return (summed, count) if own else (summed * 0, 0)

    @contextmanager
    def rows_of_stage(self, stage: int) -> Iterator[None]:
        """Context manager: dropout is that of the rows of the process with that stage."""
        if self.noise is None or not self.model.training:
            yield
            return
        before = self.noise.rows
        self.noise.rows = self.numbers[stage * self.layout.data + self.mesh["data"].get_local_rank()]
        yield
        self.noise.rows = before

    def sum(self, *values: float | int) -> list[Any]:
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return (total / self.layout.tensor).tolist()

    def agree(self, value: Any) -> Any:
        if isinstance(value, float):
            number = torch.tensor(value, dtype=torch.float64)
            dist.broadcast(number, 0)
            return number.item()
        return processes.exchange(value)[0]

    def gradients(self, parameters: list[nn.Parameter], count: int) -> None:
        if self.stages:
            self.reduce(parameters)
        elif self.layout.shard > 1 and (whole := [p for p in parameters if not isinstance(p, DTensor)]):
            self.reduce(whole)
        averaged = isinstance(self.step, DistributedDataParallel)
        grads = [self.local(p.grad) for p in parameters if p.grad is not None]
        torch._foreach_div_(grads, count / self.layout.rows if averaged else count)

    def reduce(self, parameters: list[nn.Parameter]) -> None:
        """Sum the gradients over the processes that have the parameter, in one message for each of these groups."""
        data = self.mesh["data"].get_group()
        for group, chosen in (
            (self.rows, [p for p in parameters if self.names[id(p)] not in self.stages]),
            (data, [p for p in parameters if self.names[id(p)] in self.stages and p.numel()]),
        ):
            used = torch.tensor([p.grad is not None for p in chosen], dtype=torch.float32)
            dist.all_reduce(used, group=group)
            chosen = [p for p, some in zip(chosen, used.tolist(), strict=True) if some]
            if not chosen:
                continue
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in chosen])
            dist.all_reduce(flat, group=group)
            for p, grad in zip(chosen, flat.split([p.numel() for p in chosen]), strict=True):
                p.grad = grad.view_as(p)

    def clip(self, parameters: list[nn.Parameter], most: float) -> float:
        having = [p for p in parameters if p.grad is not None]
        grads = [self.local(p.grad) for p in having]
        norms = zip(torch._foreach_norm(grads), having, strict=True)
        nothing = torch.zeros((), dtype=torch.float64, device=device_of(self.model))
        squares = sum((norm.double().square() / self.copies(p) for norm, p in norms), nothing)
        dist.all_reduce(squares)
        norm = math.sqrt(squares.item())
        torch._foreach_mul_(grads, min(1.0, most / (norm + 1e-6)))
        return norm

    def copies(self, parameter: nn.Parameter) -> int:
        """Return on how many processes each number of a parameter is."""
        layout, name = self.layout, self.names[id(parameter)]
        copies = layout.data * (1 if isinstance(parameter, DTensor) else layout.shard)
        return copies * (1 if name in self.pieces else layout.tensor) * (1 if name in self.stages else layout.pipeline)

    def shape(self, parameter: Tensor) -> torch.Size:
        return self.shapes[self.names[id(parameter)]] if id(parameter) in self.names else parameter.shape

    def part(self, parameter: nn.Parameter, whole: Tensor) -> Tensor:
        name = self.names[id(parameter)]
        if name in self.pieces:
            whole = self.pieces[name].of(whole, self.mesh["tensor"].get_local_rank(), self.layout.tensor)
        if isinstance(parameter, DTensor):
            return distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        return whole

    def whole(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        name = self.names[id(parameter)]
        if isinstance(parameter, DTensor):  # `part` may be the tensor that is here
            place: Any = dict(shape=parameter.shape, stride=parameter.stride())
            part = DTensor.from_local(
                self.local(part), parameter.device_mesh, parameter.placements, **place
            ).full_tensor()
        if name in self.pieces:
            parts = [torch.empty_like(part) for _ in range(self.layout.tensor)]
            dist.all_gather(parts, part.contiguous(), group=self.mesh["tensor"].get_group())
            return self.pieces[name].join(parts)
        if name in self.stages:
            return self.from_stage(part, self.shapes[name], self.stages[name])
        return part

    def matrix(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        return part if self.names[id(parameter)] in self.stages else self.whole(parameter, part)

    def from_stage(self, tensor: Tensor, shape: Iterable[int], stage: int) -> Tensor:
        """Return a tensor that only the processes of one stage have."""
        group = self.mesh["pipeline"].get_group()
        own = dist.get_rank(group) == stage
        tensor = tensor.detach().contiguous() if own else tensor.new_empty(tuple(shape))
        dist.broadcast(tensor, dist.get_global_rank(group, stage), group=group)
        return tensor

    def local(self, tensor: Any) -> Tensor:
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def state(self, parameter: nn.Parameter, state: dict[str, Any]) -> dict[str, Any]:
        name = self.names[id(parameter)]
        if name in self.stages:
            stage, group = self.stages[name], self.mesh["pipeline"].get_group()
            shapes = {key: list(value.shape) for key, value in state.items()}
            shapes = processes.exchange(shapes, group)[stage]
            empty = torch.empty(0, device=parameter.device)
            return {
                key: self.from_stage(state.get(key, empty if shape == [] else parameter.detach()), shape, stage)
                for key, shape in shapes.items()
            }
        alike = {key: isinstance(value, Tensor) and value.shape == parameter.shape for key, value in state.items()}
        return {key: self.whole(parameter, value) if alike[key] else value for key, value in state.items()}

    def tensors(self) -> dict[str, Tensor]:
        self.reshard()
        tensors = own_tensors(self.model)
        return {
            name: self.whole(tensor, tensor.detach()) if id(tensor) in self.names else tensor
            for name, tensor in tensors.items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.reshard()
        with torch.no_grad():
            for name, tensor in own_tensors(self.model).items():
                if name in tensors and tensor.numel():
                    whole = tensors[name]
                    tensor.copy_(self.part(tensor, whole) if id(tensor) in self.names else whole)

    def reshard(self) -> None:
        """Give back the whole weights that an evaluation has gathered."""
        for module in self.step.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def collect(self) -> None:
        """Give the first process's whole model the weights of all."""
        if self.divided:
            tensors = self.tensors()
            if self.chief:
                Parallel(self.original, self.objective).load(tensors)

    def score(self, metrics: Callable[[], dict[str, float]]) -> dict[str, float]:
        self.collect()
        return metrics() if self.chief else {}

    def publish(self, publish: Callable[[], None]) -> None:
        self.collect()
        if self.chief:
            publish()


def shard(step: nn.Module, mesh: Any) -> None:
    """Divide all weights among processes; each block is gathered when its turn comes, the rest for the whole step."""
    for module in list(step.modules()):
        if getattr(module, "reversible", False):
            continue  # its blocks run again without their own forward pass
        blocks = getattr(module, "blocks", None)
        if isinstance(blocks, nn.ModuleList | nn.Sequential) and len({*blocks}) == len(blocks):
            for block in blocks:
                if any(True for _ in block.parameters()):
                    fully_shard(block, mesh=mesh)
    fully_shard(step, mesh=mesh, ignored_params={p for p in step.parameters() if not p.dim()})  # it refuses numbers
    for module in step.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no other
