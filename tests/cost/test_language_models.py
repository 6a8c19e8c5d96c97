"""Counted parameters, FLOPs and caches of language models: against built ones, and against published figures."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from regard.models import BertConfig, GPTConfig, T5Config, preset
from regard.models.recurrent import GRUConfig, LSTMConfig, RNNConfig
from tests.cost.test_activation_memory import answer, build, inputs
from tests.cost.test_counts import total

SHAPE = B, T, S = 3, 7, 11
SMALL = dict(vocab_size=23, dim=24, heads=4, ffn_dim=20, depth=2, max_len=32, dropout=0.0)

blocks = dict(
    vocab_size=st.integers(1, 40),
    dim=st.sampled_from((8, 16, 24)),
    heads=st.sampled_from((2, 4)),
    kv_heads=st.sampled_from((None, 1, 2)),
    head_dim=st.sampled_from((None, 2, 6)),
    ffn_dim=st.integers(1, 30),
    activation=st.sampled_from(("relu", "gelu", "gelu-tanh", "silu", "relu2")),
    norm=st.sampled_from(("layer", "rms")),
    norm_place=st.sampled_from(("pre", "post")),
    bias=st.booleans(),
    kernel=st.sampled_from(("full", "dot", "normalized", "additive", "general")),
    position=st.sampled_from(("none", "learned", "concatenated", "rotary:base=7", "alibi", "relative:buckets=6,far=9")),
    max_len=st.integers(8, 20),
    depth=st.integers(1, 3),
)
# Sizes, not configs: checking a tuple of labels draws from `random`, which a strategy must not.
every_size = {
    GPTConfig: dict(blocks, tie=st.booleans(), final_norm=st.booleans(), zero_init=st.booleans()),
    T5Config: dict(
        blocks, tie=st.sampled_from(("all", "inputs", "output", "none")), head_bias=st.booleans(),
        decoder_depth=st.sampled_from((None, 1)), embedding_norm=st.booleans(),
    ),
    BertConfig: dict(
        blocks, embedding_dim=st.sampled_from((None, 4, 8)), types=st.integers(0, 3), shared=st.booleans(),
        task=st.sampled_from(("none", "mask", "pretrain", "classify", "tag", "answer")),
        labels=st.sampled_from((("a",), ("a", "b", "c"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("config_class", every_size)
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_parameters(config_class, data):
    config = config_class(**data.draw(st.fixed_dictionaries(every_size[config_class])))
    assert total(config) == sum(p.numel() for p in build_on_meta(config).parameters())


def build_on_meta(config):
    with torch.device("meta"):
        return build(config)


@pytest.mark.parametrize("config_class", [RNNConfig, GRUConfig, LSTMConfig])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_recurrent_parameters(config_class, depth):
    config = config_class(vocab_size=13, dim=10, depth=depth)
    assert total(config) == sum(p.numel() for p in build_on_meta(config).parameters())


@pytest.mark.parametrize("pooler", [True, False])
def test_a_pooler_is_counted_where_there_is_one(pooler):
    config = BertConfig(**SMALL, task="mask", pooler=pooler)
    assert total(config) == sum(p.numel() for p in build_on_meta(config).parameters())
    assert ("pooler" in cost(config).parameters) is pooler


@pytest.mark.parametrize(
    ("name", "changes", "parameters"),
    [
        ("gpt:gpt2", {}, 124_439_808),
        ("gpt:gpt2-xl", {}, 1_557_611_200),
        ("gpt:llama-2-7b", {}, 6_738_415_616),
        ("gpt:llama-3-8b", {}, 8_030_261_248),
        ("bert:bert-base", dict(task="none"), 109_482_240),
        ("bert:bert-large", dict(task="none"), 335_141_888),
        ("bert:distilbert-base", dict(task="none"), 66_362_880),
        ("bert:albert-base", dict(task="none"), 11_683_584),
        ("bert:minilm-l6", dict(task="none"), 22_713_216),
        ("t5:t5-small", {}, 60_506_624),
        ("t5:t5-base", {}, 222_903_552),
        ("t5:t5-1.1-base", {}, 247_577_856),
    ],
)
def test_published_sizes(name, changes, parameters):
    assert cost(preset(*name.split(":"), **changes)).parameters["total"] == parameters


def test_sizes_equal_those_of_transformers():
    """The same shapes built by somebody else, which take no memory on the meta device."""
    import transformers as theirs

    albert = theirs.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    with torch.device("meta"):
        pairs = {
            "gpt:gpt2": theirs.GPT2LMHeadModel(theirs.GPT2Config()),
            "bert:bert-base": theirs.BertForPreTraining(theirs.BertConfig()),
            "bert:albert-base": theirs.AlbertForPreTraining(albert),
            "bert:distilbert-base": theirs.DistilBertForMaskedLM(theirs.DistilBertConfig()),
            "t5:t5-small": theirs.T5ForConditionalGeneration(theirs.T5Config()),
        }
    for name, model in pairs.items():
        assert cost(preset(*name.split(":"))).parameters["total"] == model.num_parameters(), name


def measured_flops(config):
    """Forward and training, as PyTorch counts where it can see: not in fused kernels, not in oneDNN's LSTM."""
    model = build(config).double()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        scores = answer(model, inputs(model, SHAPE))
        forward = counter.get_total_flops()
        scores.backward()
    return forward, counter.get_total_flops()


FLOPS = {
    "gpt": GPTConfig(**SMALL),
    "gpt, like Llama": GPTConfig(**SMALL, kv_heads=2, norm="rms", activation="swiglu", bias=False, tie=False),
    "gpt, concatenated": GPTConfig(**SMALL, position="concatenated"),
    "gpt, normalized": GPTConfig(**SMALL, kernel="normalized"),
    "bert, mask": BertConfig(**SMALL, task="mask"),
    "bert, pretrain": BertConfig(**SMALL),
    "bert, like ALBERT": BertConfig(**SMALL, embedding_dim=12, shared=True),
    "bert, none": BertConfig(**SMALL, task="none", position="concatenated"),
    "bert, classify": BertConfig(**SMALL, task="classify", labels=("a", "b", "c")),
    "bert, tag": BertConfig(**SMALL, task="tag", labels=("a", "b", "c")),
    "bert, answer": BertConfig(**SMALL, task="answer"),
    "t5": T5Config(**SMALL),
    "t5, gated": T5Config(**SMALL, activation="geglu-tanh", tie="inputs", head_scale=False),
}


@pytest.mark.parametrize("name", FLOPS)
def test_flops(name):
    config = FLOPS[name]
    found = cost(config, batch=B, length=T, source_length=S).flops
    assert (found.forward, found.training) == measured_flops(config)


@pytest.mark.parametrize("config_class", [RNNConfig, GRUConfig, LSTMConfig])
@pytest.mark.parametrize("depth", [1, 2])
def test_recurrent_flops(config_class, depth):
    config = config_class(vocab_size=13, dim=10, depth=depth)
    found = cost(config, batch=B, length=T).flops
    forward, training = measured_flops(config)
    assert found.forward == forward
    assert found.training == pytest.approx(training, rel=0.03)  # the first state needs no gradient


@pytest.mark.parametrize("changes", [{}, dict(kv_heads=2), dict(head_dim=10, kv_heads=1, depth=1)])
def test_cache(changes):
    config = GPTConfig(**SMALL | changes)
    model = build(config).eval()
    cache = model.new_cache(T)
    with torch.no_grad():
        model.prefill(torch.randint(23, (B, T)), cache)
    found = cost(config, batch=B, length=T).memory.cache
    assert found == {"self": sum(layer.k.nbytes + layer.v.nbytes for layer in cache.own)}


@pytest.mark.parametrize("config_class", [RNNConfig, GRUConfig, LSTMConfig])
@pytest.mark.parametrize("depth", [1, 2])
def test_recurrent_cache_does_not_grow(config_class, depth):
    config = config_class(vocab_size=13, dim=10, depth=depth)
    model = build(config).eval()
    cache = model.new_cache(T)
    with torch.no_grad():
        model.prefill(torch.randint(13, (B, T)), cache)
    short, long = (cost(config, batch=B, length=n).memory.cache for n in (T, 100 * T))
    assert short == long == {"state": sum(part.nbytes for part in cache.state)}


def test_a_shared_block_is_stored_once_and_runs_at_every_depth():
    apart, shared = (cost(BertConfig(**SMALL | {"depth": 5}, shared=shared), length=T) for shared in (False, True))
    for part in ("attention", "feedforward", "norms"):
        assert apart.parameters[part] == 5 * shared.parameters[part]
    assert apart.flops == shared.flops and apart.memory.activations == shared.memory.activations


def test_one_text_has_no_source():
    for config in (GPTConfig(), BertConfig(), LSTMConfig()):
        found = cost(config, batch=2, length=9, training=True)
        assert list(found.flops_per_token) == ["any"] and "source" not in found.render()
        assert "source_length" not in found.to_dict()
        assert found.flops == found.flops_per_token["any"] * 18 + dataclasses.replace(
            found.flops, matrices=2 * found.flops_per_sequence, attention=0
        )
    assert "source length" in cost(T5Config()).render()
    assert "only hidden tokens reach it" in cost(BertConfig(), training=True).render()


def test_a_model_that_labels_has_no_scores_over_the_vocabulary():
    text = cost(BertConfig(task="classify", labels=("a", "b")), training=True).render()
    assert "vocabulary" not in text and "scores" not in text and "cache" not in text


def test_the_usual_length_is_within_the_models_reach():
    assert cost(preset("bert", "bert-base")).setting.length == 512
    assert cost(preset("gpt", "gpt2")).setting.length == 1024
    with pytest.raises(ValueError, match="position 512 has no learned vector, max_len=512"):
        cost(preset("bert", "bert-base"), length=513)


def test_settings_in_names_are_counted():
    few, usual = (cost(GPTConfig(**SMALL, position=name)) for name in ("relative:buckets=8,far=20", "relative"))
    assert few.parameters["positions"] == 8 * 4 and usual.parameters["positions"] == 32 * 4
    with pytest.raises(ValueError, match="no setting 'bucket'; did you mean 'buckets'"):
        cost(GPTConfig(**SMALL, position="relative:bucket=8"))
