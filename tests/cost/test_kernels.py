"""Counted costs of kernels that do not look at every key, against models that were really built."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from regard.models import BertConfig, GPTConfig, TransformerConfig
from tests.cost.test_activation_memory import (
    Widest,
    answer,
    build,
    cost_at,
    counted,
    inputs,
    own_storages,
    widest_bytes,
)

WINDOW = "window:radius=5,chunk=6"
SPARSE = "sparse:radius=3,stride=4,far=3,tokens=2,chunk=3"
TOPK = "topk:k=5,chunk=12"
LINEAR = "linear:chunk=9"
PERFORMER = "performer:features=20,chunk=9"
REFORMER = "reformer:buckets=4,reach=5,rounds=2,chunk=6"
LINFORMER = "linformer:rank=7"

LENGTH = 36
"""A multiple of all chunks, as FLOPs are counted for each token; and the longest, so that Linformer needs no mask."""
BLOCKS = dict(vocab_size=61, dim=48, heads=4, ffn_dim=112, depth=2, max_len=LENGTH)
BERT = dict(BLOCKS, task="mask", pooler=False)

CONFIGS = {
    **{
        f"gpt, {name}": GPTConfig(**BLOCKS, kernel=name) for name in (WINDOW, SPARSE, TOPK, LINEAR, PERFORMER, REFORMER)
    },
    **{
        f"bert, {name}": BertConfig(**BERT, kernel=name)
        for name in (WINDOW, SPARSE, TOPK, LINEAR, PERFORMER, REFORMER, LINFORMER)
    },
    **{
        f"gpt, rotary, shared keys, {name}": GPTConfig(**BLOCKS, kernel=name, position="rotary", kv_heads=2)
        for name in (WINDOW, SPARSE, TOPK, LINEAR, PERFORMER)
    },
    "gpt, rotary, reformer": GPTConfig(**BLOCKS, kernel=REFORMER, position="rotary", head_dim=10),
    "gpt, rotary, linear": GPTConfig(**BLOCKS, kernel=LINEAR, position="rotary"),
    "gpt, alibi, window": GPTConfig(**BLOCKS, kernel=WINDOW, position="alibi"),
    "gpt, alibi, sparse, shared keys": GPTConfig(**BLOCKS, kernel=SPARSE, position="alibi", kv_heads=2),
    "gpt, relative, topk": GPTConfig(**BLOCKS, kernel=TOPK, position="relative"),
    "bert, relative, window": BertConfig(**BERT, kernel=WINDOW, position="relative"),
    "bert, alibi, sparse": BertConfig(**BERT, kernel=SPARSE, position="alibi"),
    "bert, linformer, shared keys": BertConfig(**BERT, kernel=LINFORMER, kv_heads=2),
    "gpt, topk, attention dropout": GPTConfig(**BLOCKS, kernel=TOPK, attention_dropout=0.1),
    "bert, linformer, attention dropout": BertConfig(**BERT, kernel=LINFORMER, attention_dropout=0.1),
    "gpt, window by itself": GPTConfig(**BLOCKS, kernel="window:radius=50"),
    "transformer, linear": TransformerConfig(**BLOCKS, kernel=LINEAR),
    "transformer, performer": TransformerConfig(**BLOCKS, kernel=PERFORMER, decoder_depth=1),
    "transformer, window and linformer": TransformerConfig(**BLOCKS, kernel=WINDOW, cross_kernel=LINFORMER),
    "transformer, reformer and topk": TransformerConfig(**BLOCKS, kernel=REFORMER, cross_kernel=TOPK),
}
SHAPE = B, T, S = 3, LENGTH, LENGTH


class Held(Widest):
    """Also whole numbers: Reformer keeps the order of its buckets."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.int32, torch.int64):
                storage = tensor.untyped_storage()
                if storage.nbytes() and storage.data_ptr() not in self.own | set(self.living):
                    self.add(storage)
        return out


def held_bytes(model, shape=SHAPE):
    """What is alive behind a training pass: also what closures keep, which PyTorch's hooks do not see."""
    given = inputs(model, shape)
    with (Held if "reformer" in model.config.kernel else Widest)(own_storages(model)) as held:
        loss = answer(model.train(), given)
        now = held.now
    assert loss.requires_grad
    return now


@pytest.mark.parametrize("name", CONFIGS)
def test_kept_for_backward(name):
    config = CONFIGS[name]
    assert counted(config, training=True, shape=SHAPE) == pytest.approx(held_bytes(build(config)), rel=0.005)


@pytest.mark.parametrize("name", [name for name in CONFIGS if "dropout" not in name])
def test_widest_layer(name):
    config = CONFIGS[name]
    measured = widest_bytes(build(config), SHAPE)
    assert counted(config, training=False, shape=SHAPE) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["window", "sparse", "topk", "linear", "performer", "reformer", "linformer"])
def test_as_they_come(name, batch):
    """Their own settings, at a length that no chunk divides."""
    sizes = dict(BLOCKS, max_len=301, kernel=name)
    config = BertConfig(**sizes, task="mask") if name == "linformer" else GPTConfig(**sizes)
    model, shape = build(config), (batch, 301, 301)
    assert counted(config, training=True, shape=shape) == pytest.approx(held_bytes(model, shape), rel=0.005)
    assert counted(config, training=False, shape=shape) == pytest.approx(widest_bytes(model, shape), rel=0.25)


def fused_flops(q, k, v, *args, out_shape=None, **kwargs):
    """PyTorch's counter does not know its own fused CPU kernel, which computes every tile."""
    return 2 * 2 * q[0] * q[1] * q[2] * q[3] * k[2]


def measured_flops(config):
    model = build(config).double()
    counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_flops}
    )
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        answer(model, inputs(model, SHAPE))
    return counter.get_total_flops()


@pytest.mark.parametrize("name", [name for name in CONFIGS if "by itself" not in name])
def test_flops(name):
    assert cost_at(CONFIGS[name], SHAPE).flops.forward == measured_flops(CONFIGS[name])


CACHED = {
    **{name: GPTConfig(**BLOCKS, kernel=name) for name in (WINDOW, SPARSE, TOPK, LINEAR, PERFORMER, REFORMER)},
    "linear, shared keys": GPTConfig(**BLOCKS, kernel=LINEAR, kv_heads=2, head_dim=10),
    "performer as it comes": GPTConfig(**BLOCKS, kernel="performer"),
}


@pytest.mark.parametrize("name", CACHED)
def test_cache(name):
    config = CACHED[name]
    model = build(config).eval()
    cache = model.new_cache(T)
    with torch.no_grad():
        model.prefill(torch.randint(61, (B, T)), cache)
    state = config.kernel.startswith(("linear", "performer"))
    kept = [[layer.state] if state else [layer.k, layer.v] for layer in cache.own]
    found = cost(config, batch=B, length=T).memory.cache
    assert found == {"self": sum(tensor.nbytes for layer in kept for tensor in layer)}
    assert (cost(config, batch=B, length=2 * T).memory.cache == found) is state


def test_cross_attention_caches_keys_and_values_whatever_its_kernel():
    config = TransformerConfig(**BLOCKS, kernel=LINEAR)
    model = build(config).eval()
    cache, source = model.new_cache(T), torch.randint(61, (B, 11))
    with torch.no_grad():
        model.prefill(torch.randint(61, (B, T)), cache, source=source, lengths=torch.tensor([11] * B))
    found = cost(config, batch=B, length=T, source_length=11).memory.cache
    assert found["self"] == sum(layer.state.nbytes for layer in cache.own)
    assert found["cross"] == sum(layer.k.nbytes + layer.v.nbytes for layer in cache.source)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters(name):
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in build(CONFIGS[name]).parameters())
    assert cost_at(CONFIGS[name], SHAPE, training=True).parameters["total"] == parameters


@pytest.mark.parametrize("name", CONFIGS)
def test_no_matrix_is_held(name):
    assert cost_at(CONFIGS[name], SHAPE, training=True).memory.matrices_held == ()


@pytest.mark.parametrize(("name", "power"), [("full", 2), ("topk", 2), ("window", 1), ("sparse", 1), ("linear", 1),
                                             ("performer", 1), ("reformer", 1)])  # fmt: skip
def test_growth(name, power):
    config = GPTConfig(**BLOCKS, kernel=name)
    short, long = (cost(config, length=n, training=True) for n in (2**12, 2**14))
    assert long.flops.attention == pytest.approx(4**power * short.flops.attention, rel=0.02)
    assert sum(long.memory.activations.values()) == pytest.approx(4 * sum(short.memory.activations.values()), rel=0.02)


def test_what_cannot_be_built_has_no_cost():
    for config, words in (
        (GPTConfig(**BLOCKS, kernel=LINFORMER), "cannot hide the future or decode step by step"),
        (GPTConfig(**BLOCKS, kernel=LINEAR, position="alibi"), "cannot take positions as a bias"),
        (GPTConfig(**BLOCKS, kernel=WINDOW, attention_dropout=0.1), "cannot drop weights"),
        (TransformerConfig(**BLOCKS, kernel=WINDOW), "cannot attend from one sequence to another"),
    ):
        with pytest.raises(ValueError, match=words):
            cost(config)
        with pytest.raises(ValueError, match=words):
            build(config)
    with pytest.raises(ValueError, match="has learned to mix 36 positions, got 37"):
        cost(BertConfig(**BERT, kernel=LINFORMER, position="sinusoidal"), length=37)
    with pytest.raises(ValueError, match="no setting 'radios'; did you mean 'radius'"):
        cost(GPTConfig(**BLOCKS, kernel="window:radios=3"))
