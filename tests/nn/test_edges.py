"""The kernel of edges: exact beside a full matrix, and TransformerConv of PyTorch Geometric on the same weights."""

import pytest
import torch
from torch import nn

from regard import Attention, AttentionConfig
from regard.nn.kernels import build_kernel, edges
from regard.nn.masks import causal, neighbours, padding
from regard.nn.structure import EdgeBias

PAIRS = torch.tensor(
    [[[0, 1], [1, 0], [0, 0], [4, 2], [4, 2], [3, 4]], [[2, 2], [1, 2], [0, 4], [-1, -1]] + 2 * [[-1, -1]]]
)


def tensors():
    torch.manual_seed(0)
    return [torch.randn(2, heads, 5, 3, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]


@pytest.mark.parametrize("mask", [neighbours(PAIRS), neighbours(PAIRS) & causal(), padding(torch.tensor([5, 2])), None])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("sparse", [("cpu",), ()], ids=["sparse matrices", "none on this device"])
def test_it_equals_the_full_matrix_with_gradients(mask, biased, sparse, monkeypatch):
    monkeypatch.setattr(edges, "SPARSE", sparse)
    outs = []
    for name in ("edges", "full"):
        q, k, v = tensors()
        numbers = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        distinct = PAIRS.clone()
        distinct[0, 4] = -1  # a pair that is listed twice has one bias
        bias = EdgeBias(distinct, numbers.requires_grad_(), 5) if biased else None
        kernel = build_kernel(name, heads=4, head_dim=3)
        out = kernel(q, k, v, mask=mask, bias=bias)[0]
        (out * torch.arange(3.0)).sum().backward()
        outs.append([out, q.grad, k.grad, v.grad, *([numbers.grad] if biased else [])])
    for ours, theirs in zip(*outs, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_a_node_without_edges_gets_zeros():
    q, k, v = tensors()
    out = build_kernel("edges", heads=4, head_dim=3)(q, k, v, mask=neighbours(PAIRS))[0]
    assert out[0, :, 2].eq(0).all() and out[1, :, 3].eq(0).all() and out[0, :, 0].ne(0).all()


def test_it_equals_transformer_conv_on_the_same_weights():
    nn_of = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    x, edges = torch.randn(50, 12), torch.unique(torch.randint(50, (2, 300)), dim=1)
    theirs = nn_of.TransformerConv(12, 5, heads=3, root_weight=False)
    ours = Attention(AttentionConfig(dim=12, heads=3, head_dim=5, kernel="edges"))
    ours.query.load_state_dict(theirs.lin_query.state_dict())
    both = {
        name: torch.cat([getattr(theirs.lin_key, name), getattr(theirs.lin_value, name)]) for name in ("weight", "bias")
    }
    ours.key_value.load_state_dict(both)
    ours.out = nn.Identity()
    mask = neighbours(edges.flip(0).T[None])  # theirs are (from, to), and a node reads what comes to it
    assert torch.allclose(ours(x[None], mask=mask)[0], theirs(x, edges), atol=1e-5)


def test_no_matrix_is_made_of_a_large_graph():
    N = 200_000  # whose matrix would have 40 gigabytes
    pairs = torch.stack([torch.arange(N), torch.arange(N).roll(1)], dim=1)[None]
    q = torch.randn(1, 1, N, 2, requires_grad=True)
    build_kernel("edges", heads=1, head_dim=2)(q, q, q, mask=neighbours(pairs))[0].sum().backward()
    assert q.grad.isfinite().all()
