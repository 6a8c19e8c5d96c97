"""Norms, feed-forward layers, blocks and their first weights, against formulas written out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from regard.doctor.laws import close
from regard.nn.block import Block, BlockConfig
from regard.nn.feedforward import FeedForward
from regard.nn.norm import build_norm
from regard.nn.positions import Position
from regard.nn.stack import Stack, build_position, glorot

B, T, S, D, HIDDEN = 2, 5, 7, 12, 29
SIZES = dict(dim=D, heads=3, ffn_dim=HIDDEN, max_len=31)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64)


def block(*, cross, causal=False, **changes):
    config = BlockConfig(**SIZES | dict(dropout=0.0) | changes)
    made = Block(config, build_position(config), causal=causal, cross=cross).double()
    with torch.no_grad():
        for parameter in made.norms.parameters():
            parameter.normal_()
    return made


def test_layer_norm_divides_by_d_and_has_epsilon_under_the_root():
    norm, x = build_norm("layer", D, 0.1).double(), normal(B, T, D)
    with torch.no_grad():
        norm.weight.normal_(), norm.bias.normal_()
    mean = x.sum(-1, keepdim=True) / D
    variance = (x - mean).square().sum(-1, keepdim=True) / D
    close(norm(x), norm.weight * (x - mean) / (variance + 0.1).sqrt() + norm.bias, "LayerNorm")


def test_rms_norm_has_no_mean_and_no_bias():
    norm, x = build_norm("rms", D, 0.1).double(), normal(B, T, D)
    with torch.no_grad():
        norm.weight.normal_()
    close(norm(x), norm.weight * x / (x.square().sum(-1, keepdim=True) / D + 0.1).sqrt(), "RMSNorm")
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


ACTS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu-tanh": lambda x: x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + (-x).exp()),
    "relu2": lambda x: x.clamp(min=0) ** 2,
}


@pytest.mark.parametrize("activation", list(ACTS))
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward(activation, bias):
    layer, x = FeedForward(D, HIDDEN, activation=activation, bias=bias).double(), normal(B, T, D)
    b1, b2 = (layer.up.bias, layer.down.bias) if bias else (0, 0)
    wanted = ACTS[activation](x @ layer.up.weight.T + b1) @ layer.down.weight.T + b2
    close(layer(x), wanted, activation)


@pytest.mark.parametrize(("activation", "act"), [("swiglu", "silu"), ("geglu", "gelu"), ("geglu-tanh", "gelu-tanh")])
def test_gated_feed_forward(activation, act):
    layer, x = FeedForward(D, HIDDEN, activation=activation, bias=True).double(), normal(B, T, D)
    (W, U), (w, u) = layer.up.weight.split(HIDDEN), layer.up.bias.split(HIDDEN)
    hidden = ACTS[act](x @ W.T + w) * (x @ U.T + u)
    close(layer(x), hidden @ layer.down.weight.T + layer.down.bias, activation)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_pre_norm(norm):
    """x + Sublayer(Norm(x)), three times."""
    made, x, context = block(cross=True, norm=norm), normal(B, T, D), normal(B, S, D)
    n, y = made.norms, x
    y = y + made.attention(n["attention"](y))
    y = y + made.cross(n["cross"](y), context)
    y = y + made.feedforward(n["feedforward"](y))
    close(made(x, context), y, "pre-norm")


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_post_norm(norm):
    """Norm(x + Sublayer(x)), three times."""
    made, x, context = block(cross=True, norm=norm, norm_place="post"), normal(B, T, D), normal(B, S, D)
    n, y = made.norms, x
    y = n["attention"](y + made.attention(y))
    y = n["cross"](y + made.cross(y, context))
    y = n["feedforward"](y + made.feedforward(y))
    close(made(x, context), y, "post-norm")


@pytest.mark.parametrize("place", ["pre", "post"])
def test_without_residual_connections(place):
    """Sublayer(Norm(x)) or Norm(Sublayer(x)), three times: nothing of the input is added."""
    made, x, context = block(cross=True, residual=False, norm_place=place), normal(B, T, D), normal(B, S, D)
    y = x
    for part, layer in [
        ("attention", made.attention),
        ("cross", lambda y: made.cross(y, context)),
        ("feedforward", made.feedforward),
    ]:
        norm = made.norms[part]
        y = layer(norm(y)) if place == "pre" else norm(layer(y))
    close(made(x, context), y, "no residual connection")


@pytest.mark.parametrize("place", ["pre", "post"])
def test_without_norms(place):
    made, x = block(cross=False, norm="none", norm_place=place), normal(B, T, D)
    y = x + made.attention(x)
    close(made(x), y + made.feedforward(y), "x + Sublayer(x)")
    assert not list(made.norms.parameters())


def test_a_stack_is_its_blocks_one_after_the_other():
    for final_norm in (True, False):
        config = BlockConfig(**SIZES, dropout=0.0)
        stack = Stack(
            config, build_position(config), depth=3, causal=False, cross=False, final_norm=final_norm
        ).double()
        x = y = normal(B, T, D)
        for layer in stack.blocks:
            y = layer(y)
        close(stack(x), F.layer_norm(y, (D,)) if final_norm else y, f"final_norm={final_norm}")
        assert len({id(p) for p in stack.parameters()}) == len(list(stack.parameters()))  # clones share nothing


def test_blocks_equal_pytorchs_layers():
    """A post-norm and a pre-norm encoder layer of torch.nn, with the same weights."""
    for place in ("pre", "post"):
        ours = block(cross=False, norm_place=place, activation="relu")
        theirs = torch.nn.TransformerEncoderLayer(
            D, 3, HIDDEN, dropout=0.0, batch_first=True, norm_first=place == "pre", dtype=torch.float64
        )
        with torch.no_grad():
            joined = [ours.attention.query, ours.attention.key_value]
            theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in joined]))
            theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in joined]))
        theirs.self_attn.out_proj.load_state_dict(ours.attention.out.state_dict())
        theirs.linear1.load_state_dict(ours.feedforward.up.state_dict())
        theirs.linear2.load_state_dict(ours.feedforward.down.state_dict())
        theirs.norm1.load_state_dict(ours.norms["attention"].state_dict())
        theirs.norm2.load_state_dict(ours.norms["feedforward"].state_dict())
        x = normal(B, T, D)
        close(ours(x), theirs(x), f"{place}-norm layer of torch.nn")


def test_residual_dropout_is_in_training_only():
    made, x = block(cross=False, dropout=0.5), normal(B, T, D)
    assert not torch.equal(made(x), made(x))
    made.eval()
    assert torch.equal(made(x), made(x))


def test_beams_are_further_queries_to_one_context():
    """A cached context of M rows serves B = M · beams rows of queries."""
    from regard.nn.cache import KeyValues

    made, x, context = block(cross=True), normal(6, 1, D), normal(2, S, D)
    cache = KeyValues(S, fixed=True)
    made(x[:2], context, context_cache=cache)
    rows = torch.arange(2).repeat_interleave(3)
    close(made(x, context_cache=cache), made(x, context[rows]), "three beams of two sentences")


def test_glorot_takes_a_fused_matrix_for_the_two_that_it_holds():
    config = BlockConfig(dim=40, heads=4, head_dim=16, kv_heads=2, ffn_dim=90, max_len=8)
    made = Block(config, Position(dim=40, heads=4, head_dim=16, max_len=8), causal=False, cross=True)
    glorot(made)
    for name, matrix in made.named_parameters():
        if matrix.dim() != 2:
            continue
        parts = matrix.chunk(2) if "key_value" in name else [matrix]
        for part in parts:
            fan_out, fan_in = part.shape
            bound = math.sqrt(6 / (fan_in + fan_out))
            assert part.abs().max() <= bound, f"{name} exceeds its bound"
            assert part.abs().max() > 0.97 * bound, f"{name} does not fill its bound"
            assert math.isclose(part.var().item(), bound**2 / 3, rel_tol=0.15), name
    for name, vector in made.named_parameters():
        if name.endswith("bias"):
            assert vector.eq(0).all(), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(dropout=1.0), "dropout=1.0 is not in"),
        (dict(ffn_dropout=-0.1), "ffn_dropout=-0.1 is not in"),
        (dict(heads=0), "heads=0 must be at least 1"),
        (dict(dim=0), "dim=0 must be at least 1"),
        (dict(heads=5), "heads=5 does not divide dim=12; use 4"),
        (dict(kv_heads=2), "kv_heads=2 does not divide heads=3"),
        (dict(kv_heads=1, qkv="two"), "qkv=two has a key for each query head, got kv_heads=1; leave kv_heads unset"),
        (dict(reversible=True, residual=False), "reversible layers are residual connections"),
    ],
)
def test_wrong_sizes(wrong, message):
    with pytest.raises(ValueError, match=message):
        BlockConfig(**SIZES | wrong)
