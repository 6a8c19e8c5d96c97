"""Normalisation over the width. LayerNorm is PyTorch's: variance with 1/d, ε under the root."""

from torch import nn

NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def build_norm(kind: str, dim: int, eps: float) -> nn.Module:
    return NORMS[kind](dim, eps=eps)
