"""Counted parameters, FLOPs and caches against models that were really built."""

import dataclasses
import itertools
import json
import re
import resource

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost, decoder_parameters, parameters
from regard.models import Bert, BertConfig, GPTConfig, Seq2Seq, Seq2SeqConfig, Transformer, TransformerConfig, preset
from regard.registry import kernels, models, positions

B, T, S = 3, 7, 11
SMALL = dict(vocab_size=23, dim=24, heads=4, ffn_dim=20, depth=2, max_len=32)
CELLS = ("rnn", "gru", "lstm")
SCORES = ("none", "additive", "dot", "general")


def built(family, config):
    """The number of parameters of the real model, which on the meta device takes no memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in family(config).parameters())


def total(config):
    return sum(parameters(config).values())


transformer_configs = st.builds(
    TransformerConfig,
    vocab_size=st.integers(1, 40),
    dim=st.sampled_from((8, 16, 24)),
    heads=st.sampled_from((2, 4)),
    kv_heads=st.sampled_from((None, 1, 2)),
    head_dim=st.sampled_from((None, 2, 6)),
    ffn_dim=st.integers(1, 30),
    activation=st.sampled_from(("relu", "gelu", "silu", "relu2", "swiglu", "geglu", "geglu-tanh")),
    norm=st.sampled_from(("layer", "rms")),
    norm_place=st.sampled_from(("pre", "post")),
    final_norm=st.sampled_from((None, True, False)),
    bias=st.booleans(),
    kernel=st.sampled_from(("full", "additive", "general", "normalized")),
    position=st.sampled_from(("none", "sinusoidal", "learned", "concatenated", "rotary", "alibi", "relative")),
    max_len=st.integers(8, 20),
    depth=st.integers(1, 3),
    decoder_depth=st.sampled_from((None, 1, 4)),
    tie=st.sampled_from(("all", "inputs", "output", "none")),
    head_bias=st.booleans(),
    embedding_norm=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(transformer_configs)
def test_transformer_parameters(config):
    assert total(config) == built(Transformer, config)


CHOICES = dict(
    tie=("all", "inputs", "output", "none"),
    head_bias=(True, False),
    norm=("layer", "rms"),
    final_norm=(None, True, False),
    norm_place=("pre", "post"),
    bias=(True, False),
)


@pytest.mark.parametrize("tie", CHOICES["tie"])
def test_transformer_parameters_full_product(tie):
    for values in itertools.product(*(CHOICES[name] for name in CHOICES if name != "tie")):
        chosen = dict(zip([name for name in CHOICES if name != "tie"], values, strict=True))
        config = TransformerConfig(**SMALL | {"depth": 1, "decoder_depth": 2}, tie=tie, **chosen)
        assert total(config) == built(Transformer, config), config


@pytest.mark.parametrize("kernel", list(kernels))
@pytest.mark.parametrize("position", list(positions))
def test_every_registered_kernel_and_position_has_a_cost(kernel, position):
    able = kernels[kernel]
    chosen = dict(SMALL, kernel=kernel, cross_kernel=kernel if able.crosses else "full", position=position)
    family, config_class = (Transformer, TransformerConfig) if able.causal else (Bert, BertConfig)
    config = config_class(**chosen)
    try:
        parameters = built(family, config)
    except ValueError as refused:  # a kernel that takes no bias: its cost is refused with the same words
        with pytest.raises(ValueError, match=re.escape(str(refused))):
            cost(config)
    else:
        assert total(config) == parameters


@pytest.mark.parametrize(("cell", "score", "depth"), list(itertools.product(CELLS, SCORES, (1, 2, 3))))
def test_seq2seq_parameters(cell, score, depth):
    config = Seq2SeqConfig(vocab_size=13, dim=10, cell=cell, score=score, depth=depth)
    assert total(config) == built(Seq2Seq, config)


@pytest.mark.parametrize("family", list(models))
def test_every_registered_model_and_preset_has_a_cost(family):
    for name in models[family].presets:
        config = preset(family, name)
        assert total(config) == built(models[family], config), name


def test_decoder_formula_equals_a_model():
    sizes = dict(depth=5, dim=96, vocab_size=211)
    config = GPTConfig(**sizes, heads=4, ffn_dim=4 * 96, max_len=64, position="learned")
    assert decoder_parameters(**sizes, context=64) == total(config) == cost(config).parameters["total"]


def measured_flops(model):
    """Forward and training, as PyTorch counts where it can see: not in fused kernels, not in oneDNN's LSTM."""
    source, target, lengths = torch.randint(13, (B, S)), torch.randint(13, (B, T)), torch.tensor([S] * B)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        scores = model.double()(source, lengths, target)
        forward = counter.get_total_flops()
        scores.sum().backward()
    return forward, counter.get_total_flops()


VARIANTS = {
    "plain": {},
    "depths": dict(depth=1, decoder_depth=3),
    "shared keys": dict(kv_heads=2),
    "wide heads": dict(head_dim=10, kv_heads=1),
    "swiglu": dict(activation="swiglu", bias=False),
    "untied": dict(tie="none", head_bias=True),
    "concatenated": dict(position="concatenated"),
    "rotary": dict(position="rotary", norm_place="post"),
    "relative": dict(position="relative", norm="rms"),
    "additive": dict(kernel="additive"),
    "general": dict(kernel="general"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_transformer_flops(name):
    config = TransformerConfig(**SMALL | VARIANTS[name])
    found = cost(config, batch=B, length=T, source_length=S)
    assert (found.flops.forward, found.flops.training) == measured_flops(Transformer(config))


@pytest.mark.parametrize(("cell", "score", "depth"), list(itertools.product(CELLS, SCORES, (1, 2))))
def test_seq2seq_flops(cell, score, depth):
    config = Seq2SeqConfig(vocab_size=13, dim=10, cell=cell, score=score, depth=depth)
    found = cost(config, batch=B, length=T, source_length=S)
    forward, training = measured_flops(Seq2Seq(config))
    assert found.flops.forward == forward
    assert found.flops.training == pytest.approx(training, rel=0.01)  # some first and last states need no gradient


def test_only_attention_grows_with_length():
    config = TransformerConfig(**SMALL)
    short, long = (cost(config, length=n).flops_per_token for n in (100, 200))
    for token in ("source", "target"):
        assert long[token].matrices == short[token].matrices
        assert long[token].attention == 2 * short[token].attention


def test_two_flops_a_weight():
    """Without attention's own share and the embeddings that are looked up, forward is 2 · N."""
    config = TransformerConfig(**SMALL | dict(tie="none", bias=False, norm="rms", final_norm=False))
    found = cost(config, length=1)
    looked_up = found.parameters["embeddings"] + found.parameters["encoder_norms"] + found.parameters["decoder_norms"]
    matrices = sum(flops.matrices for flops in found.flops_per_token.values())
    assert matrices == 2 * (found.parameters["total"] - looked_up)


def filled(model, cache):
    source, lengths = torch.randint(13, (B, S)), torch.tensor([S, S - 1, S - 2])
    with torch.no_grad():
        model.eval().prefill(torch.randint(13, (B, T)), cache, source=source, lengths=lengths)
    return cache


@pytest.mark.parametrize("variant", ["plain", "depths", "shared keys", "wide heads"])
def test_transformer_cache(variant):
    config = TransformerConfig(**SMALL | VARIANTS[variant])
    model = Transformer(config)
    cache = filled(model, model.new_cache(T))
    found = cost(config, batch=B, length=T, source_length=S).memory.cache
    assert found["self"] == sum(layer.k.nbytes + layer.v.nbytes for layer in cache.own)
    assert found["cross"] == sum(layer.k.nbytes + layer.v.nbytes for layer in cache.source)


@pytest.mark.parametrize(("cell", "score", "depth"), list(itertools.product(CELLS, SCORES, (1, 2))))
def test_seq2seq_cache(cell, score, depth):
    config = Seq2SeqConfig(vocab_size=13, dim=10, cell=cell, score=score, depth=depth)
    model = Seq2Seq(config)
    cache = filled(model, model.new_cache(T))
    found = cost(config, batch=B, length=T, source_length=S).memory.cache
    assert found["state"] == sum(part.nbytes for part in cache.state)
    shared = cache.keys.data_ptr() == cache.values.data_ptr()
    assert found["source"] == cache.values.nbytes + (0 if shared else cache.keys.nbytes)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(dim=12_288, heads=96, depth=8),
        Seq2SeqConfig(dim=65_536),
        preset("gpt", "llama-3-8b", depth=8),
        preset("bert", "albert-base", dim=12_288, position="relative:buckets=8"),
        preset("lstm", "base", dim=65_536),
        *(preset("gpt", "gpt2", kernel=name, depth=2) for name in kernels if kernels[name].causal),
        preset("bert", "bert-base", kernel="linformer", depth=2),
    ],
)
def test_no_memory_is_taken(config, training):
    """A thousand times what this machine has: only shapes are computed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cost(config, batch=4_096, training=training).render()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def test_a_loop_over_tokens_is_followed_for_a_few_and_grows_as_a_longer_one(monkeypatch):
    for training in (False, True):
        setting = dict(batch=3, length=90, source_length=70, training=training)
        config = Seq2SeqConfig(vocab_size=13, dim=10, depth=2)
        short = cost(config, **setting)
        monkeypatch.setattr("regard.cost.measure.STEPS", 1000)
        whole = cost(config, **setting)
        monkeypatch.undo()
        assert short.flops == whole.flops and short.flops_per_token == whole.flops_per_token
        assert short.memory.attention_matrices == whole.memory.attention_matrices
        found, wanted = (sum(one.memory.activations.values()) for one in (short, whole))
        assert found == pytest.approx(wanted, rel=0.01)


def test_number_format_scales_memory_only():
    config = TransformerConfig(**SMALL)
    full, half = (cost(config, bytes_per_number=size, training=True) for size in (4, 2))
    assert full.memory.total == 2 * half.memory.total
    assert full.flops == half.flops


def test_totals():
    config = TransformerConfig(**SMALL)
    for training in (False, True):
        memory = cost(config, batch=2, length=9, training=training).memory
        weights, activations = memory.weights, sum(memory.activations.values())
        if training:
            assert memory.total == 4 * weights + activations  # weights, gradients, two moments
        else:
            assert memory.gradients == memory.optimizer == 0
            assert memory.total == weights + activations + sum(memory.cache.values())


def test_which_matrices_are_held():
    def held(training=True, **changes):
        return cost(TransformerConfig(**SMALL, **changes), length=9, training=training).memory.matrices_held

    every = ("encoder", "decoder_self", "decoder_cross")
    assert held() == ()
    assert held(position="relative") == every[:2] and held(False, position="relative") == ()
    assert held(attention_dropout=0.1) == every and held(False, attention_dropout=0.1) == ()
    assert held(kernel="additive") == every == held(False, kernel="additive")


def test_json():
    for config in (TransformerConfig(**SMALL), Seq2SeqConfig(cell="lstm")):
        found = cost(config, batch=B, length=T, source_length=S, training=True)
        read = json.loads(json.dumps(found.to_dict()))
        assert read["parameters"] == found.parameters
        assert (read["batch"], read["length"], read["source_length"], read["training"]) == (B, T, S, True)
        assert read["memory"]["total"] == found.memory.total
        assert read["flops_per_token"]["target"]["training"] == 3 * found.flops_per_token["target"].forward
        assert read["flops"]["forward"] == found.flops.forward


def test_render_prints_both_units():
    text = cost(TransformerConfig(depth=1), length=1024).render()
    (line,) = [line for line in text.splitlines() if "matrices: encoder" in line]
    assert line.split()[-4:] == ["33.55", "MB", "32.00", "MiB"]
    assert "decoder cross-attention" in text and "holds none" in text
    lstm = cost(Seq2SeqConfig(cell="lstm"), training=True).render()
    assert "oneDNN" in lstm and "once a sequence" in lstm and "AdamW" in lstm


@pytest.mark.parametrize("name", ["batch", "length", "source_length", "bytes_per_number"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name}=0 must be at least 1"):
        cost(TransformerConfig(), **{name: 0})


def test_learned_positions_end():
    config = TransformerConfig(position="learned", max_len=16)
    cost(config, length=16)
    with pytest.raises(ValueError, match="position 16 has no learned vector, max_len=16"):
        cost(config, length=8, source_length=17)


def test_unknown_config_and_kernel():
    @dataclasses.dataclass
    class OtherConfig:
        pass

    with pytest.raises(ValueError, match="no family has configs of class OtherConfig; known: .*TransformerConfig"):
        cost(OtherConfig())
    with pytest.raises(ValueError, match="unknown kernel 'additve'; did you mean 'additive'"):
        cost(TransformerConfig(kernel="additve"))


def test_a_subclass_has_its_family():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WiderConfig(TransformerConfig):
        pass

    assert cost(WiderConfig()).parameters == cost(TransformerConfig()).parameters
