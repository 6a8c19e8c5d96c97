"""The register of checks, and small tensors that they share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.registry import models

Check = TypeVar("Check", bound=Callable[..., Any])
CHECKS: dict[str, Callable[..., Any]] = {}


def check(function: Check) -> Check:
    """Register a check by the name of its function; it returns a figure and runs in float64 from a fixed seed."""
    if function.__name__ in CHECKS:
        raise ValueError(f"check {function.__name__!r} is registered already; choose another name")
    CHECKS[function.__name__] = function
    return function


@contextmanager
def numbers(dtype: torch.dtype) -> Iterator[None]:
    """Make a number type the default, as long as the context lasts."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of two tensors."""
    return (a - b).abs().max().item()


def reach(out: Tensor, x: Tensor) -> Tensor:
    """Return the size of the gradient of an output with respect to each position of B T D inputs: B T."""
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(5), dtype=out.dtype)
    (gradient,) = torch.autograd.grad((out * noise).sum(), x, retain_graph=True)
    return gradient.abs().sum(-1)


def words(n: int, dim: int, rows: int = 1) -> Tensor:
    """Return vectors of n random words, which gradients can be asked of."""
    return torch.randn(rows, n, dim, requires_grad=True)


def build(family: str, **settings: Any) -> Any:
    """Return an untrained model of a registered family, without dropout's noise."""
    known = models[family]
    return known(known.config_class(**settings)).eval()
