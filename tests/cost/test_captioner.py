"""Counted parameters, FLOPs and caches of captioners against models that were really built."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from tests.laws.cases import SMALL, example, make

T, B = 5, 3


@pytest.mark.parametrize("number", range(len(SMALL["captioner"])))
def test_parameters_and_flops(number):
    model = make("captioner", number).double()
    inputs = example(model, B)
    assert inputs["target"].shape == (B, T)
    found = cost(model.config, batch=B, length=T)
    assert found.parameters["total"] == sum(p.numel() for p in model.parameters())
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**inputs)
    assert found.flops.forward == counter.get_total_flops()


@pytest.mark.parametrize("number", range(len(SMALL["captioner"])))
def test_cache(number):
    model = make("captioner", number)
    inputs, cache = example(model, B), model.new_cache(T)
    with torch.no_grad():
        model.prefill(inputs["target"], cache, pixels=inputs["pixels"])
    found = cost(model.config, batch=B, length=T).memory.cache
    if model.config.decoder == "recurrent":
        shared = cache.keys is cache.values
        assert found["state"] == sum(part.nbytes for part in cache.state)
        assert found["source"] == cache.values.nbytes + (0 if shared else cache.keys.nbytes)
    else:
        assert found["self"] == sum(one.k.nbytes + one.v.nbytes for one in cache.own)
        assert found["cross"] == sum(one.k.nbytes + one.v.nbytes for one in cache.source)
    assert "convolutions" in cost(model.config, training=True).memory.activations
