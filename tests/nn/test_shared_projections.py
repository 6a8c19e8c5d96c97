"""Attention with one or two matrices for queries, keys and values, against full attention with copies of them."""

import pytest
import torch

from regard.doctor.laws import close
from regard.hub.maps.gpt2 import GPT2
from regard.models.gpt import GPTConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.block import BlockConfig
from regard.nn.masks import causal
from regard.nn.positions import Rotary
from regard.nn.shared_projections import SHARING
from regard.nn.stack import Stack, build_position, glorot, init_keys_as_queries

SIZES = dict(dim=10, heads=3, head_dim=4, max_len=17)


def pair(kind, position=None, **changes):
    """A layer that shares matrices, and a plain one whose separate matrices are copies of its own."""
    config = AttentionConfig(**SIZES | changes)
    shared, plain = SHARING[kind](config, position).double(), Attention(config, position).double()
    values = shared.query if kind == "one" else shared.key_value
    with torch.no_grad():
        for mine, other in [("query", shared.query), ("out", shared.out)]:
            getattr(plain, mine).load_state_dict(other.state_dict())
        plain.key_value.weight.copy_(torch.cat([shared.query.weight, values.weight]))
        plain.key_value.bias.copy_(torch.cat([shared.query.bias, values.bias]))
    return shared, plain


@pytest.mark.parametrize("kind", ["one", "two"])
def test_equals_separate_matrices_that_are_copies(kind):
    rotary = Rotary(dim=10, heads=3, head_dim=4, max_len=17)
    x, context = torch.randn(2, 7, 10, dtype=torch.float64), torch.randn(2, 5, 10, dtype=torch.float64)
    shared, plain = pair(kind, rotary)
    close(shared(x, mask=causal()), plain(x, mask=causal()), "self-attention")
    shared, plain = pair(kind)
    close(shared(x, context), plain(x, context), "cross-attention")


@pytest.mark.parametrize(("kind", "matrices"), [("one", 2), ("two", 3), ("three", 4)])
def test_the_number_of_matrices(kind, matrices, monkeypatch):
    config = BlockConfig(dim=12, heads=3, ffn_dim=8, max_len=17, qkv=kind)
    built, linear = [], torch.nn.Linear.__init__
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Linear, "__init__", lambda self, *a, **k: (built.append(self), linear(self, *a, **k))[1])
        layer = SHARING.get(kind, Attention)(AttentionConfig(**SIZES))
    assert {*built} == {part for part in layer.modules() if isinstance(part, torch.nn.Linear)}, "nothing for nothing"
    stack = Stack(config, build_position(config), depth=1, causal=False, final_norm=False)
    glorot(stack)
    init_keys_as_queries(stack)
    assert sum(p.numel() for p in stack.blocks[0].attention.parameters() if p.dim() == 2) == matrices * 12 * 12


def test_scores_of_one_matrix_for_queries_and_keys_are_symmetric():
    layer, _ = pair("two")
    q, k, _ = layer.project(torch.randn(1, 6, 10, dtype=torch.float64))
    scores = q @ k.mT
    close(scores, scores.mT, "i scores j as j scores i")


@pytest.mark.parametrize("changes", [dict(qkv="two"), dict(residual=False), dict(norm="none")])
def test_published_formats_refuse_what_they_have_no_name_for(changes):
    sizes = dict(vocab_size=19, dim=8, heads=2, ffn_dim=16, max_len=16, position="learned")
    assert GPT2.misfits(GPTConfig(**sizes)) == []
    (name, value), = changes.items()  # fmt: skip
    assert GPT2.misfits(GPTConfig(**sizes, **changes)) == [
        f"{name}={value!r} would have to be {dict(qkv='three', residual=True, norm='layer')[name]!r}"
    ]
