"""Settings of kernels that make no sense, and inputs without a single query."""

import pytest
import torch

from regard.models import GPT, GPTConfig, Transformer, TransformerConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import build_kernel
from regard.nn.masks import causal
from regard.nn.positions import Alibi

EFFICIENT = ["window", "sparse", "topk", "linear", "performer", "linformer", "reformer"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("window:radius=-1", "radius=-1 must be at least 0"),
        ("window:chunk=0", "chunk=0 must be at least 1"),
        ("sparse:stride=0", "stride=0 must be at least 1"),
        ("sparse:tokens=-1", "tokens=-1 must be at least 0"),
        ("topk:k=0", "k=0 must be at least 1"),
        ("topk:temperature=-1", "temperature=-1.0 must be at least 0"),
        ("linear:chunk=0", "chunk=0 must be at least 1"),
        ("performer:features=-4", "features=-4 must be at least 1"),
        ("performer:redraw=-1", "redraw=-1 must be at least 0"),
        ("linformer:rank=0", "rank=0 must be at least 1"),
        ("reformer:buckets=7", "buckets=7 come in pairs.*use an even number"),
        ("reformer:rounds=0", "rounds=0 must be at least 1"),
        ("window:raduis=3", "no setting 'raduis'; did you mean 'radius'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        build_kernel(name, heads=2, head_dim=8)


@pytest.mark.parametrize("name", EFFICIENT)
def test_no_queries_give_no_answers(name):
    kernel = build_kernel(name, heads=2, head_dim=8)
    q = torch.randn(3, 2, 0, 8)
    assert kernel(q, q, q)[0].shape == q.shape


@pytest.mark.parametrize("name", EFFICIENT)
def test_nothing_is_made_on_another_device(name):
    kernel = build_kernel(name, heads=2, head_dim=8).to("meta")
    q = torch.randn(1, 2, 70, 8, device="meta")
    if name != "linformer":  # asks whether all of its slots are filled, which has no answer there
        assert kernel(q, q, q, mask=causal() if kernel.causal else None)[0].shape == q.shape


def test_what_a_model_asks_for_and_a_kernel_cannot_do_fails_when_it_is_built():
    sizes = dict(vocab_size=11, dim=16, heads=2, ffn_dim=8, depth=1)
    with pytest.raises(ValueError, match="cannot attend from one sequence to another.*--model.cross-kernel full"):
        Transformer(TransformerConfig(**sizes, kernel="window"))
    assert Transformer(TransformerConfig(**sizes, kernel="window", cross_kernel="full"))
    with pytest.raises(ValueError, match="'linformer' cannot hide the future or decode step by step; these can"):
        GPT(GPTConfig(**sizes, kernel="linformer"))
    with pytest.raises(ValueError, match="'linear' cannot take positions as a bias.*--model.position rotary"):
        GPT(GPTConfig(**sizes, kernel="linear", position="alibi"))
    with pytest.raises(ValueError, match="'window' cannot drop weights"):
        GPT(GPTConfig(**sizes, kernel="window", attention_dropout=0.1))
    with pytest.raises(ValueError, match="'reformer' has a key for each query head; leave kv_heads unset"):
        GPT(GPTConfig(**sizes, kernel="reformer", kv_heads=1))


def test_a_layer_drops_neither_a_bias_nor_a_context():
    x = torch.randn(1, 5, 16)
    bias = Alibi(dim=16, heads=2, head_dim=8, max_len=5).bias()
    with pytest.raises(ValueError, match="Linear attention takes no bias; full does"):
        Attention(AttentionConfig(dim=16, heads=2, kernel="linear"))(x, bias=bias)
    with pytest.raises(ValueError, match="Reformer attention takes no context; full does"):
        Attention(AttentionConfig(dim=16, heads=2, kernel="reformer"))(x, x)
