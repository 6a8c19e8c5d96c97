"""The module under examination: its inputs, its output, and its inputs with something changed.

Every call starts from the same seed, so that outputs differ only because of what was changed.
"""

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

Inputs = dict[str, Any]
BESIDE = ("type", "segment", "position", "label", "size")
"""Substrings of the names of integer inputs that are not tokens."""


@dataclasses.dataclass(frozen=True, slots=True)
class Padding:
    """The way in which a model is given the padding of a sequence: lengths, a mask, or a padding token."""

    kind: Literal["lengths", "mask", "token"]
    sequence: str
    """The input that is padded."""
    argument: str
    """The input that specifies the padding; the sequence itself for a padding token."""
    real: Any = True
    """The value of a mask at real tokens."""
    hidden: Any = False
    """The value of a mask at padding, or the padding token."""
    sure: bool = True
    """Whether the name or the example determines which mask value stands for padding."""

    def __str__(self) -> str:
        if self.kind == "token":
            return f"token {self.hidden} of {self.sequence!r} as padding"
        value = f", {self.real} for a real token" if self.kind == "mask" else ""
        return f"{self.argument!r} as the {self.kind} of {self.sequence!r}{value}"


@dataclasses.dataclass
class Subject:
    """A copy of a module, example inputs without padding, and what is known about them."""

    name: str
    model: nn.Module
    inputs: Inputs
    sequence: str = ""
    """The input that has an output for each of its positions, if there is one."""
    vocabs: dict[str, int] = dataclasses.field(default_factory=dict)
    """The vocabulary size of each input of tokens."""
    pad: int | None = None
    """The padding token, which no example contains."""
    padding: Padding | None = None
    loss: Callable[[Any], Tensor] | None = None
    positional: bool = False
    """Whether inputs are passed in order, because `forward` has no names for them."""
    causal: bool = False
    """Whether it must not see later positions."""
    frozen: frozenset[str] = frozenset()
    """Parameters with requires_grad=False in the original; in the copy all have gradients."""
    deadline: float = float("inf")
    seed: int = 0
    tolerance: float = 1e-5
    """Differences below this share of the largest output do not count."""

    @property
    def rows(self) -> int:
        return len(self.inputs[self.content()[0]])

    @property
    def late(self) -> bool:
        return time.thread_time() > self.deadline

    def run(self, model: nn.Module | None = None, /, **changes: Any) -> Any:
        """Calls the module, or another one, with changed inputs; returns its output as it is."""
        inputs, model = self.inputs | changes, model or self.model
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)  # of the CPU alone: seeding all devices takes milliseconds
            return model(*inputs.values()) if self.positional else model(**inputs)

    def answer(self, model: nn.Module | None = None, /, **changes: Any) -> Tensor:
        """The main tensor of the module's output: its logits, if it has any."""
        return answer_in(self.run(model, **changes))

    @property
    def finite(self) -> bool:
        """Whether its outputs are finite."""
        return bool(self.answer().isfinite().all())

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters())

    def compares(self) -> bool:
        """Whether the output has a column for each row of the batch."""
        fewer = rows_of(self.inputs, slice(-1), self.rows)
        return self.rows > 1 and self.answer(**fewer).shape[1:] != self.answer().shape[1:]

    def varied(self, name: str, where: Tensor) -> Tensor:
        """Return an input with other tokens, or other numbers, where a mask is True."""
        value = self.inputs[name]
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(7)).to(value)
            return torch.where(where.view(*where.shape, *[1] * (value.dim() - where.dim())), value + noise, value)
        tokens = torch.arange(self.vocabs.get(name, 2))
        tokens = tokens[tokens != (-1 if self.pad is None else self.pad)]
        index = torch.searchsorted(tokens, value.clamp(max=int(tokens[-1])))
        return torch.where(where, tokens[(index + 1) % len(tokens)].to(value.dtype), value)

    @property
    def vocab(self) -> int | None:
        """The vocabulary size of the sequence that has outputs, or else the largest one."""
        return self.vocabs.get(self.sequence, max(self.vocabs.values(), default=None))

    def content(self) -> list[str]:
        """The names of inputs with content: tokens, vectors, pixels."""
        return [name for name, value in self.inputs.items() if is_content(name, value)]

    def moved(self, new: Tensor, old: Tensor, axes: int) -> Tensor:
        """Return True where two outputs differ, by the indices of their first `axes` axes."""
        new, old = new.detach().nan_to_num(), old.detach().nan_to_num()
        scale = max(old.abs().max().item(), 1e-6)
        return ((new - old).abs() > self.tolerance * scale)[..., None].flatten(axes).any(-1)

    @cached_property
    def exact(self) -> "Subject":
        """The subject in float64 if its module runs in it, where dependences are exact; else itself."""
        twin = dataclasses.replace(
            self, model=copy.deepcopy(self.model).double(), inputs=cast(self.inputs, torch.float64)
        )
        try:
            usable = torch.allclose(twin.answer().float(), self.answer().float(), rtol=1e-2, atol=1e-2, equal_nan=True)
        except Exception:  # another check reports it
            usable = False
        return twin if usable else self


def is_content(name: str, value: Any) -> bool:
    """Whether an input holds tokens, vectors or pixels, not a mask or positions."""
    if not isinstance(value, Tensor) or value.dim() < 2 or value.dtype == torch.bool or "mask" in name.lower():
        return False
    return value.is_floating_point() or (value.dim() == 2 and not any(part in name.lower() for part in BESIDE))


def rows_of(inputs: Inputs, rows: slice, count: int) -> Inputs:
    """Inputs with certain rows only, of all tensors that have `count` rows."""
    return {
        name: value[rows] if isinstance(value, Tensor) and value.dim() and len(value) == count else value
        for name, value in inputs.items()
    }


def is_tokens(name: str, value: Any) -> bool:
    """Whether an input holds token ids."""
    return is_content(name, value) and not value.is_floating_point()


def cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Inputs with floating-point numbers in another type."""
    return {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def tensors_in(out: Any) -> Iterator[Tensor]:
    """Every floating-point tensor in what a module returned."""
    if isinstance(out, Tensor):
        if out.is_floating_point():
            yield out
    elif isinstance(out, Mapping):
        yield from (found for value in out.values() for found in tensors_in(value))
    elif isinstance(out, (tuple, list)):
        yield from (found for value in out for found in tensors_in(value))
    elif dataclasses.is_dataclass(out) or type(out).__name__ == "SimpleNamespace":
        yield from tensors_in(fields_of(out))


def fields_of(out: Any) -> Mapping[str, Any]:
    """The named parts of what a module returned; empty if it has none."""
    if isinstance(out, Mapping):
        return out
    if dataclasses.is_dataclass(out):
        return {field.name: getattr(out, field.name) for field in dataclasses.fields(out)}
    return vars(out) if type(out).__name__ == "SimpleNamespace" else {}


def answer_in(out: Any) -> Tensor:
    """The main tensor of what a module returned: its `logits`, or else the first tensor with two axes."""
    if isinstance(out, Tensor):
        return out
    named = fields_of(out)
    for name in ("logits", "last_hidden_state"):
        if isinstance(named.get(name), Tensor):
            return named[name]
    parts = list(tensors_in(out))
    if not parts:
        raise ValueError(
            f"forward returns {type(out).__name__} without a floating-point tensor; return one, or (logits, loss)"
        )
    return next((part for part in parts if part.dim() > 1), parts[0])


def traced(subject: Subject, /, **changes: Any) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """Every submodule's output in the order in which they finish, and the model's."""
    seen: list[tuple[str, Tensor]] = []
    parts = [(name, module) for name, module in subject.model.named_modules() if name]
    handles = [module.register_forward_hook(partial(keep, seen, name)) for name, module in parts]
    try:
        out = subject.answer(**changes)
    finally:
        for handle in handles:
            handle.remove()
    return seen, out


def keep(seen: list[tuple[str, Tensor]], name: str, module: nn.Module, args: Any, out: Any) -> None:
    """A forward hook that appends the first tensor of a submodule's output."""
    first = next(tensors_in(out), None)
    if first is not None:
        seen.append((name, first.detach().clone()))  # a later operation may work in place
