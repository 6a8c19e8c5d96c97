"""One pass of a model on the `meta` device, where tensors have shapes but no numbers: its FLOPs and its memory.

Every operation is seen on its way to the device. Matrix products are counted; the storage of each result is followed
from its creation to its end, so that the most that is alive at once, and what the backward pass keeps, are known.
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

SOFTMAX = {torch.ops.aten._softmax, torch.ops.aten._safe_softmax}
Names = frozenset[str]
"""Names of the model inputs that a tensor was computed from."""


@dataclass(slots=True)
class Storage:
    """Record of the live memory of one tensor."""

    numbers: int
    """Size in units of four bytes."""
    path: str
    """Path of the module that created it."""
    inputs: Names
    floating: bool
    index: bool
    """Whether it holds indices that a kernel made: of whole numbers, only those are counted."""
    alive: Any
    """Weak reference to the tensor, whose callback removes this record."""


class Walk(TorchDispatchMode):
    """Counts FLOPs and memory of a model's operations inside `with walk.watched():`."""

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.model = model
        self.inputs = {storage_key(tensor): (name, tensor) for name, tensor in inputs.items()}
        self.weights = [*model.parameters(), *model.buffers()]  # held, so that no address is used twice
        self.own = set(map(storage_key, self.weights))
        self.path = [""]
        self.running: list[tuple[str, int]] = []  # kernels, and the entries of their matrices
        self.living: dict[int, Storage] = {}
        self.saved: set[int] = set()  # storages that autograd keeps
        self.now, self.peak, self.ended = 0, 0, False
        self.flops: Counter[tuple[str, bool]] = Counter()
        """FLOPs of the products in each module, with those of attention kept apart."""
        self.rows: Counter[str] = Counter()
        """Vectors that each module's matrices were multiplied with."""
        self.uses: dict[str, Names] = defaultdict(frozenset)
        """Inputs that each module's products depend on."""
        self.matrices: Counter[str] = Counter()
        """Entries of each kernel's attention matrices."""
        self.crossing: set[str] = set()
        """Kernels whose queries and keys come from different inputs."""
        self.held: set[str] = set()
        """Kernels that materialised all attention weights at once."""
        self.kept: Counter[str] = Counter()
        """Values held after a training pass, or while a part is recomputed, by the module that created them."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context manager: count all operations, and attribute them to the running module."""
        named = list(self.model.named_modules())
        hooks = [module.register_forward_pre_hook(partial(self.enter, name)) for name, module in named]
        hooks += [module.register_forward_hook(self.leave) for _, module in named]
        saving = torch.autograd.graph.saved_tensors_hooks(self.save, lambda tensor: tensor)
        with torch.device("meta"), TorchFunctions(self), self, saving:
            yield
        for hook in hooks:
            hook.remove()

    def enter(self, name: str, module: nn.Module, args: tuple) -> None:
        self.path.append(name)
        if isinstance(module, Kernel):
            q, k = args[:2]
            entries = q.shape[:3].numel() * k.shape[2]
            self.running.append((name, entries))
            self.crossing |= {name} if self.sources(q) != self.sources(k) else set()
            self.matrices[name] += entries if not recomputes() else 0

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        if getattr(module, "reversible", False) and torch.is_grad_enabled():
            self.compute_again(output)
        self.path.pop()
        if isinstance(module, Kernel):
            self.running.pop()

    def sources(self, tensor: Tensor) -> Names:
        key = storage_key(tensor)
        if key in self.inputs:
            return frozenset({self.inputs[key][0]})
        return self.living[key].inputs if key in self.living else frozenset()

    def save(self, tensor: Tensor) -> Tensor:
        """Autograd's pack hook: record each tensor saved for the backward pass."""
        key = storage_key(tensor)
        if key in self.inputs and key not in self.saved and tensor.is_floating_point():
            self.kept[""] += self.inputs[key][1].numel()
        self.saved.add(key)
        return tensor.detach()  # with its history it would hold itself, and never die

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        operation = func._overloadpacket
        depends = [self.sources(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        inputs = frozenset[str]().union(*depends)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.follow(tensor, inputs)
        if operation in flop_registry:
            self.multiply(flop_registry[operation](*args, **kwargs, out_val=out), depends, out)
        elif operation is FUSED:
            self.multiply(4 * args[0].numel() * args[1].shape[2], depends, out[0])
        elif operation in SOFTMAX and self.running and out.numel() >= self.running[-1][1]:
            self.held.add(self.running[-1][0])
        return out

    def multiply(self, flops: int, depends: list[Names], out: Tensor) -> None:
        """Count a matrix product. It belongs to attention inside a kernel, or if both factors depend on the inputs."""
        if recomputes():
            return
        path, attention = self.path[-1], bool(self.running) or sum(map(bool, depends)) > 1
        self.flops[path, attention] += flops
        self.rows[path] += out.numel() // max(1, out.shape[-1])
        self.uses[path] = self.uses[path].union(*depends)

    def follow(self, tensor: Tensor, inputs: Names) -> None:
        """Track the storage of a result until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.living:
            self.living[key].inputs |= inputs
        elif key not in self.own and key not in self.inputs:
            floating, numbers = tensor.is_floating_point(), -(-storage.nbytes() // 4)
            index = bool(self.running and inputs) and tensor.dtype in (torch.int32, torch.int64)
            alive = weakref.ref(storage, partial(self.end, key))
            self.living[key] = Storage(numbers, self.path[-1], inputs, floating, index, alive)
            self.now += numbers if floating else 0
            self.peak = self.peak if self.ended else max(self.peak, self.now)

    def end(self, key: int, _: Any) -> None:
        storage = self.living.pop(key)
        self.saved.discard(key)
        self.now -= storage.numbers if storage.floating else 0

    def until_features(self, features: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run `features`; peak memory is not measured after it, since logits are needed for few rows at a time."""
        vectors = features(*args, **kwargs)
        self.ended = True
        return vectors

    def keep(self, loss: Tensor) -> None:
        """Record the tensors alive after the loss, except masks and biases that are cached for the next layer."""
        own = {storage_key(tensor) for tensor in (loss, *self.model.buffers())}
        for key, storage in self.living.items():
            computed = key in self.saved or storage.inputs - {"lengths"}
            if computed and (storage.floating or storage.index) and key not in own:
                self.kept[storage.path] += storage.numbers

    def compute_again(self, output: Tensor) -> None:
        """Recompute each part of the reversible stack that made `output`, as the backward pass does."""
        node: Any = output.grad_fn
        while type(node).__name__ != "_JoinBackward":
            node = node.next_functions[0][0]
        widest = 0
        for part, _ in node.tape.parts:
            before = set(self.living)
            if node.tape.bias is not None:
                node.tape.bias.forget()
            with recomputing():
                added = part(node.saved_tensors[1].detach().requires_grad_())
            kept = (self.living[key] for key in self.saved & self.living.keys() if key not in before)
            widest = max(widest, sum(storage.numbers for storage in kept if storage.floating))
            del added
        self.kept[self.path[-1]] += widest


def storage_key(tensor: Tensor) -> int:
    """Return a key that all tensors with the same storage share while it is alive."""
    return tensor.untyped_storage()._cdata
