"""Attention kernels, which compute the weights and mix the values: one file each, all with one interface."""

from regard.nn.kernels.base import Kernel, Need, build_kernel
from regard.nn.kernels.edges import Edges
from regard.nn.kernels.full import Full, attend
from regard.nn.kernels.linear import Linear
from regard.nn.kernels.linformer import Linformer
from regard.nn.kernels.performer import Performer
from regard.nn.kernels.reformer import Reformer
from regard.nn.kernels.scores import Additive, Cosine, Dot, General, Normalized
from regard.nn.kernels.sparse import Sparse
from regard.nn.kernels.topk import TopK
from regard.nn.kernels.window import Window

__all__ = [
    "Additive",
    "Cosine",
    "Dot",
    "Edges",
    "Full",
    "General",
    "Kernel",
    "Linear",
    "Linformer",
    "Need",
    "Normalized",
    "Performer",
    "Reformer",
    "Sparse",
    "TopK",
    "Window",
    "attend",
    "build_kernel",
]
