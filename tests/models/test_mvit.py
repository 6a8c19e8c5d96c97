"""MViT against plain numpy: a block's pooled queries, keys and values, its positions, its residual pooling."""

import math

import numpy as np
import pytest
import torch

import regard
from regard.models import MViT, MViTConfig, build, preset
from regard.nn.block import BlockConfig
from regard.nn.pooling import GridOffsets, PooledBlock

GRID, INPUTS, DIM, HEADS, HIDDEN, EPS = (5, 7), 6, 10, 2, 13, 1e-6
CASES = {
    "pools and widens": dict(inputs=INPUTS, strides=(2, 1)),
    "pools queries less than keys": dict(inputs=DIM, strides=(1, 2)),
    "neither divides the other": dict(inputs=INPUTS, strides=(2, 3)),
    "version 1": dict(inputs=DIM, strides=(2, 3), planned=None, residual=False),
    "another grid than planned": dict(inputs=INPUTS, strides=(2, 1), planned=(9, 4)),
}


def make(inputs, strides, planned=GRID, residual=True):
    config = BlockConfig(dim=DIM, heads=HEADS, ffn_dim=HIDDEN, activation="relu", norm_eps=EPS, dropout=0.0)
    block = PooledBlock(config, inputs, strides=strides, planned=planned, residual=residual, path_dropout=0.0).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.4 * torch.randn_like(parameter)
    return block


def norm(x, weights, name):
    mean = x.mean(-1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + EPS)
    return (x - mean) / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def linear(x, weights, name):
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def convolved(image, kernel, stride):
    """Y X K with a 3 × 3 kernel for each channel; outside there are zeros."""
    rows, columns, channels = image.shape
    out = np.zeros((-(-rows // stride), -(-columns // stride), channels))
    for y, x, dy, dx in np.ndindex(*out.shape[:2], 3, 3):
        i, j = y * stride + dy - 1, x * stride + dx - 1
        if 0 <= i < rows and 0 <= j < columns:
            out[y, x] += image[i, j] * kernel[:, 0, dy, dx]
    return out


def largest(image, stride):
    """The largest of squares of side stride + 1 around every stride-th place."""
    rows, columns, _ = image.shape
    before = (stride + 1) // 2
    out = np.empty((-(-rows // stride), -(-columns // stride), image.shape[2]))
    for y, x in np.ndindex(*out.shape[:2]):
        top, left = y * stride - before, x * stride - before
        out[y, x] = image[max(0, top) : top + stride + 1, max(0, left) : left + stride + 1].max((0, 1))
    return out


def vector(table, query, key, queries, keys):
    """Of how far a key stands from a query, both counted in steps of the finer grid; linear between planned ones."""
    fine = max(queries, keys)
    step = math.floor(
        query * max(keys / queries, 1) - key * max(queries / keys, 1) + (keys - 1) * max(queries / keys, 1)
    )
    if len(table) == 2 * fine - 1:
        return table[step]
    place = min(max((step + 0.5) * len(table) / (2 * fine - 1) - 0.5, 0), len(table) - 1)
    low = math.floor(place)
    return table[low] + (place - low) * (table[min(low + 1, len(table) - 1)] - table[low])


def by_hand(block, x):
    """One image, Y X D, through a block."""
    weights = {name: tensor.detach().numpy() for name, tensor in block.state_dict().items()}
    size, (query_stride, key_stride) = DIM // HEADS, block.attention.strides
    normed = norm(x, weights, "norms.attention")
    made = {"query": linear(normed, weights, "attention.query")}
    made["key"], made["value"] = np.split(linear(normed, weights, "attention.key_value"), 2, axis=-1)
    strides, heads = dict(query=query_stride, key=key_stride, value=key_stride), []
    for head in range(HEADS):
        pooled = {}
        for name, image in made.items():
            part = image[:, :, head * size : (head + 1) * size]
            kernel = weights[f"attention.pools.{name}.convolve.weight"]
            pooled[name] = norm(convolved(part, kernel, strides[name]), weights, f"attention.pools.{name}.norm")
        q, k, v = pooled["query"], pooled["key"], pooled["value"]
        mixed = np.zeros_like(q)
        for y, x_ in np.ndindex(*q.shape[:2]):
            scores = np.zeros(k.shape[:2])
            for i, j in np.ndindex(*k.shape[:2]):
                scores[i, j] = q[y, x_] @ k[i, j] / math.sqrt(size)
                if "attention.offsets.rows" in weights:
                    down = vector(weights["attention.offsets.rows"], y, i, q.shape[0], k.shape[0])
                    right = vector(weights["attention.offsets.columns"], x_, j, q.shape[1], k.shape[1])
                    scores[i, j] += q[y, x_] @ down + q[y, x_] @ right
            powers = np.exp(scores - scores.max())
            mixed[y, x_] = np.tensordot(powers / powers.sum(), v, 2)
        heads.append(mixed + q if block.attention.residual else mixed)
    stream = linear(normed, weights, "widen") if "widen.weight" in weights else x
    stream = largest(stream, query_stride) if query_stride > 1 else stream
    stream = stream + linear(np.concatenate(heads, -1), weights, "attention.out")
    hidden = np.maximum(linear(norm(stream, weights, "norms.feedforward"), weights, "feedforward.up"), 0)
    return stream + linear(hidden, weights, "feedforward.down")


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_block_is_what_numpy_computes(case):
    block = make(**CASES[case])
    x = torch.randn(2, *GRID, CASES[case]["inputs"], dtype=torch.float64)
    got, grid = block(x.flatten(1, 2), GRID)
    for row in range(2):
        wanted = by_hand(block, x[row].numpy())
        assert grid == wanted.shape[:2]
        assert np.abs(got[row].unflatten(0, grid).numpy() - wanted).max() < 1e-10


@torch.no_grad()
def test_every_part_of_a_block_is_felt():
    """What the comparison above would not see if it were zero."""
    block = make(**CASES["pools and widens"])
    x = torch.randn(1, 35, INPUTS, dtype=torch.float64)
    out, _ = block(x, GRID)
    for name, parameter in block.named_parameters():
        kept = parameter.clone()
        parameter.add_(torch.randn_like(parameter))
        if name != "attention.pools.key.norm.bias":  # the same for every key: softmax does not see it, positions aside
            assert (block(x, GRID)[0] - out).abs().max() > 1e-4, name
        parameter.copy_(kept)


def test_offsets_count_in_steps_of_the_finer_grid():
    offsets = GridOffsets((4, 2), 1)
    with torch.no_grad():
        offsets.rows.copy_(torch.arange(7.0)[:, None])
    assert offsets.along(offsets.rows, 4, 2)[:, :, 0].tolist() == [[2, 0], [3, 1], [4, 2], [5, 3]]
    assert offsets.along(offsets.rows, 2, 4)[:, :, 0].tolist() == [[3, 2, 1, 0], [5, 4, 3, 2]]


@torch.no_grad()
def test_what_each_block_looks_at_is_seen():
    model = MViT(MViTConfig(image=(26, 38), channels=2, patch=2, dim=6, heads=1, depths=(1, 2), key_stride=4)).eval()
    pixels = torch.randn(3, 2, 26, 38)
    plain = model(pixels)
    with regard.look(model) as seen:
        assert torch.equal(model(pixels), plain)
    shapes = [tuple(weights.shape) for weights in seen.of("encoder")]
    assert shapes == [(3, 1, 13 * 19, 4 * 5), (3, 2, 7 * 10, 7 * 10), (3, 2, 7 * 10, 4 * 5)]
    assert all((weights.sum(-1) - 1).abs().max() < 1e-5 and weights.min() >= 0 for weights in seen.of("encoder"))


@pytest.mark.parametrize(("name", "millions"), [("mvit-t", 24.17), ("mvit-s", 34.87), ("mvit-b", 51.47)])
def test_published_sizes(name, millions):
    with torch.device("meta"):
        model = build("mvit", preset("mvit", name, labels=tuple(map(str, range(1000)))))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == millions


@pytest.mark.parametrize("position", ["relative", "learned"])
@torch.no_grad()
def test_images_of_other_sizes(position):
    model = MViT(MViTConfig(image=32, patch=4, dim=6, depths=(1, 1), labels=("a", "b"), position=position)).eval()
    for rows, columns in ((64, 48), (17, 31), (1, 1)):
        out = model(torch.randn(2, 3, rows, columns))
        assert out.shape == (2, 2) and out.isfinite().all()


def test_mistakes_carry_the_cure():
    with pytest.raises(ValueError, match="images have 1 channels, the model reads 3"):
        MViT(MViTConfig(image=32, dim=6, depths=(1,)))(torch.randn(1, 1, 32, 32))
    with pytest.raises(ValueError, match=r"depths=\(\) must have a positive number for each stage"):
        MViTConfig(depths=())
    with pytest.raises(ValueError, match="heads=5 does not divide dim=96"):
        MViTConfig(heads=5)
