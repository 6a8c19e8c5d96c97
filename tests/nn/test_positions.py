"""Position schemes against their definitions, and against what `transformers` computes."""

import math

import pytest
import torch
from torch import nn

from regard.doctor.laws import close
from regard.nn.kernels import Full
from regard.nn.positions import (
    Alibi,
    Concatenated,
    Grid,
    Learned,
    RelativeBias,
    Rotary,
    Sinusoidal,
    SinusoidalHalves,
    alibi_slopes,
    sinusoids,
)  # fmt: skip
from regard.registry import positions

SIZES = dict(dim=12, heads=3, head_dim=4, max_len=11)


def angle(pos, i, dim):
    return pos / 10_000 ** (2 * i / dim)


def test_sinusoids_are_the_published_formula():
    table = sinusoids(23, 12)
    for pos in range(23):
        for i in range(6):
            assert math.isclose(table[pos, 2 * i], math.sin(angle(pos, i, 12)), abs_tol=1e-6)
            assert math.isclose(table[pos, 2 * i + 1], math.cos(angle(pos, i, 12)), abs_tol=1e-6)
    assert torch.equal(sinusoids(5, 12, start=7), sinusoids(12, 12)[7:])
    assert sinusoids(4, 7).shape == (4, 7)


@pytest.mark.parametrize("k", [1, 2, 5, 13])
def test_a_shift_is_one_linear_map(k):
    """PE(pos+k) = T_k PE(pos), where T_k turns each pair by k · rate and knows nothing of pos."""
    dim, count = 12, 400
    rates = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    turns = [[[math.cos(k * r), math.sin(k * r)], [-math.sin(k * r), math.cos(k * r)]] for r in rates]
    T_k = torch.block_diag(*torch.tensor(turns, dtype=torch.float64))
    angles = torch.arange(count + k, dtype=torch.float64)[:, None] * rates
    exact = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    close(sinusoids(count + k, dim).double(), exact, "sinusoids in float32", 1e-7)
    for part in (slice(0, 13), slice(200, 213), slice(count - 13, count)):
        shifted = exact[part.start + k : part.stop + k]
        close(exact[part] @ T_k.T, shifted, "T_k times PE(pos)")
    fitted = torch.linalg.lstsq(exact[:count], exact[k : count + k]).solution.T
    close(fitted, T_k, "the best linear map is T_k", 1e-6)


@pytest.mark.parametrize("name", sorted(set(positions) - {"learned", "fraction", "none"}))
def test_any_length(name):
    """Past `max_len` a scheme goes on as one that was built longer would."""
    torch.manual_seed(0)
    short = positions[name](**(SIZES | dict(max_len=4)), **(dict(columns=3) if name == "grid" else {}))
    torch.manual_seed(0)
    long = positions[name](**(SIZES | dict(max_len=64)), **(dict(columns=3) if name == "grid" else {}))
    x, q = torch.randn(2, 29, 12), torch.randn(2, 3, 29, 4)
    close(short.embed(x), long.embed(x), "embed", 1e-6)
    close(short.embed(x[:, 5:], start=5), long.embed(x)[:, 5:], "embed from 5 on", 1e-6)
    close(short.rotate(q), long.rotate(q), "rotate", 1e-6)
    close(short.rotate(q[:, :, 5:], start=5), long.rotate(q)[:, :, 5:], "rotate from 5 on", 1e-6)
    if long.bias() is not None:
        close(short.bias().dense(29, 29), long.bias().dense(29, 29), "bias")
        close(short.bias().at(5).dense(24, 29), long.bias().dense(29, 29)[:, :, 5:], "bias from 5 on")


@pytest.mark.parametrize("name", list(positions))
def test_a_scheme_enters_in_one_way_only(name):
    scheme = positions[name](**SIZES)
    x, q = torch.randn(2, 7, 12), torch.randn(2, 3, 7, 4)
    ways = [not torch.equal(scheme.embed(x), x), not torch.equal(scheme.rotate(q), q), scheme.bias() is not None]
    assert sum(ways) == (0 if name == "none" else 1)


def test_learned_positions_end():
    scheme = Learned(**SIZES)
    x = torch.randn(2, 11, 12)
    close(scheme.embed(x), x + scheme.table, "the whole table")
    close(scheme.embed(x[:, 4:], start=4), (x + scheme.table)[:, 4:], "from 4 on")
    with pytest.raises(ValueError, match=r"position 11 has no learned vector, max_len=11; shorten the input or"):
        scheme.embed(x[:, :2], start=10)


@pytest.mark.parametrize(("name", "unit"), [("index", 1.0), ("fraction", 1 / 11)])
def test_numbers_of_positions_enter_along_one_vector(name, unit):
    scheme, x = positions[name](**SIZES).double(), torch.randn(2, 11, 12, dtype=torch.float64)
    added = scheme.embed(x) - x
    wanted = (torch.arange(11) * unit)[:, None].double() * scheme.direction
    close(added[1], wanted, "pos · w", 1e-6)
    close(scheme.embed(x[:, 4:], start=4), scheme.embed(x)[:, 4:], "from 4 on")


def test_fractions_end():
    with pytest.raises(ValueError, match=r"position 11 is no fraction of max_len=11; shorten the input or"):
        positions["fraction"](**SIZES).embed(torch.randn(2, 2, 12), start=10)


def test_sinusoidal_halves_are_marians():
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    for dim in (12, 64):
        theirs = MarianSinusoidalPositionalEmbedding(50, dim).create_weight()
        ours = SinusoidalHalves(**(SIZES | dict(dim=dim, max_len=50))).table
        close(ours, theirs, "Marian's table", 1e-6)


def test_rotary_is_llamas():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=24, num_attention_heads=3, head_dim=8, max_position_embeddings=32)
    q, k = torch.randn(2, 3, 13, 8), torch.randn(2, 1, 13, 8)
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(5, 18)[None])
    theirs = apply_rotary_pos_emb(q, k, cos, sin)
    ours = Rotary(dim=24, heads=3, head_dim=8, max_len=32)
    close(ours.rotate(q, start=5), theirs[0], "q", 1e-5)
    close(ours.rotate(k, start=5), theirs[1], "k", 1e-5)


def test_rotary_scores_depend_on_distance_only():
    scheme = Rotary(**(SIZES | dict(max_len=200))).double()
    q, k = torch.randn(2, 1, 1, 1, 4, dtype=torch.float64)
    score = lambda i, j: (scheme.rotate(q, i) * scheme.rotate(k, j)).sum()  # noqa: E731
    for i, j in [(0, 0), (3, 1), (5, 11)]:
        for shift in (1, 17, 150):
            close(score(i + shift, j + shift), score(i, j), f"{i}, {j} and both {shift} later", 1e-6)
    assert abs(score(3, 1) - score(3, 2)) > 1e-3
    close(scheme.rotate(q, 9).norm(), q.norm(), "length of a turned vector", 1e-6)
    assert torch.equal(scheme.rotate(q, 0), q)


def test_rotary_needs_pairs():
    with pytest.raises(ValueError, match="head_dim=5 must be even"):
        Rotary(dim=15, heads=3, head_dim=5, max_len=7)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16])
def test_alibi_slopes_are_blooms(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)  # heads 1 keys: slope · j
    close(alibi_slopes(heads)[:, None, None] * torch.arange(5), theirs, "slopes", 1e-6)


def test_alibi_subtracts_slope_times_distance():
    bias = Alibi(**SIZES).bias().dense(4, 6)[0]
    for h, slope in enumerate(alibi_slopes(3)):
        for i in range(4):
            for j in range(6):
                assert math.isclose(bias[h, i, j], -slope * abs(i - j), rel_tol=1e-6)


@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20)])
@pytest.mark.parametrize("causal", [False, True])
def test_relative_buckets_are_t5s(causal, buckets, far):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-300, 301)[None]
    theirs = T5Attention._relative_position_bucket(distance, not causal, buckets, far)
    ours = RelativeBias(buckets=buckets, far=far, **SIZES).bucket(distance, causal=causal)
    assert torch.equal(ours, theirs)


def test_relative_bias_is_t5s():
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    for causal in (False, True):
        config = T5Config(d_model=12, d_kv=4, num_heads=3, is_decoder=causal)
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        theirs.relative_attention_bias = nn.Embedding(32, 3)
        ours = RelativeBias(**SIZES)
        ours.table.data = theirs.relative_attention_bias.weight.data
        close(ours.bias(causal=causal).dense(9, 9), theirs.compute_bias(9, 9), "bias", 1e-6)


def test_a_relative_bias_is_added_inside_or_outside_the_scale():
    q, k, v = torch.randn(3, 2, 3, 7, 4, dtype=torch.float64)
    for inside in (False, True):
        scheme = RelativeBias(inside_scale=inside, **SIZES).double()
        scheme.table.data.normal_()
        r = scheme.table[scheme.bucket(torch.arange(7)[None] - torch.arange(7)[:, None], causal=False)].permute(2, 0, 1)
        dots = q @ k.transpose(-1, -2)
        wanted = (dots + r) / math.sqrt(4) if inside else dots / math.sqrt(4) + r
        out, weights = Full(heads=3, head_dim=4)(q, k, v, bias=scheme.bias(), weights=True)
        close(weights, wanted.softmax(-1), "weights")
        close(Full(heads=3, head_dim=4)(q, k, v, bias=scheme.bias())[0], out, "the fused path")


def test_a_bias_is_evaluated_once_and_not_shared_between_starts():
    bias = RelativeBias(**SIZES).bias()
    assert bias.dense(5, 9) is bias.dense(5, 9)
    moved = bias.at(4)
    close(moved.dense(5, 9), bias.dense(9, 9)[:, :, 4:], "queries from 4 on")
    assert not torch.equal(moved.dense(5, 9), bias.dense(5, 9))


def test_grid_is_rows_beside_columns():
    scheme = Grid(columns=3, **SIZES)
    got = scheme.embed(torch.zeros(1, 8, 12))[0]
    halves = sinusoids(9, 6)
    for pos in range(8):
        close(got[pos], torch.cat([halves[pos // 3], halves[pos % 3]]), f"place {pos}")
    close(scheme.embed(torch.zeros(1, 3, 12), start=5)[0], got[5:], "from 5 on")
    with pytest.raises(ValueError, match="divisible by 4, got dim=6"):
        Grid(dim=6, heads=1, head_dim=6, max_len=9)
    assert Grid(**(SIZES | dict(max_len=49))).columns == 7


def test_concatenated_is_reversible_where_added_is_not():
    scheme = Concatenated(**SIZES)
    x = torch.randn(2, 7, 12)
    both = torch.cat([x, sinusoids(7, 12).expand(2, -1, -1)], dim=-1)
    close(scheme.embed(x), both @ scheme.project.weight.T, "[x; PE] W", 1e-6)
    close(scheme.embed(x[:, 3:], start=3), scheme.embed(x)[:, 3:], "from 3 on", 1e-6)


def test_tables_follow_the_model_and_are_not_saved():
    scheme = Sinusoidal(**SIZES)
    assert not scheme.state_dict() and not Rotary(**SIZES).state_dict() and not Alibi(**SIZES).state_dict()
    scheme.to(torch.bfloat16)
    x = torch.zeros(1, 30, 12, dtype=torch.bfloat16)
    assert scheme.embed(x).dtype == torch.bfloat16 and scheme.table.dtype == torch.bfloat16
    assert Sinusoidal(**SIZES).embed(x).dtype == torch.bfloat16  # a float32 table, half-precision vectors


def test_unknown_positions_name_their_neighbour():
    with pytest.raises(ValueError, match="unknown position 'rotory'; did you mean 'rotary'"):
        positions["rotory"]
