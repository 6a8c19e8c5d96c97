"""One pass of a model on the `meta` device, where tensors have shapes but no numbers: its FLOPs and its memory.

Every operation is seen on its way to the device. Matrix products are counted; the storage of each result is followed
from its creation to its end, so that the most that is alive at once, and what the backward pass keeps, are known.
`TorchFunctions` makes the pass the one that a CPU would run.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from regard.cost.substitutes import FUSED, TorchFunctions
from regard.nn.kernels.base import Kernel
from regard.nn.reversible import recomputes, recomputing

NUMBER = 4
"""Bytes of a number in the pass."""
SOFTMAX = {torch.ops.aten._softmax, torch.ops.aten._safe_softmax}
NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class Held:
    """A storage that is alive."""

    numbers: float
    """Its size."""
    path: str
    """The module that made it."""
    inputs: frozenset[str]
    """Names of the model's inputs that it was computed from."""
    counts: bool
    """Floating-point numbers, not indices or yes/no masks."""
    index: bool
    """Indices that a kernel made."""
    alive: Any
    """Weak reference, which removes it from the table of living storages."""


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product: the module that computed it, the inputs it depends on, and whether it belongs to attention."""

    path: str
    inputs: frozenset[str]
    attention: bool


class Walk(TorchDispatchMode):
    """Counts what a model does between `with Walk(model, inputs):` and the end of that block."""

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        self.path = [""]
        self.kernels: list[tuple[tuple[str, bool], int]] = []
        """Those that run now, and the entries of their weights."""
        self.living: dict[int, Held] = {}
        self.now = self.peak = 0.0
        self.flops: Counter[Product] = Counter()
        self.rows: Counter[Product] = Counter()
        """Vectors that a product's matrices were multiplied with."""
        self.matrices: Counter[tuple[str, bool]] = Counter()
        """Entries of the weights of each kernel, and whether queries and keys come from different inputs."""
        self.held: set[tuple[str, bool]] = set()
        """Those whose weights were computed all at once."""
        self.again: dict[str, float] = defaultdict(float)
        """Numbers that the widest part of each reversible stack keeps while it is computed again."""
        self.part: dict[int, float] = {}
        """What the part that is computed again now keeps."""
        self.saved_inputs = 0.0
        self.kept: Counter[str] = Counter()
        """Numbers that autograd and closures hold behind a training pass, by the module that made them."""
        self.shape = torch.Size()
        """Of the first output."""
        self.ended = False
        self.inputs = {self.key(tensor): (name, tensor) for name, tensor in inputs.items()}
        self.own: set[int] = self.storages()

    @staticmethod
    def key(tensor: Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def storages(self) -> set[int]:
        """Those of the model's parameters and buffers."""
        return {self.key(tensor) for tensor in [*self.model.parameters(), *self.model.buffers()]}

    @contextmanager
    def watched(self) -> Iterator["Walk"]:
        """Everything within is counted, and attributed to the module that runs."""
        hooks = []
        for name, module in self.model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(self.enter, name)))
            hooks.append(module.register_forward_hook(self.leave, always_call=True))
        try:
            with torch.device("meta"), TorchFunctions(self), self:
                with torch.autograd.graph.saved_tensors_hooks(self.save, lambda tensor: tensor):
                    yield self
        finally:
            for hook in hooks:
                hook.remove()

    def enter(self, name: str, module: nn.Module, args: tuple) -> None:
        self.path.append(name)
        if isinstance(module, Kernel) and not recomputes():
            q, k = args[:2]
            entries = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
            call = name, self.sources(q) != self.sources(k)
            self.matrices[call] += entries
            self.kernels.append((call, entries))

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.path.pop()
        if isinstance(module, Kernel) and not recomputes():
            self.kernels.pop()

    def sources(self, tensor: Tensor) -> frozenset[str]:
        """Names of the inputs that a tensor was computed from."""
        key = self.key(tensor)
        if key in self.inputs:
            return frozenset({self.inputs[key][0]})
        return self.living[key].inputs if key in self.living else NOBODY

    def save(self, tensor: Tensor) -> Tensor:
        """Called with each tensor that autograd keeps."""
        key = self.key(tensor)
        if key in self.inputs and tensor.is_floating_point():
            self.saved_inputs += tensor.numel()
            del self.inputs[key]
        if recomputes() and key in self.living and self.living[key].counts:
            self.part[key] = self.living[key].numbers
        return tensor

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        inputs = NOBODY.union(*(self.sources(tensor) for tensor in tensors))
        packet = func._overloadpacket
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.follow(tensor, inputs)
        if packet in flop_registry:
            self.multiply(flop_registry[packet](*args, **(kwargs or {}), out_val=out), tensors, out)
        elif packet is FUSED:
            q, k = args[0], args[1]
            self.multiply(4 * q.numel() * k.shape[2], tensors, out[0])
        elif packet in SOFTMAX and self.kernels and out.numel() >= self.kernels[-1][1]:
            self.held.add(self.kernels[-1][0])
        return out

    def multiply(self, flops: int, tensors: list[Tensor], out: Any) -> None:
        """Counts a product; one of two tensors that both come from the input is attention's."""
        if recomputes():
            return
        depends = [names for names in map(self.sources, tensors) if names]
        product = Product(self.path[-1], NOBODY.union(*depends), bool(self.kernels) or len(depends) > 1)
        self.flops[product] += flops
        self.rows[product] += out.numel() // out.shape[-1]

    def follow(self, tensor: Tensor, inputs: frozenset[str]) -> None:
        """Remembers the storage of a result until it dies."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.living:
            if not inputs <= self.living[key].inputs:
                self.living[key].inputs |= inputs
            return
        if key in self.own or key in self.inputs:
            return
        counts = tensor.is_floating_point()
        index = bool(self.kernels and inputs) and tensor.dtype in (torch.int32, torch.int64)
        numbers = storage.nbytes() / NUMBER

        end = weakref.ref(storage, partial(self.end, key))
        self.living[key] = Held(numbers, self.path[-1], inputs, counts, index, end)
        if counts:
            self.now += numbers
            self.peak = self.peak if self.ended else max(self.peak, self.now)

    def end(self, key: int, _: Any) -> None:
        """Called when a storage dies."""
        held = self.living.pop(key)
        self.now -= held.numbers if held.counts else 0

    def compute_again(self, loss: Tensor) -> None:
        """Runs each part of the reversible stacks behind a loss once more, as the backward pass does."""
        names = {module: name for name, module in self.model.named_modules()}
        nodes: dict[Any, None] = {loss.grad_fn: None}
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            new = {other: None for other, _ in node.next_functions if other is not None and other not in nodes}
            nodes |= new
            waiting += new
            if type(node).__name__ != "_JoinBackward":
                continue
            tape, before = node.tape, set(self.living)
            for part, _ in tape.parts:
                self.part = {}
                if tape.bias is not None:
                    tape.bias.forget()
                with recomputing():
                    part(node.saved_tensors[1].detach().requires_grad_())
                kept = sum(numbers for key, numbers in self.part.items() if key not in before)
                self.again[names[tape.stack]] = max(self.again[names[tape.stack]], kept)

    def until_features(self, features: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs `features`, and then forgets how wide later moments are."""
        found = features(*args, **kwargs)
        self.ended = True
        return found

    def keep(self, loss: Tensor) -> None:
        """Notes the numbers that are alive beside the loss, by the module that made them."""
        own = self.storages() | {self.key(loss)}
        self.kept[""] += self.saved_inputs
        for key, held in self.living.items():
            if (held.counts or held.index) and key not in own:
                self.kept[held.path] += held.numbers
