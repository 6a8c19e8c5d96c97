"""The core against its equation, written out with its own weights, and against PyTorch's module."""

import math

import pytest
import torch
from torch import nn

from regard.doctor.laws import close
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import Cache, KeyValues
from regard.nn.masks import causal, padding
from regard.nn.positions import Rotary

B, T, S, D, C = 2, 5, 7, 12, 11


def by_hand(layer, x, context, allowed=None, turn=lambda x: x):
    """Concat_h softmax(Q_h K_hᵀ / √d) V_h · W_O, head by head."""
    d = layer.head_dim
    q = layer.query(x)
    k, v = layer.key_value(context)[..., : layer.kv_heads * d], layer.key_value(context)[..., layer.kv_heads * d :]
    heads = []
    for h in range(layer.heads):
        g = h // (layer.heads // layer.kv_heads)
        q_h = turn(q[..., h * d : (h + 1) * d])
        k_h = turn(k[..., g * d : (g + 1) * d])
        scores = q_h @ k_h.transpose(1, 2) / math.sqrt(d)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -1e300)
        heads.append(scores.softmax(-1) @ v[..., g * d : (g + 1) * d])
    return torch.cat(heads, dim=-1) @ layer.out.weight.T + (0 if layer.out.bias is None else layer.out.bias)


def make(**sizes):
    return Attention(AttentionConfig(**(dict(dim=D, heads=3) | sizes))).double()


@pytest.mark.parametrize("sizes", [{}, dict(kv_heads=1), dict(head_dim=5), dict(bias=False), dict(heads=6, kv_heads=2)])
def test_self_attention(sizes):
    layer, x = make(**sizes), torch.randn(B, T, D, dtype=torch.float64)
    close(layer(x), by_hand(layer, x, x), "no mask")
    close(layer(x, mask=causal()), by_hand(layer, x, x, torch.ones(T, T).tril().bool()), "causal")
    lengths = torch.tensor([5, 2])
    seen = (torch.arange(T) < lengths[:, None])[:, None]
    close(layer(x, mask=padding(lengths)), by_hand(layer, x, x, seen), "padding")


@pytest.mark.parametrize("sizes", [dict(context_dim=C), dict(context_dim=C, kv_heads=1, head_dim=7)])
def test_cross_attention(sizes):
    layer = make(**sizes)
    x, context = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, C, dtype=torch.float64)
    close(layer(x, context), by_hand(layer, x, context), "context")


def test_rotary_turns_queries_and_keys():
    scheme = Rotary(dim=D, heads=3, head_dim=4, max_len=9)
    layer = Attention(AttentionConfig(dim=D, heads=3), scheme).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    close(layer(x), by_hand(layer, x, x, turn=lambda x: scheme.rotate(x[:, None])[:, 0]), "rotary")


def test_equals_pytorchs_module():
    ours, theirs = make(), nn.MultiheadAttention(D, 3, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        theirs.out_proj.bias.normal_()
        ours.query.weight.copy_(theirs.in_proj_weight[:D])
        ours.query.bias.copy_(theirs.in_proj_bias[:D])
        ours.key_value.weight.copy_(theirs.in_proj_weight[D:])
        ours.key_value.bias.copy_(theirs.in_proj_bias[D:])
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    x, context = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    close(ours(x), theirs(x, x, x)[0], "self-attention")
    close(ours(x, context), theirs(x, context, context)[0], "cross-attention")
    hidden = torch.ones(T, T).triu(1).bool()  # theirs: True is hidden
    close(ours(x, mask=causal()), theirs(x, x, x, attn_mask=hidden)[0], "causal")


def test_a_cache_of_a_fixed_context_is_filled_once():
    layer = make(context_dim=C)
    x, context = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, C, dtype=torch.float64)
    cache = KeyValues(S, fixed=True)
    wanted = layer(x, context)
    close(layer(x[:, :2], context, cache=cache), wanted[:, :2], "first call")
    close(layer(x[:, 2:], cache=cache), wanted[:, 2:], "later calls need no context")
    assert cache.length == S and cache.batch == B


def test_a_full_cache_says_so():
    cache = KeyValues(3)
    cache.append(*torch.randn(2, B, 1, 2, 4))
    with pytest.raises(ValueError, match="room for 3 positions, got 4; allocate a longer one"):
        cache.append(*torch.randn(2, B, 1, 2, 4))


def test_a_cache_works_with_gradients_on():
    layer, x = make(needs=frozenset({"causal"})), torch.randn(B, T, D, dtype=torch.float64)
    cache = KeyValues(T)
    layer(x[:, :3], mask=causal(), cache=cache)
    close(layer(x[:, 3:], mask=causal().at(3), cache=cache), layer(x, mask=causal())[:, 3:], "in two parts")


def test_rows_of_a_cache_can_be_repeated_reordered_and_dropped():
    k, v = torch.randn(2, 3, 1, 5, 4)
    for rows in ([0, 0, 1, 1, 2, 2], [2, 0, 1], [1]):
        cache = Cache([KeyValues(8) for _ in range(2)])
        for layer in cache.own:
            layer.append(k, v)
        cache.select(torch.tensor(rows))
        for layer in cache.own:
            got_k, got_v = layer.all()
            assert torch.equal(got_k, k[rows]) and torch.equal(got_v, v[rows])
            layer.append(k[rows][:, :, :1], v[rows][:, :, :1])
        assert cache.length == 6


def test_dropout_only_in_training():
    layer, x = make(dropout=0.5), torch.randn(B, T, D, dtype=torch.float64)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


def test_sizes_that_do_not_fit_carry_their_cure():
    with pytest.raises(ValueError, match="heads=5 does not divide dim=12; use 4 or set head_dim"):
        AttentionConfig(dim=12, heads=5)
    assert AttentionConfig(dim=12, heads=5, head_dim=3)
    with pytest.raises(ValueError, match="kv_heads=2 does not divide heads=3"):
        AttentionConfig(dim=12, heads=3, kv_heads=2)
