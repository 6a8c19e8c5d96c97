"""Models on the meta device, without memory for their weights: how it is found out that a config asks for more than its
weights can fill, before anything is allocated."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook as on_module
from torch.nn.modules.module import register_module_parameter_registration_hook as on_parameter

from regard.config import flatten, one_line

PARTS = 2000
"""Modules and parameters that a model may have whatever its weights; a block has about 30."""
PARTS_PER_TENSOR = 64
"""Further ones for each tensor of its weights."""
LAYERS = re.compile("depth|layer|blocks")
"""Names of fields, ours and others', that say how many layers there are."""
SPARE = 1 << 28
"""Bytes of computed tables that a model may have if its weights are fewer."""


def skeleton(build: Callable[[], Any], stored: Mapping[str, Tensor] | None, fields: Mapping[str, Any]) -> Any:
    """The model that `build` makes of the `fields` of a config, on the meta device. A ValueError if it has many more
    parts than weights were stored; None for weights that are not known yet."""
    most = PARTS * 4 if stored is None else PARTS + PARTS_PER_TENSOR * len(stored)
    try:
        with torch.device("meta"), at_most(most):
            model = build()
    except TooManyError:
        depths = ", ".join(f"{name}={one_line(value, 40)}" for name, value in fields.items() if LAYERS.search(name))
        held = "" if stored is None else f", but there are only {len(stored):,} tensors"
        raise ValueError(f"more than {most:,} layers and other parts are asked for{held} ({depths})") from None
    except RuntimeError as error:
        raise ValueError(f"no model has such sizes ({one_line(error)})") from None
    return model


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
