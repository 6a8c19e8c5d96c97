"""The counted activations against what PyTorch really holds."""

import inspect
import itertools
import weakref
from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.cost import cost
from regard.models import BertConfig, GPTConfig, Seq2Seq, Seq2SeqConfig, T5Config, Transformer, TransformerConfig
from regard.models.recurrent import GRUConfig, LSTMConfig, RNNConfig
from regard.registry import models

SHAPE = (3, 29, 37)
"""Batch, target and source length."""
SMALL = dict(vocab_size=61, dim=48, heads=4, ffn_dim=112, depth=2, decoder_depth=3)


def inputs(model, shape):
    """What the model takes; `lengths` are of the source, or of the only text."""
    B, T, S = shape
    names = inspect.signature(model.forward).parameters
    size = {"source": S, "target": T, "ids": T}
    given = {name: torch.randint(model.config.vocab_size, (B, size[name])) for name in names if name in size}
    lengths = torch.tensor([S if "source" in names else T] * B)
    return given | ({"lengths": lengths} if "lengths" in names else {})


def own_storages(model):
    return {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}


def kept_bytes(model, shape=SHAPE):
    """Floating-point bytes that autograd saves in a training pass: each storage once, parameters excluded."""
    own, seen, alive = own_storages(model), {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and (tensor.is_floating_point() or tensor.dtype == torch.uint8):
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        answer(model.train(), inputs(model, shape))
    return sum(seen.values())


def answer(model, given):
    """What a step of training computes: an encoder in training for two tasks has two heads."""
    if getattr(model.config, "task", None) != "pretrain":
        return model(**given).sum()
    x = model.features(**given)
    return model.head(x).sum() + model.follows(x).sum()


class Widest(TorchDispatchMode):
    """Follows the bytes of all living results; `peak` is the most at any time."""

    def __init__(self, own):
        super().__init__()
        self.own, self.living, self.now, self.peak = own, {}, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.own and storage.data_ptr() not in self.living:
                    self.add(storage)
        return out

    def add(self, storage):
        key, size = storage.data_ptr(), storage.nbytes()
        self.living[key] = size
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.remove, key)

    def remove(self, key):
        self.now -= self.living.pop(key, 0)


def widest_bytes(model, shape=SHAPE):
    given = inputs(model, shape)
    with torch.no_grad(), Widest(own_storages(model)) as widest:
        model.eval().features(**given)
    return widest.peak


@cache
def cost_at(config, shape, training=False):
    """The cost at this batch size, length and source length: counted once for all tests that read it."""
    B, T, S = shape
    return cost(config, batch=B, length=T, source_length=S, training=training)


def counted(config, *, training, shape=SHAPE):
    return sum(cost_at(config, shape, training).memory.activations.values())


TRANSFORMERS = {
    "plain": dict(dropout=0.0),
    "default": {},
    "post-norm": dict(norm_place="post"),
    "post-norm, final norm": dict(norm_place="post", final_norm=True, dropout=0.0),
    "no final norm": dict(final_norm=False),
    "rms": dict(norm="rms"),
    "shared keys": dict(kv_heads=2),
    "one key head, wide heads": dict(kv_heads=1, head_dim=20),
    "rotary": dict(position="rotary"),
    "rotary, shared keys": dict(position="rotary", kv_heads=2),
    "alibi": dict(position="alibi"),
    "relative": dict(position="relative"),
    "relative, shared keys": dict(position="relative", kv_heads=2),
    "learned": dict(position="learned"),
    "concatenated": dict(position="concatenated"),
    "attention dropout": dict(attention_dropout=0.1),
    "attention dropout, relative": dict(attention_dropout=0.1, position="relative"),
    "additive": dict(kernel="additive"),
    "additive, attention dropout": dict(kernel="additive", attention_dropout=0.1),
    "additive, shared keys": dict(kernel="additive", kv_heads=2),
    "general": dict(kernel="general"),
    "dot": dict(kernel="dot"),
    "normalized": dict(kernel="normalized"),
    "normalized, rotary, shared keys": dict(kernel="normalized", position="rotary", kv_heads=2),
    "normalized, relative": dict(kernel="normalized", position="relative"),
    "normalized, attention dropout": dict(kernel="normalized", attention_dropout=0.1),
    "normalized, rotary, attention dropout": dict(kernel="normalized", position="rotary", attention_dropout=0.1),
    "embedding norm": dict(embedding_norm=True),
    "embedding norm, rms, no dropout": dict(embedding_norm=True, norm="rms", dropout=0.0),
    "relative with settings": dict(position="relative:buckets=8,far=20"),
    "no biases": dict(bias=False),
} | {
    activation + ", hidden dropout" * bool(dropout): dict(activation=activation, ffn_dropout=dropout)
    for activation, dropout in itertools.product(
        ("relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "relu2", "swiglu", "geglu", "geglu-tanh"), (0.0, 0.1)
    )
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_kept_for_backward(name):
    config = TransformerConfig(**SMALL | TRANSFORMERS[name])
    measured = kept_bytes(Transformer(config))
    assert counted(config, training=True) == pytest.approx(measured, rel=0.001)


@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if "dropout" not in name])
def test_widest_layer(name):
    config = TransformerConfig(**SMALL | TRANSFORMERS[name])
    assert counted(config, training=False) == pytest.approx(widest_bytes(Transformer(config)), rel=0.15)


SCORES = ("none", "additive", "dot", "general")
CELLS = list(itertools.product(("rnn", "gru", "lstm"), SCORES))


@pytest.mark.parametrize(("depth", "dropout"), [(1, 0.0), (2, 0.1)])
@pytest.mark.parametrize(("cell", "score"), CELLS)
def test_recurrent_kept_for_backward(cell, score, depth, dropout):
    config = Seq2SeqConfig(vocab_size=61, dim=48, cell=cell, score=score, depth=depth, dropout=dropout)
    measured = kept_bytes(Seq2Seq(config).double()) / 2  # in float32 oneDNN's LSTM has a workspace of its own
    assert counted(config, training=True) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("cell", "score"), CELLS)
def test_recurrent_widest(cell, score):
    config = Seq2SeqConfig(vocab_size=61, dim=48, cell=cell, score=score)
    measured = widest_bytes(Seq2Seq(config).double()) / 2
    assert counted(config, training=False) == pytest.approx(measured, rel=0.25)


BLOCKS = dict(vocab_size=61, dim=48, heads=4, ffn_dim=112, depth=3, max_len=200)
LABELS = dict(labels=("a", "b", "c"))
ONE_TEXT = {
    "gpt": GPTConfig(**BLOCKS),
    "gpt, learned, no dropout": GPTConfig(**BLOCKS, position="learned", dropout=0.0),
    "gpt, alibi, untied": GPTConfig(**BLOCKS, position="alibi", tie=False, final_norm=False),
    "gpt, concatenated, post-norm": GPTConfig(**BLOCKS, position="concatenated", norm_place="post"),
    "gpt, like Llama": GPTConfig(**BLOCKS, kv_heads=2, norm="rms", activation="swiglu", bias=False, dropout=0.0),
    "gpt, normalized": GPTConfig(**BLOCKS, kernel="normalized", activation="relu2"),
    "bert, mask": BertConfig(**BLOCKS, task="mask", pooler=False),
    "bert, mask, relu": BertConfig(**BLOCKS, task="mask", pooler=False, activation="relu"),
    "bert, mask, pre-norm, rms": BertConfig(**BLOCKS, task="mask", norm_place="pre", norm="rms", activation="silu"),
    "bert, pretrain": BertConfig(**BLOCKS, task="pretrain"),
    "bert, pretrain, like ALBERT": BertConfig(**BLOCKS, embedding_dim=20, shared=True, activation="gelu-tanh"),
    "bert, no dropout": BertConfig(**BLOCKS, dropout=0.0, task="mask", types=0),
    "bert, relative": BertConfig(**BLOCKS, position="relative", task="answer", types=1),
    "bert, classify": BertConfig(**BLOCKS, **LABELS, task="classify"),
    "bert, classify, no dropout": BertConfig(**BLOCKS, **LABELS, task="classify", dropout=0.0),
    "bert, tag": BertConfig(**BLOCKS, **LABELS, task="tag"),
    "bert, answer, no dropout": BertConfig(**BLOCKS, task="answer", dropout=0.0),
}
TWO_TEXTS = {
    "t5": T5Config(**BLOCKS),
    "t5, gated": T5Config(**BLOCKS, activation="geglu-tanh", tie="inputs", head_scale=False, dropout=0.0),
}


def build(config):
    return next(models[name] for name in models if models[name].config_class is type(config))(config)


@pytest.mark.parametrize("name", ONE_TEXT | TWO_TEXTS)
def test_language_models_kept_for_backward(name):
    config = (ONE_TEXT | TWO_TEXTS)[name]
    assert counted(config, training=True) == pytest.approx(kept_bytes(build(config)), rel=0.001)


@pytest.mark.parametrize("name", ONE_TEXT | TWO_TEXTS)
def test_language_models_widest_layer(name):
    config = (ONE_TEXT | TWO_TEXTS)[name]
    assert counted(config, training=False) == pytest.approx(widest_bytes(build(config)), rel=0.15)


@pytest.mark.parametrize(("depth", "dropout"), [(1, 0.0), (2, 0.1)])
@pytest.mark.parametrize("config_class", [RNNConfig, GRUConfig, LSTMConfig])
def test_recurrent_language_models(config_class, depth, dropout):
    config = config_class(vocab_size=61, dim=48, depth=depth, dropout=dropout)
    model = build(config).double()  # in float32 oneDNN's LSTM has a workspace of its own
    assert counted(config, training=True) == pytest.approx(kept_bytes(model) / 2, rel=0.02)
    assert counted(config, training=False) == pytest.approx(widest_bytes(model) / 2, rel=0.25)


@pytest.mark.parametrize("shape", [(1, 150, 150), (2, 5, 200), (2, 200, 5)])
@pytest.mark.parametrize(
    "config",
    [
        TransformerConfig(**SMALL),
        *(Seq2SeqConfig(vocab_size=61, dim=48, score=score) for score in SCORES),
        GPTConfig(**BLOCKS),
        BertConfig(**BLOCKS, task="mask"),
        GRUConfig(vocab_size=61, dim=48),
    ],
)
def test_other_shapes(config, shape):
    model = build(config)
    assert counted(config, training=True, shape=shape) == pytest.approx(kept_bytes(model, shape), rel=0.02)
    assert counted(config, training=False, shape=shape) == pytest.approx(widest_bytes(model, shape), rel=0.25)
