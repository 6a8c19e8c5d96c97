"""Checks of positions: sinusoids, learned vectors, indices, grids, relative ones."""

import math

import torch

from regard.claims.checks.base import check, gap
from regard.nn.positions import Concatenated, Grid, Learned, RelativeBias, Sinusoidal, sinusoids

SIZES = dict(dim=12, heads=3, head_dim=4, max_len=9)


@check
def shifted_sinusoids(dim: int = 512, offset: int = 7) -> float:
    """Return the gap of T_k PE(pos) from PE(pos + k), T_k rotating each pair by k / 10000^(2i/d)."""
    table, moved = sinusoids(200, dim).double(), sinusoids(200, dim, start=offset).double()
    angles = offset * 10_000 ** (-torch.arange(0, dim, 2) / dim)
    sines, cosines = table[:, 0::2], table[:, 1::2]
    turned = torch.stack(
        [sines * angles.cos() + cosines * angles.sin(), cosines * angles.cos() - sines * angles.sin()], dim=-1
    )
    return gap(turned.flatten(1), moved)


@check
def sinusoid_bound() -> float:
    """Return the largest value of sinusoids at 5000 positions of width 512."""
    return sinusoids(5000, 512).abs().max().item()


@check
def sinusoid_distance() -> float:
    """Return the least distance of the vectors of two of 2000 positions."""
    table = sinusoids(2000, 128).double()
    return (torch.cdist(table, table) + 1e9 * torch.eye(2000)).min().item()


@check
def sinusoid_parameters() -> int:
    """Return the number of trained parameters of sinusoidal positions."""
    return sum(p.numel() for p in Sinusoidal(**SIZES).parameters())


@check
def sinusoid_code() -> float:
    """Return the gap of the code of lecture 001, which computes rates by logarithms, from ours."""
    rates = torch.exp(torch.arange(0, 512, 2) * -(math.log(10_000.0) / 512))
    angles = torch.arange(0, 100)[:, None] * rates
    table = torch.zeros(100, 512)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return gap(table, sinusoids(100, 512).double())


@check
def sinusoid_pairs(dim: int) -> int:
    """Return the number of pairs of sine and cosine in a vector of this width."""
    return sinusoids(1, dim).shape[1] // 2


@check
def beyond_learned() -> str:
    """Return whether learned positions accept a sequence that is longer than they were made for."""
    try:
        Learned(**SIZES).embed(torch.zeros(1, SIZES["max_len"] + 1, SIZES["dim"]))
    except ValueError:
        return "refused"
    return "accepted"


@check
def beyond_sinusoids() -> float:
    """Return the largest value of sinusoids at lengths never seen: they stay in the range that was seen."""
    return sinusoids(10, 64, start=100_000).abs().max().item()


@check
def fraction_step(length: int) -> float:
    """Return the difference of neighbouring positions that are normalised to 0 … 1."""
    return float(torch.linspace(0, 1, length).diff().mean())


@check
def position_width(way: str) -> int:
    """Return the width of a token's vector of 12 with its position added, or concatenated before the projection."""
    if way == "added":
        return Sinusoidal(**SIZES).embed(torch.zeros(1, 5, 12)).shape[-1]
    return Concatenated(**SIZES).project.in_features


@check
def recovered(way: str) -> float:
    """Return the error with which a random token vector is found again, by least squares, behind its position."""
    x, waves = torch.randn(500, 12), sinusoids(500, 12).double()
    mixed = x + waves if way == "added" else torch.cat([x, waves], dim=1)
    found = mixed @ torch.linalg.lstsq(mixed, x).solution
    return (found - x).square().mean().sqrt().item()


@check
def grid_code() -> float:
    """Return the gap of the two-dimensional sinusoids of lecture 002, rows beside columns, from ours."""
    h, w, dim = 3, 5, 12
    rows, columns = sinusoids(h, dim // 2), sinusoids(w, dim // 2)
    both = torch.cat([rows.unsqueeze(1).repeat(1, w, 1), columns.unsqueeze(0).repeat(h, 1, 1)], dim=-1).flatten(0, 1)
    grid = Grid(columns=w, dim=dim, heads=3, head_dim=4, max_len=h * w)
    return gap(grid.embed(torch.zeros(1, h * w, dim))[0], both.double())


@check
def relative_bias_scale() -> float:
    """Return the ratio of a relative bias added before the scores are divided to one added after, with d_k = 4."""
    inside, outside = (RelativeBias(inside_scale=flag, **SIZES) for flag in (True, False))
    torch.nn.init.normal_(inside.table)
    outside.table = inside.table
    biases = [one.bias() for one in (outside, inside)]
    assert biases[0] is not None and biases[1] is not None
    return (biases[0].dense(7, 7) / biases[1].dense(7, 7)).median().item()
