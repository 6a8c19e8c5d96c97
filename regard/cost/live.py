"""The memory of tensors while operations run, on `meta` as well: what is alive, the most at once, and who made it."""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

HALVED = {
    F.linear, F.bilinear, F.conv1d, F.conv2d, F.conv3d, F.scaled_dot_product_attention, torch.matmul, Tensor.matmul,
    Tensor.__matmul__, torch.mm, Tensor.mm, torch.bmm, Tensor.bmm, torch.addmm, torch.baddbmm, torch.einsum,
}  # fmt: skip
"""Products that autocast computes in half precision."""


class Live(TorchDispatchMode):
    """Follows the storages that operations create inside `with live.watched():`, but for a model's own tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.tensors = [*model.parameters(), *model.buffers()]  # held, so that no address is used twice
        self.known = {tensor.untyped_storage()._cdata for tensor in self.tensors}
        self.living: dict[int, tuple[int, str, Any]] = {}
        self.path = [""]
        self.now = self.peak = 0
        self.kept: Counter[str] = Counter()
        """Bytes alive when a forward pass has ended, by the part of the model that made them."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context manager: follow all operations, and attribute them to the running module."""
        named = list(self.model.named_modules())
        hooks = [module.register_forward_pre_hook(partial(self.enter, part_of(name))) for name, module in named]
        hooks += [module.register_forward_hook(self.leave, always_call=True) for _, module in named]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def enter(self, part: str, module: nn.Module, args: Any) -> None:
        self.path.append(part or self.path[-1])

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self.path.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.living and storage._cdata not in self.known:
                    gone = weakref.ref(storage, partial(self.end, storage._cdata))
                    self.living[storage._cdata] = storage.nbytes(), self.path[-1], gone
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
        return out

    def end(self, key: int, _: Any) -> None:
        self.now -= self.living.pop(key)[0]

    def keep(self) -> None:
        """Record what is alive at the end of a forward pass."""
        self.kept = Counter[str]()
        for size, part, _ in self.living.values():
            self.kept[part] += size


class Halved(TorchFunctionMode):
    """Mode that stands for `torch.autocast`, which `meta` lacks: matrix products take, and give, half the bytes."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.weights: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HALVED and torch.is_grad_enabled():  # a function with its own gradient decides for itself
            args, kwargs = tree_map(self.half, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def half(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype != torch.float32:
            return x
        if not (x.is_leaf and x.requires_grad):
            return x.to(self.dtype)
        if id(x) not in self.weights:
            self.weights[id(x)] = x.to(self.dtype)
        return self.weights[id(x)]


def part_of(path: str) -> str:
    """The part of a model that a module belongs to: the part of its block ("attention"), or the module itself."""
    names = path.split(".")
    inside = [after for name, after in zip(names, names[1:], strict=False) if name.isdigit() and not after.isdigit()]
    return inside[0] if inside else next((name for name in reversed(names) if not name.isdigit()), "")
