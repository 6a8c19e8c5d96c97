"""Blocks spread over processes: the rows of each process pass through all stages, one process's after the other's.

Around the stack each process computes its own rows, as with data-parallel training; inside it stage s has some of the
blocks, and the rows of process m are its m-th micro-batch (GPipe: Huang et al., 2019).
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.masks import Mask, Rule
from regard.nn.rows import gather, lengths
from regard.nn.stack import Stack


def stages(model: nn.Module, processes: Any, stage: int, count: int, group: Any) -> tuple[dict[str, int], list[str]]:
    """Divide the blocks of every stack; return the stage of each parameter that only one has, and the names of the
    stacks that stay whole."""
    owners: dict[str, int] = {}
    whole: list[str] = []
    for name, stack in [(name, module) for name, module in model.named_modules() if isinstance(module, Stack)]:
        depth = len({*stack.blocks})
        if depth < len(stack.blocks) or stack.reversible or depth < count:
            whole.append(name)
            continue
        for number, block in enumerate(stack.blocks):
            owner = number * count // depth
            for each, parameter in block.named_parameters():
                if each.split(".")[-2:-1] == ["position"] or ".position." in f".{each}":
                    continue  # shared by all blocks
                owners[f"{name}.blocks.{number}.{each}"] = owner
                if owner != stage:
                    parameter.data = parameter.data.new_empty(0, *parameter.shape[1:])
        own = [block for number, block in enumerate(stack.blocks) if number * count // depth == stage]
        stack.line = Line(stack, own, processes, stage, count, group)
    if not owners:
        raise ValueError(
            f"pipeline={count}: {type(model).__name__} has no stack of at least {count} blocks of their own; "
            "use data or shard"
        )
    return owners, whole


def gathered(rule: Any, group: Any) -> list[Any]:
    """Return a mask of each process's rows, which differ in its tensors alone."""
    parts = [{} for _ in range(dist.get_world_size(group))]  # type: list[dict[str, Any]]
    for name, value in vars(rule).items():
        if name.startswith("_"):
            continue
        if isinstance(value, Tensor) and value.dim():
            values = list(gather(value, sizes := lengths(value, group), group).split(sizes))
        elif isinstance(value, Rule):
            values = gathered(value, group)
        else:
            continue
        for part, own in zip(parts, values, strict=True):
            part[name] = own
    return [rule.changed(**fields) for fields in parts]


@dataclass(frozen=True, slots=True)
class Line:
    """The stages of one stack, of which this process has one; called in place of all its blocks."""

    stack: Stack
    blocks: list[nn.Module]
    processes: Any
    stage: int
    count: int
    group: Any

    def __call__(
        self, x: Float[Tensor, "B T D"], context: Float[Tensor, "B S D"] | None, mask: Mask | None,
        context_mask: Mask | None,
    ) -> Float[Tensor, "B T D"]:  # fmt: skip
        """Return this process's rows after all blocks."""
        masks = [None] * self.count if mask is None else gathered(mask, self.group)
        context_masks = [None] * self.count if context_mask is None else gathered(context_mask, self.group)
        anchor = torch.zeros((), requires_grad=torch.is_grad_enabled(), dtype=x.dtype, device=x.device)
        return _Pass.apply(self, list(zip(masks, context_masks, strict=True)), anchor, x, context)

    def run(self, number: int, x: Tensor, context: Tensor | None, masks: tuple[Any, Any]) -> Tensor:
        """Return the rows of a process after the blocks of this stage."""
        noise, row = (
            self.processes.noise,
            number * self.processes.layout.data + self.processes.mesh["data"].get_local_rank(),
        )
        before = None if noise is None else noise.rows
        if noise is not None and self.processes.numbers:
            noise.rows = self.processes.numbers[row]
        y = self.stack.through(self.blocks, x, context, mask=masks[0], context_mask=masks[1])
        if noise is not None:
            noise.rows = before
        return y

    def send(self, tensor: Tensor, stage: int) -> Any:
        return dist.isend(tensor.contiguous(), dist.get_global_rank(self.group, stage), group=self.group)

    def receive(self, like: Tensor, stage: int) -> Tensor:
        room = torch.empty_like(like, memory_format=torch.contiguous_format)
        dist.recv(room, dist.get_global_rank(self.group, stage), group=self.group)
        return room

    def relay(self, own: Tensor, rooms: list[Tensor], work: Any, *, backwards: bool) -> tuple[Tensor, list[Any]]:
        """Move each process's tensor through the stages, in order or back; return this process's at the end."""
        first, last = (self.count - 1, 0) if backwards else (0, self.count - 1)
        ahead = -1 if backwards else 1
        sent = [] if self.stage == first else [self.send(own, first)]
        kept, result = [], own
        for number, room in enumerate(rooms):
            if self.stage != first:
                x = self.receive(room, self.stage - ahead)
            else:
                x = own if number == self.stage else self.receive(room, number)
            y, record = work(number, x)
            kept.append(record)
            if self.stage != last:
                sent.append(self.send(y, self.stage + ahead))
            elif number == self.stage:
                result = y
            else:
                sent.append(self.send(y, number))
        if self.stage != last:
            result = self.receive(own, last)
        for request in sent:
            request.wait()
        return result, kept


class _Pass(torch.autograd.Function):
    """One pass of all rows through the stages; each keeps the graphs of its own blocks until the way back."""

    @staticmethod
    def forward(ctx: Any, line: Line, masks: list[Any], anchor: Tensor, x: Tensor, context: Tensor | None) -> Tensor:
        ctx.line, wanted = line, any(ctx.needs_input_grad)
        rooms = [x.new_empty(size, *x.shape[1:]) for size in lengths(x, line.group)]
        contexts: list[Any] = [None] * line.count
        if context is not None:
            contexts = list(gather(context, sizes := lengths(context, line.group), line.group).split(sizes))
            contexts = [each.detach().requires_grad_(wanted and context.requires_grad) for each in contexts]

        def work(number: int, x: Tensor) -> tuple[Tensor, Any]:
            with torch.set_grad_enabled(wanted):
                x = x.detach().requires_grad_(wanted)
                y = line.run(number, x, contexts[number], masks[number])
            return y.detach(), (x, y)

        result, kept = line.relay(x, rooms, work, backwards=False)
        ctx.kept, ctx.contexts = kept if wanted else [], contexts
        return result.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        line, kept, contexts = ctx.line, ctx.kept, ctx.contexts

        def work(number: int, grad: Tensor) -> tuple[Tensor, None]:
            x, y = kept[number]
            with torch.enable_grad():
                torch.autograd.backward(y, grad)
            kept[number] = None
            return x.grad, None

        result, _ = line.relay(grad.contiguous(), [x for x, _ in kept], work, backwards=True)
        own = None
        if contexts[0] is not None and contexts[0].requires_grad:
            for number, each in enumerate(contexts):
                total = torch.zeros_like(each) if each.grad is None else each.grad
                dist.all_reduce(total, group=line.group)
                own = total if number == line.stage else own
        return None, None, None, result, own
