"""Scores of what a head attends to in a text with repetitions: the two kinds that make an induction circuit."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def previous(weights: Float[Tensor, "B H T T"]) -> Float[Tensor, "H"]:
    """The weight of each head on the token just before, the mean over all but the first."""
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean((0, 2))


def induction(weights: Float[Tensor, "B H T T"], ids: Int[Tensor, "B T"]) -> Float[Tensor, "H"]:
    """The weight of each head on the token that followed last time, the mean over tokens that occurred before.

    This is the prefix-matching score of Olsson et al. (2022).
    """
    follows = followers(ids)
    return (weights * follows[:, None]).sum((0, 2, 3)) / follows.sum().clamp(min=1)


def followers(ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    """For each position, the position right after the previous occurrence of its token."""
    T = ids.shape[1]
    position = torch.arange(T)
    same = (ids[:, :, None] == ids[:, None, :]) & (position[:, None] > position)
    last = torch.where(same, position, -1).amax(-1)  # B T
    return (position == last[:, :, None] + 1) & (last >= 0)[:, :, None]
