"""Checks of time and memory: ratios of runs in turn, marked slow in the ledger."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import nn

from regard.claims.checks.base import check
from regard.nn.kernels import build_kernel


def ratio_of_times(slow: Callable[[], object], fast: Callable[[], object], rounds: int = 15) -> float:
    """Return the median ratio of two times that are measured in turn."""
    ratios = []
    for _ in range(rounds):
        times = []
        for run in (slow, fast):
            start = perf_counter()
            run()
            times.append(perf_counter() - start)
        ratios.append(times[0] / times[1])
    return median(ratios[1:])


@check
@torch.no_grad()
def additive_time() -> float:
    """Return how many times longer additive attention takes than scaled dot products, at 128 tokens."""
    x = torch.randn(1, 8, 128, 64, dtype=torch.float32)
    kernels = [build_kernel(name, heads=8, head_dim=64, max_len=128).float() for name in ("additive", "full")]
    return ratio_of_times(lambda: kernels[0](x, x, x), lambda: kernels[1](x, x, x))


@check
@torch.no_grad()
def convolution_time() -> float:
    """Return how many times longer a 3 × 3 convolution takes than a matrix product with as many FLOPs."""
    channels, side = 128, 28
    conv = nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.float32)
    pixels = torch.randn(8, channels, side, side, dtype=torch.float32)
    matrix = nn.Linear(channels, 9 * channels, dtype=torch.float32)
    rows = torch.randn(8 * side * side, channels, dtype=torch.float32)
    return ratio_of_times(lambda: conv(pixels), lambda: matrix(rows))
