"""Kernels whose cost is known; registered only while a test wants them."""

import os
import signal

import torch

from regard.nn.kernels import Kernel
from regard.registry import register_kernel

LONGEST = 300


@register_kernel("square")
class Square(Kernel):
    """Holds T × S numbers while it works."""

    def forward(self, q, k, v, **how):
        held = torch.ones(q.shape[2], k.shape[2])
        return v * held.mean(), None


@register_kernel("killed")
class Killed(Kernel):
    """As if the system had no memory left."""

    def forward(self, q, k, v, **how):
        if q.shape[2] > LONGEST:
            os.kill(os.getpid(), signal.SIGKILL)
        return v, None


@register_kernel("starved")
class Starved(Kernel):
    """Asks for more than there can be."""

    def forward(self, q, k, v, **how):
        if q.shape[2] > LONGEST:
            torch.empty(1 << 60)
        return v, None


@register_kernel("picky")
class Picky(Kernel):
    """Both sides only, and the keys must be the queries themselves."""

    causal = False
    shares = True

    def forward(self, q, k, v, *, mask=None, **how):
        if k is not q or mask is not None:
            raise ValueError("keys of their own, or a mask")
        return q + v, None
