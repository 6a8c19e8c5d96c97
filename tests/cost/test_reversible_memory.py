"""What a reversible stack keeps, against PyTorch: two streams at any depth, and on the way back one part at a time."""

import pytest
import torch

from regard.cost import cost
from regard.models import BertConfig, GPTConfig, TransformerConfig
from tests.cost.test_activation_memory import BLOCKS, SHAPE, answer, build, counted, inputs, own_storages, widest_bytes

CONFIGS = {
    "gpt": GPTConfig(**BLOCKS, reversible=True),
    "gpt, wide attention": GPTConfig(**BLOCKS | dict(ffn_dim=16), reversible=True, attention_dropout=0.1),
    "gpt, relative, no final norm": GPTConfig(**BLOCKS, reversible=True, position="relative", final_norm=False),
    "gpt, no dropout": GPTConfig(**BLOCKS, reversible=True, dropout=0.0, activation="swiglu", norm="rms"),
    "bert": BertConfig(**BLOCKS, reversible=True, norm_place="pre", task="mask"),
    "bert, shared": BertConfig(**BLOCKS, reversible=True, norm_place="pre", task="mask", shared=True),
    "transformer": TransformerConfig(**BLOCKS, reversible=True),
    "transformer, wide attention": TransformerConfig(**BLOCKS | dict(ffn_dim=8), reversible=True, position="relative"),
}


def kept_both_ways(model, monkeypatch):
    """Bytes that are saved forward, and those that each part saves when it runs again, beside its inputs."""
    own, passes = own_storages(model), [{}]
    alive, take = [], torch.autograd.grad

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and (tensor.is_floating_point() or tensor.dtype == torch.uint8):
            if len(passes) == 1 or storage.data_ptr() not in passes[0]:
                passes[-1][storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    def grad(added, wanted, *rest, **how):
        passes[-1].pop(wanted[0].untyped_storage().data_ptr(), None)
        passes.append({})
        return take(added, wanted, *rest, **how)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = answer(model.train(), inputs(model, SHAPE))
        passes.append({})
        monkeypatch.setattr(torch.autograd, "grad", grad)
        loss.backward()
    return [sum(one.values()) for one in passes]


@pytest.mark.parametrize("name", CONFIGS)
def test_kept_for_backward(name, monkeypatch):
    config = CONFIGS[name]
    forward, *parts = kept_both_ways(build(config), monkeypatch)
    if isinstance(config, TransformerConfig):  # the parts of both stacks, the decoder's first
        cut = 3 * config.depth
        again = max(parts[:cut]) + max(parts[cut:])
        assert len(parts) == cut + 2 * config.depth + 1
    else:
        again = max(parts)
        assert len(parts) == 2 * config.depth + 1
    assert counted(config, training=True) == pytest.approx(forward + again, rel=0.001)


@pytest.mark.parametrize("name", [name for name in CONFIGS if "wide" not in name])
def test_widest_layer(name):
    config = CONFIGS[name]
    assert counted(config, training=False) == pytest.approx(widest_bytes(build(config)), rel=0.15)


def test_depth_costs_weights_but_no_activations():
    shallow, deep = (cost(GPTConfig(reversible=True, depth=depth), training=True) for depth in (6, 24))
    assert shallow.memory.activations == deep.memory.activations
    assert deep.memory.weights > 2 * shallow.memory.weights
    assert any("reversible" in note for note in deep.notes)
    assert not cost(GPTConfig(reversible=True)).notes and not cost(GPTConfig(), training=True).notes
