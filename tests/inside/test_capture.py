"""Looking never changes the answer, and what is seen is what the model did."""

import math

import pytest
import torch
from torch import nn

from regard.inside.capture.weights import cross_attention, look
from regard.models import Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import KeyValues
from regard.nn.kernels import Kernel
from regard.nn.masks import causal, padding

B, S, T, V = 3, 7, 5, 23


def transformer(**changes) -> Transformer:
    sizes = dict(vocab_size=V, dim=24, depth=2, heads=6, ffn_dim=29, max_len=32, dropout=0.0)
    return Transformer(TransformerConfig(**(sizes | changes))).eval()


def seq2seq(score: str = "additive", **changes) -> Seq2Seq:
    return Seq2Seq(Seq2SeqConfig(vocab_size=V, dim=14, score=score, dropout=0.0, **changes)).eval()


def batch() -> dict[str, torch.Tensor]:
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    return dict(source=source, lengths=torch.tensor([S, 4, 6]), target=target)


def models() -> list:
    return [transformer(), *(seq2seq(score) for score in ("additive", "dot", "general"))]


SHAPES = [
    dict(), dict(kv_heads=2), dict(position="alibi"), dict(position="relative"), dict(position="rotary"),
    dict(kernel="additive"), dict(kernel="general"),
]  # fmt: skip


@pytest.mark.parametrize("changes", SHAPES)
def test_output_and_gradient_are_the_same_bit_for_bit(changes):
    model, inputs = transformer(**changes), batch()
    without = model(**inputs)
    without.sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    with look(model):
        within = model(**inputs)
    assert torch.equal(without, within)
    within.sum().backward()
    assert all(torch.equal(before[name], p.grad) for name, p in model.named_parameters() if p.grad is not None)


@pytest.mark.parametrize("score", ["additive", "dot", "general"])
def test_recurrent_output_is_the_same_bit_for_bit(score):
    model, inputs = seq2seq(score), batch()
    without = model(**inputs)
    with look(model) as seen:
        assert torch.equal(without, model(**inputs))
    assert seen.names == ["kernel"] and seen.attention["kernel"].shape == (B, 1, T, S)


@pytest.mark.parametrize("make", [transformer, seq2seq])
def test_training_draws_the_same_random_numbers(make):
    dropouts = dict(dropout=0.3) if make is seq2seq else dict(dropout=0.3, attention_dropout=0.3)
    model = Seq2Seq(Seq2SeqConfig(vocab_size=V, dim=14, dropout=0.3)) if make is seq2seq else make(**dropouts)
    model.train()
    inputs = batch()
    torch.manual_seed(5)
    without, state = model(**inputs), torch.get_rng_state()
    torch.manual_seed(5)
    with look(model):
        within = model(**inputs)
    assert torch.equal(without, within) and torch.equal(state, torch.get_rng_state())


def test_a_kernel_that_draws_random_numbers_does_not_move_the_generator():
    class Noisy(type(transformer().encoder.blocks[0].attention.kernel)):
        def forward(self, q, k, v, **how):
            return super().forward(q + torch.randn(()), k, v, **how)

    model, inputs = transformer(), batch()
    model.encoder.blocks[0].attention.kernel = Noisy(heads=6, head_dim=4)
    torch.manual_seed(5)
    without = model(**inputs), torch.get_rng_state()
    torch.manual_seed(5)
    with look(model):
        within = model(**inputs), torch.get_rng_state()
    assert torch.equal(without[0], within[0]) and torch.equal(without[1], within[1])


@pytest.mark.parametrize("changes", SHAPES)
def test_weights_are_a_distribution_over_what_may_be_seen(changes):
    model, inputs = transformer(**changes), batch()
    with look(model) as seen:
        model(**inputs)
    hidden = ~padding(inputs["lengths"]).dense(1, S)
    for name, weights in seen.attention.items():
        assert weights.dtype == torch.float32 and not weights.requires_grad and weights.min() >= 0
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if name.startswith("encoder") or name.endswith("cross"):
            assert not weights.masked_select(hidden).any()
        else:
            assert not weights.triu(1).any()


def test_names_kinds_and_keys():
    model = transformer()
    with look(model) as seen:
        assert seen.names == [] and len(seen.attention) == 0
        model(**batch())
    assert seen.names == [
        "encoder.blocks.0.attention", "encoder.blocks.1.attention", "decoder.blocks.0.attention",
        "decoder.blocks.0.cross", "decoder.blocks.1.attention", "decoder.blocks.1.cross",
    ]  # fmt: skip
    assert [w.shape[2:] for w in seen.of("encoder")] == [(S, S)] * 2
    assert [w.shape[2:] for w in seen.of("decoder")] == [(T, T)] * 2
    assert [w.shape[2:] for w in seen.of("cross")] == [(T, S)] * 2
    assert len(seen.of("self")) == 4 and seen.of("recurrent") == []
    assert torch.equal(seen.attention[3], seen.attention["decoder.blocks.0.cross"])
    assert torch.equal(seen.attention[-1, 4], seen.attention["decoder.blocks.1.cross"][:, 4])
    with pytest.raises(ValueError, match="did you mean 'cross'"):
        seen.of("crosss")
    with pytest.raises(ValueError, match="did you mean 'decoder.blocks.1.cross'"):
        seen.attention["decoder.blocks.1.gross"]
    with pytest.raises(ValueError, match="the model has 6, 0 to 5"):
        seen.attention[6]


def test_recurrent_attention_is_cross_attention():
    model = seq2seq()
    with look(model) as seen:
        model(**batch())
    assert len(seen.of("cross")) == len(seen.of("recurrent")) == 1 and seen.of("self") == []


@pytest.mark.parametrize("changes", SHAPES)
def test_some_layers_and_heads_equal_all_of_them(changes):
    model, inputs = transformer(**changes), batch()
    with look(model) as every:
        model(**inputs)
    with look(model, layers=[0, "decoder.*.cross", 0], heads=[5, 1]) as some:
        model(**inputs)
    assert some.names == ["encoder.blocks.0.attention", "decoder.blocks.0.cross", "decoder.blocks.1.cross"]
    for name in some.names:
        torch.testing.assert_close(some.attention[name], every.attention[name][:, [5, 1]])
        assert torch.equal(some.attention[name, 1], some.attention[name][:, 1])
    with pytest.raises(ValueError, match="head 0 was not seen; seen: 5, 1"):
        some.attention[0, 0]
    with pytest.raises(ValueError, match="was not seen: ask for it"):
        some.attention[1]


def test_layers_by_kind_compute_nothing_else(monkeypatch):
    model, shapes = transformer(), []
    kernel = type(model.encoder.blocks[0].attention.kernel)
    plain = kernel.forward

    def spy(self, q, k, v, *, weights=False, **how):
        if weights:
            shapes.append((q.shape[1], q.shape[2], k.shape[2]))
        return plain(self, q, k, v, weights=weights, **how)

    monkeypatch.setattr(kernel, "forward", spy)
    with look(model, layers="cross", heads=3) as seen:
        model(**batch())
    assert shapes == [(1, T, S)] * 2 and seen.names == seen.names_of("cross")


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        (dict(layers=9), "no attention layer 9: the model has 6, 0 to 5"),
        (dict(layers="encode"), "did you mean 'encoder'"),
        (dict(heads=6), "has no head 6: it has 6, 0 to 5"),
    ],
)
def test_what_is_not_there_is_said_at_once(wrong, cure):
    with pytest.raises(ValueError, match=cure), look(transformer(), **wrong):
        pass


@pytest.mark.parametrize("model", [nn.Linear(3, 3), seq2seq("none")])
def test_without_attention_there_is_nothing_to_look_at(model):
    with pytest.raises(ValueError, match="no attention to look at; build it from"), look(model):
        pass


def test_hooks_are_removed_even_after_an_error():
    model = transformer()
    with pytest.raises(KeyError), look(model):
        raise KeyError
    with look(model):
        pass
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_equals_a_computation_by_hand():
    layer = Attention(AttentionConfig(dim=4, heads=1, bias=False))
    with torch.no_grad():
        layer.query.weight.copy_(torch.eye(4))
        layer.key_value.weight.copy_(torch.cat([torch.eye(4), torch.eye(4)]))
    x = torch.tensor([[[1.0, 0, 0, 0], [0, 2, 0, 0]]])
    with look(layer) as seen:
        layer(x, mask=causal())
    e = math.exp(2.0)  # 2 · 2 / √4
    torch.testing.assert_close(seen.attention[0], torch.tensor([[[[1, 0], [1 / (1 + e), e / (1 + e)]]]]))


@pytest.mark.parametrize("cross", [False, True])
def test_equals_pytorch_multihead_attention(cross):
    theirs = nn.MultiheadAttention(24, 6, batch_first=True).eval()
    ours = Attention(AttentionConfig(dim=24, heads=6))
    with torch.no_grad():
        for part in ("weight", "bias"):
            fused = getattr(theirs, f"in_proj_{part}").uniform_(-1, 1)
            getattr(ours.query, part).copy_(fused[:24])
            getattr(ours.key_value, part).copy_(fused[24:])
    x, lengths = torch.randn(B, T, 24), torch.tensor([4, 5, 2])
    context = torch.randn(B, T, 24) if cross else x
    hidden = torch.arange(T) >= lengths[:, None]
    _, expected = theirs(x, context, context, key_padding_mask=hidden, average_attn_weights=False)
    with look(ours) as seen:
        ours(x, context if cross else None, mask=padding(lengths))
    torch.testing.assert_close(seen.attention[0], expected)
    assert len(seen.of("cross" if cross else "encoder")) == 1


@pytest.mark.parametrize("make", models())
def test_cached_decoding_joins_to_the_full_forward(make):
    model, inputs = make.double(), batch()
    prefix, lengths = inputs["target"], inputs["lengths"]
    with torch.no_grad():
        with look(model) as whole:
            model(**inputs)
        with look(model) as steps:
            cache = model.new_cache(T)
            model.prefill(prefix[:, :2], cache, source=inputs["source"], lengths=lengths)
            for t in range(2, T):
                model.step(prefix[:, t], cache)
    assert steps.names == whole.names
    for name in whole.names:
        torch.testing.assert_close(steps.attention[name], whole.attention[name])


def test_several_inputs_are_not_mixed():
    model, inputs = seq2seq(), batch()
    with look(model) as seen:
        model(**inputs)
        first = seen.attention[0]
        model(**(inputs | dict(source=inputs["source"].flip(1))))
        with pytest.raises(ValueError, match=r"run 2 times; .*seen.clear\(\)"):
            seen.attention[0]
        assert len(seen.passes(0)) == 2 and torch.equal(seen.passes(0)[0], first)
        seen.clear()
        model(**inputs)
        assert torch.equal(seen.attention[0], first)


@pytest.mark.parametrize("model", models())
def test_two_targets_of_one_source_stay_two_passes(model):
    inputs, other = batch(), torch.randint(V, (B, T))
    name = "kernel" if isinstance(model, Seq2Seq) else "decoder.blocks.1.cross"
    with torch.no_grad(), look(model, layers=name) as seen:
        model(**inputs)
        alone = seen.attention[name]
        model(**(inputs | dict(target=other)))
    first, second = seen.passes(name)
    assert torch.equal(first, alone) and second.shape == first.shape
    with pytest.raises(ValueError, match="was run 2 times; look at one input"):
        seen.attention[name]


def test_heads_are_looked_for_only_where_a_kind_is():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = Attention(AttentionConfig(dim=12, heads=2))
            self.across = Attention(AttentionConfig(dim=12, heads=4))

        def forward(self, x, context):
            return self.across(self.own(x), context)

    model, x = Two(), torch.randn(B, T, 12)
    with look(model, layers="cross", heads=3) as seen:
        model(x, x[:, 1:])
    assert seen.names == ["across"] and seen.attention["across", 3].shape == (B, T, T - 1)
    with pytest.raises(ValueError, match="own has no head 3: it has 2"), look(model, layers="self", heads=3):
        model(x, x[:, 1:])


def test_works_on_a_users_own_module():
    class Pooler(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 12))
            self.reader = Attention(AttentionConfig(dim=12, heads=3, kv_heads=1))

        def forward(self, x):
            return self.reader(self.token.expand(len(x), -1, -1), x)

    model = Pooler()
    with look(model, heads=2) as seen:
        model(torch.randn(B, S, 12))
    assert seen.names == ["reader"] and seen.of("cross")[0].shape == (B, 1, 1, S)


def test_a_fixed_context_is_cross_attention_at_every_step():
    layer, x = Attention(AttentionConfig(dim=12, heads=3)), torch.randn(1, T, 12)
    cache = KeyValues(S, fixed=True)
    with torch.no_grad(), look(layer) as seen:
        layer(x[:, :1], torch.randn(1, S, 12), cache=cache)
        for t in range(1, T):
            layer(x[:, t : t + 1], cache=cache)
    assert seen.of("cross")[0].shape == (1, 3, T, S)


def test_half_precision_weights_still_sum_to_one():
    model, inputs = transformer().bfloat16(), batch()
    with torch.no_grad(), look(model, layers="decoder") as seen:
        model(**inputs)
    torch.testing.assert_close(seen.attention[2].sum(-1), torch.ones(B, 6, T))


def test_a_kernel_without_weights_says_so():
    class Opaque(Kernel):
        def forward(self, q, k, v, **how):
            return q, None

    with pytest.raises(ValueError, match="kernel Opaque has no weights"), look(kernel := Opaque(heads=1, head_dim=3)):
        kernel(*torch.randn(3, 1, 1, 2, 3))


def test_alignment_is_the_mean_over_layers_and_heads():
    model, inputs = transformer(dropout=0.5).train(), batch()
    model.encoder.eval()
    found = cross_attention(model, inputs)
    assert model.training and not model.encoder.training  # as it was
    with look(model.eval()) as seen:
        model(**inputs)
    every = torch.stack(seen.of("cross"))
    torch.testing.assert_close(found, every.mean(dim=(0, 2)))
    torch.testing.assert_close(cross_attention(model, inputs, layer=1), every[1].mean(1))
    torch.testing.assert_close(cross_attention(model, inputs, layer=0, head=4), every[0][:, 4])
    with pytest.raises(ValueError, match="no cross-attention layer 2"):
        cross_attention(model, inputs, layer=2)


def test_alignment_of_recurrent_models():
    inputs = batch()
    for score in ("additive", "dot", "general"):
        found = cross_attention(seq2seq(score), inputs)
        torch.testing.assert_close(found.sum(-1), torch.ones(B, T))
    with pytest.raises(ValueError, match="has no attention to look at.*score additive, dot or general"):
        cross_attention(seq2seq("none"), inputs)


def test_what_was_seen_is_told_and_drawn_by_its_numbers():
    model = transformer()
    with look(model, layers=1, heads=[2, 4]) as seen:
        assert repr(seen) == "Seen(nothing yet)"
        model(**batch())
        assert repr(seen) == f"Seen(encoder.blocks.1.attention: ({B}, 2, {S}, {S}))"
        titles = [axes.get_title() for axes in seen.plot().axes]
        assert [title for title in titles if title] == ["head 2", "head 4"]
        model(**batch())
    assert repr(seen) == "Seen(encoder.blocks.1.attention: 2 passes)"
