"""What is read off an encoder's vectors, against formulas written out by hand."""

import math

import pytest
import torch

from regard.doctor.laws import close
from regard.nn.embeddings import Embedding
from regard.nn.heads import LabelHead, MaskHead, Pooler, mean_pool
from regard.nn.positions import Position

B, T, D, E, V = 3, 7, 12, 5, 53


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def embedding(width):
    return Embedding(V, width, Position(dim=width, heads=1, head_dim=width, max_len=9), dropout=0.0)


@pytest.mark.parametrize("width", [D, E])
def test_mask_head(width):
    table = embedding(width)
    head = MaskHead(D, table, activation="gelu", norm="layer", eps=0.1).double()
    with torch.no_grad():
        for parameter in (head.bias, head.norm.weight, head.norm.bias, head.dense.bias):
            parameter.normal_()
    x = normal(B, T, D)
    y = x @ head.dense.weight.T + head.dense.bias
    y = y * 0.5 * (1 + torch.erf(y / math.sqrt(2)))
    y = (y - y.mean(-1, keepdim=True)) / (y.var(-1, unbiased=False, keepdim=True) + 0.1).sqrt()
    y = y * head.norm.weight + head.norm.bias
    close(head.transform(x), y, "norm(gelu(x W))")
    close(head(x), y @ table.weight.T + head.bias, "scores")
    close(head(x[:, 2]), head(x)[:, 2], "scores of one position")


def test_mask_head_uses_the_embedding_itself():
    table = embedding(E)
    head = MaskHead(D, table, activation="gelu", norm="layer", eps=1e-5)
    assert head.weight is table.weight and head.bias.eq(0).all()


@pytest.mark.parametrize(("name", "act"), [("tanh", torch.tanh), ("relu", lambda x: x.clamp(min=0))])
def test_pooler_reads_the_first_token(name, act):
    pooler, x = Pooler(D, activation=name).double(), normal(B, T, D)
    close(pooler(x), act(x[:, 0] @ pooler.dense.weight.T + pooler.dense.bias), name)
    changed = torch.cat([x[:, :1], normal(B, T - 1, D)], dim=1)
    assert torch.equal(pooler(changed), pooler(x))


def test_label_head_for_a_text_and_for_each_token():
    head, x = LabelHead(D, 4, dropout=0.5).double().eval(), normal(B, T, D)
    close(head(x), x @ head.out.weight.T + head.out.bias, "labels of tokens")
    close(head(x[:, 0]), head(x)[:, 0], "labels of a text")
    assert not torch.equal(head.train()(x), head.eval()(x))


def test_mean_pool_leaves_padding_out():
    x, lengths = normal(B, T, D), torch.tensor([7, 1, 4])
    wanted = torch.stack([x[row, :length].mean(0) for row, length in enumerate(lengths.tolist())])
    close(mean_pool(x, lengths), wanted, "mean of the real tokens")
