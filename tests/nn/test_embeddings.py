"""Token vectors, the output layer, what they share, and dropout."""

import math

import jaxtyping
import pytest
import torch

from regard.doctor.laws import close
from regard.models import Transformer, TransformerConfig
from regard.nn.dropout import Dropout, Noise
from regard.nn.embeddings import Embedding, Head
from regard.nn.positions import Position, Sinusoidal, sinusoids

D, V = 12, 53
SIZES = dict(dim=D, heads=3, head_dim=4, max_len=31)


def test_token_vectors_are_scaled_before_positions_are_added():
    ids = torch.randint(V, (2, 7))
    for scaled in (True, False):
        layer = Embedding(V, D, Sinusoidal(**SIZES), dropout=0.0, scaled=scaled)
        factor = math.sqrt(D) if scaled else 1.0
        close(layer(ids), layer.weight[ids] * factor + sinusoids(7, D), f"scaled={scaled}", 1e-6)
        close(layer(ids, start=4), layer.weight[ids] * factor + sinusoids(11, D)[4:], "from 4 on", 1e-6)


def test_scaled_token_vectors_start_with_unit_variance():
    weight = Embedding(2003, 64, Position(dim=64, heads=1, head_dim=64, max_len=9), dropout=0.0).weight
    assert math.isclose(weight.var().item() * 64, 1.0, rel_tol=0.05)


def test_head():
    for bias in (True, False):
        head, x = Head(V, D, bias=bias), torch.randn(2, 7, D)
        if bias:
            head.bias.data.normal_()
        wanted = torch.einsum("btd,vd->btv", x, head.weight) + (head.bias if bias else 0)
        close(head(x), wanted, "scores", 1e-5)
        close(head(x[:, -1]), wanted[:, -1], "scores of the last position", 1e-5)


def test_types_and_norm_come_after_positions():
    ids, types = torch.randint(V, (2, 7)), torch.randint(3, (2, 7))
    norm = torch.nn.LayerNorm(D, eps=0.1)
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_()
    layer = Embedding(V, D, Sinusoidal(**SIZES), dropout=0.0, scaled=False, types=3, norm=norm)
    layer.types.data.normal_()
    plain = layer.weight[ids] + sinusoids(7, D)
    close(layer(ids, types=types), norm(plain + layer.types[types]), "with types", 1e-6)
    close(layer(ids), norm(plain + layer.types[0]), "without: all are of the first kind", 1e-6)
    assert layer.types.shape == (3, D)
    without = Embedding(V, D, Sinusoidal(**SIZES), dropout=0.0)
    assert without.types is None and [name for name, _ in without.named_parameters()] == ["weight"]


def test_dropout_comes_after_the_norm():
    layer = Embedding(V, D, Position(**SIZES), dropout=0.5, norm=torch.nn.LayerNorm(D)).train()
    out = layer(torch.randint(V, (31, 29)))
    assert math.isclose((out == 0).float().mean().item(), 0.5, abs_tol=0.02)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@torch.no_grad()
def test_a_transformer_normalises_each_side_by_itself(norm):
    sizes = dict(vocab_size=V, dim=D, heads=3, ffn_dim=29, depth=1, dropout=0.0, norm=norm, position="none")
    model = Transformer(TransformerConfig(**sizes, embedding_norm=True, embedding_scale=False)).eval()
    assert model.source_embedding.norm is not model.target_embedding.norm
    assert model.source_embedding.weight is model.target_embedding.weight
    for side in (model.source_embedding, model.target_embedding):
        side.norm.weight.normal_()
        ids = torch.randint(V, (2, 7))
        close(side(ids), side.norm(side.weight[ids]), "norm of the token vectors", 1e-6)
    assert Transformer(TransformerConfig(**sizes)).source_embedding.norm is None


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("inputs", 2), ("output", 2), ("none", 3)])
def test_tied_matrices_are_one_storage(tie, matrices):
    model = Transformer(TransformerConfig(vocab_size=V, dim=D, heads=3, ffn_dim=29, depth=1, tie=tie))
    weights = [model.source_embedding.weight, model.target_embedding.weight, model.head.weight]
    assert len({weight.data_ptr() for weight in weights}) == matrices
    assert len([p for p in model.parameters() if p.shape == (V, D)]) == matrices
    assert (model.head.weight is model.target_embedding.weight) == (tie in ("all", "output"))
    assert (model.source_embedding.weight is model.target_embedding.weight) == (tie in ("all", "inputs"))


def test_dropout_keeps_the_mean_and_drops_its_share():
    x = torch.ones(101, 1003)
    for p in (0.1, 0.5, 0.9):
        got = Dropout(p)(x)
        assert math.isclose((got == 0).float().mean().item(), p, abs_tol=0.01)
        kept = got[got != 0]
        assert math.isclose(kept.mean().item(), 1 / (1 - p), rel_tol=1e-3) and kept.std() < 1e-6
    assert Dropout(0.5).eval()(x) is x and Dropout(0.0)(x) is x


def test_dropout_has_no_pattern_and_can_be_repeated():
    """Four coins share a draw of the generator: neighbours must be as independent as strangers."""
    torch.manual_seed(3)
    first = Dropout(0.5)(torch.ones(40_000))
    torch.manual_seed(3)
    assert torch.equal(Dropout(0.5)(torch.ones(40_000)), first)
    kept = (first != 0).float()
    for lag in (1, 2, 3, 4, 5):
        together = (kept[:-lag] * kept[lag:]).mean().item()
        assert math.isclose(together, 0.25, abs_tol=0.015), f"positions {lag} apart"


def test_dropout_passes_the_gradient_where_it_passed_the_number():
    x = torch.randn(7, 11, requires_grad=True)
    out = Dropout(0.3)(x)
    out.sum().backward()
    close(x.grad * x, out, "out = mask · x", 1e-6)


def counted(step: int, rows: list[int], p: float = 0.5, layers: int = 1) -> list[Dropout]:
    model = torch.nn.Sequential(*(Dropout(p) for _ in range(layers)))
    Noise(model, seed=3).at(step, torch.tensor(rows))
    return list(model)


def test_counted_dropout_depends_on_step_layer_and_row_alone():
    x = torch.ones(6, 5, 31, dtype=torch.float64)
    first, second = counted(7, [0, 1, 2, 3, 4, 5], layers=2)
    whole = first(x)
    assert torch.equal(first(x), whole), "it has no state"
    for rows in ([4, 5], [3], [5, 0, 2]):
        assert torch.equal(counted(7, rows)[0](x[rows]), whole[rows])
    several = counted(7, [4, 5])[0](x[:6])  # three rows of a tensor for each row of the batch
    assert not torch.equal(several[0], several[1])
    others = [second(x), counted(8, [0, 1, 2, 3, 4, 5])[0](x), first(x, call=1), first(x.flip(0)).flip(0)]
    assert all(0.4 < (other == whole).double().mean() < 0.6 for other in others), "another layer, step, call, row"
    first.cut = (-1, 1, 31)
    assert torch.equal(first(x[..., :1]), whole[..., 1:2]), "a part of a dimension has the bits of that part"


def test_counted_dropout_has_no_pattern():
    """Over pairs of rows, of columns, and both: each would show in the product of their bits."""
    (layer,) = counted(1, list(range(512)))
    signs = layer(torch.ones(512, 1024, dtype=torch.float64)) - 1
    assert abs(signs.mean()) < 4 / signs.numel() ** 0.5
    for rows in (1, 2, 5):
        for columns in (1, 2, 3, 4, 8):
            a, b = signs[rows:] * signs[:-rows], signs[:, columns:] * signs[:, :-columns]
            for product in (a, b, a[:, columns:] * a[:, :-columns]):
                assert abs(product.mean()) < 4.5 / product.numel() ** 0.5, (rows, columns)
    means = signs.mean(0) * 512**0.5, signs.mean(1) * 1024**0.5
    assert all(0.8 < mean.var() < 1.2 for mean in means)


def test_counted_dropout_is_one_compiled_graph(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # its checks cannot be compiled
    (layer,) = counted(1, [0, 1, 2])
    x = torch.ones(3, 7)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    first = compiled(x)
    layer.noise.at(2, torch.tensor([0, 1, 2]))
    assert torch.equal(compiled(x), layer(x)) and not torch.equal(compiled(x), first)
