"""Models on the meta device, without memory for their weights: how it is found out that a config asks for more than its
weights can fill, before anything is allocated."""

import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook as on_module
from torch.nn.modules.module import register_module_parameter_registration_hook as on_parameter
from torch.overrides import TorchFunctionMode

from regard.config import flatten, one_line, plugin_line

INITIALISERS = {nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_, Tensor.uniform_, Tensor.normal_}
PARTS = 2000
"""Modules and parameters that a model may have whatever its weights; a block has about 30."""
PARTS_PER_TENSOR = 64
"""Further ones for each tensor of its weights."""
LAYERS = re.compile("depth|layer|blocks")
"""Names of fields, ours and others', that say how many layers there are."""
ALONE = threading.Lock()
"""Held while a model is built: the hooks that count its parts are those of the whole process."""
SPARE = 1 << 28
"""Bytes of computed tables that a model may have if its weights are fewer."""


def skeleton(build: Callable[[], Any], stored: Mapping[str, Tensor] | None, fields: Mapping[str, Any]) -> Any:
    """The model that `build` makes of the `fields` of a config, on the meta device. A ValueError if it has many more
    parts than weights were stored; None for weights that are not known yet."""
    most = PARTS * 4 if stored is None else PARTS + PARTS_PER_TENSOR * len(stored)
    try:
        with ALONE, at_most(most):
            try:
                with torch.device("meta"), Unsampled(meta=True):
                    return build()
            except (
                RuntimeError,
                TypeError,
                IndexError,
                ValueError,
            ):  # a function whose result was made by hand wrongly
                with torch.device("meta"):
                    return build()
    except TooManyError:
        depths = ", ".join(f"{name}={one_line(value, 40)}" for name, value in fields.items() if LAYERS.search(name))
        held = "" if stored is None else f", but there are only {len(stored):,} tensors"
        raise ValueError(f"more than {most:,} layers and other parts are asked for{held} ({depths})") from None
    except RuntimeError as error:
        line = plugin_line(error)
        fact = f"the model cannot be built on the meta device ({one_line(error)}{f', {line}' if line else ''})"
        raise ValueError(f"{fact}; correct its sizes, or a constructor that computes with values") from None


class Unsampled(TorchFunctionMode):
    """A mode in which parameters are not initialised at random, for models whose weights are all replaced.

    On the meta device (`meta`) nothing is, and the results of simple functions are made by hand: there the first call
    of almost any function imports a compiler, which takes a second.
    """

    def __init__(self, *, meta: bool) -> None:
        super().__init__()
        self.meta = meta

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in INITIALISERS:
            tensor = args[0] if args else kwargs["tensor"]
            if self.meta or isinstance(tensor, nn.Parameter):
                return tensor
        name = getattr(func, "__name__", "").strip("_")
        simple = bool(args) and all(isinstance(value, int | float | Tensor | list) for value in args)
        if self.meta and simple and name in SHAPES and kwargs.keys() <= KEYWORDS.get(name, set()):
            shape = SHAPES[name](*args, **{key: kwargs[key] for key in kwargs if key == "dim"})
            return torch.empty(shape, dtype=kwargs.get("dtype") or type_of(name, args), device="meta")
        return func(*args, **kwargs)


def type_of(name: str, args: Sequence[Any]) -> torch.dtype | None:
    """The type of the result of a function; None for the default one."""
    tensors = [value for value in (args[0] if isinstance(args[0], list) else args) if isinstance(value, Tensor)]
    fraction = name in FRACTIONS or any(isinstance(value, float) for value in args)
    if not tensors:
        return torch.int64 if name == "arange" and not fraction else None
    kinds = [tensor.dtype for tensor in tensors]
    kind = next((kind for kind in kinds if kind.is_floating_point), kinds[0])
    return None if fraction and not kind.is_floating_point else kind


def broadcast(*values: Any) -> tuple[int, ...]:
    """The shape of the result of a function that is applied to each element."""
    return np.broadcast_shapes(*(tuple(value.shape) for value in values if isinstance(value, Tensor)))


def stacked(tensors: list[Tensor], dim: int = 0) -> list[int]:
    """The shape that `torch.stack` returns."""
    shape = list(tensors[0].shape)
    shape.insert(dim if dim >= 0 else len(shape) + 1 + dim, len(tensors))
    return shape


def joined(tensors: list[Tensor], dim: int = 0) -> list[int]:
    """The shape that `torch.cat` returns."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return shape


def listed(*sizes: Any) -> Any:
    """The shape that a function returns whose arguments are sizes, one by one or in a list."""
    return sizes[0] if isinstance(sizes[0], list) else sizes


def counted(start: int | float, end: int | float | None = None, step: int | float = 1) -> list[int]:
    """The shape that `torch.arange` returns."""
    start, end = (0, start) if end is None else (start, end)
    return [max(0, math.ceil((end - start) / step))]


ELEMENTWISE = "mul rmul neg div truediv rtruediv pow rpow sin cos add radd sub rsub"
SHAPES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(ELEMENTWISE.split(), broadcast), "randn": listed, "rand": listed, "arange": counted,
    "stack": stacked, "cat": joined,
}  # fmt: skip


NEW = {"dtype", "device", "requires_grad"}
KEYWORDS = {"randn": NEW, "rand": NEW, "arange": NEW, "stack": {"dim"}, "cat": {"dim"}}
"""Keywords of a function with which its result is still made by hand."""
FRACTIONS = {"div", "truediv", "rtruediv", "sin", "cos"}
"""Functions whose results are floating-point numbers, whatever they are given."""


class TooManyError(Exception):
    """Raised when a model that is being built has more parts than allowed."""


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """Context manager: raise TooManyError once more modules and parameters than this are registered by this thread."""
    thread, parts = threading.get_ident(), 0

    def count(module: nn.Module, name: str, part: object) -> None:
        nonlocal parts
        parts += threading.get_ident() == thread
        if parts > most:
            raise TooManyError

    hooks = on_module(count), on_parameter(count)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def check_tables(model: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Raise an error if what a model computes for itself, such as tables of positions, is far more than its weights."""
    held = sum(tensor.nbytes for tensor in stored.values())
    tensors = chain(model.named_buffers(), model.named_parameters())
    tables = {name: table for name, table in tensors if name not in stored}
    most = max(SPARE, held)
    if sum(table.nbytes for table in tables.values()) > most:
        name, table = max(tables.items(), key=lambda entry: entry[1].nbytes)
        sizes = {key: value for key, value in flatten(model.config).items() if value in table.shape}
        because = f" ({', '.join(f'{key}={value}' for key, value in sizes.items())})" if sizes else ""
        raise ValueError(
            f"{name} would have shape {tuple(table.shape)}, {table.nbytes:,} bytes{because}; at most {most:,} are "
            f"computed beside weights of {held:,} bytes"
        )
