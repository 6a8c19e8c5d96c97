"""Checks of time: ratios of the processor's time of runs in turn, on one thread, so that other programs hardly matter;
marked slow in the ledger."""

from collections.abc import Callable
from statistics import median
from time import process_time

import torch
from torch import nn

from regard.claims.checks.base import check
from regard.nn.kernels import build_kernel


def ratio_of_times(slow: Callable[[], object], fast: Callable[[], object], rounds: int = 15) -> float:
    """Return the median ratio of the processor's time of two functions that run in turn."""
    ratios, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)  # others would wait for each other, which is time of the processor too
    try:
        for _ in range(rounds):
            times = []
            for run in (slow, fast):
                start = process_time()
                run()
                times.append(process_time() - start)
            ratios.append(times[0] / times[1])
    finally:
        torch.set_num_threads(threads)
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
