"""A family that declares nothing but its config and `forward` has a cost."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from regard.registry import models, register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class MixerConfig:
    image: int = 32
    channels: int = 3
    dim: int = 24


class Mixer(nn.Module):
    config_class = MixerConfig
    presets: ClassVar[dict] = {}

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(config.channels, config.dim, 4, stride=4)
        self.tokens = nn.Linear(64, 64)
        self.head = nn.Linear(config.dim, 5)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2)
        return self.head((x + self.tokens(x).relu()).mean(2))


@dataclass(frozen=True, kw_only=True, slots=True)
class BagConfig:
    vocab_size: int = 31
    dim: int = 24
    numbers: bool = False


class Bag(nn.Module):
    config_class = BagConfig
    presets: ClassVar[dict] = {}

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.head = nn.Linear(config.dim, 2)

    def forward(self, ids, lengths):
        if self.config.numbers:
            ids = ids[:, ids[0].nonzero().flatten()]
        return self.head(self.embedding(ids).mean(1))


@pytest.fixture(autouse=True)
def registered():
    register_model("mixer of a test")(Mixer)
    register_model("bag of a test")(Bag)
    yield
    for name in ("mixer of a test", "bag of a test"):
        models._entries.pop(name)


def test_an_image_model():
    model = Mixer(MixerConfig())
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(3, 3, 32, 32))
    found = cost(MixerConfig(), batch=3, training=True)
    assert found.flops.forward == counter.get_total_flops() and found.flops.attention == 0
    assert found.parameters["total"] == sum(p.numel() for p in model.parameters())
    assert found.memory.activations["patches"] == 3 * 24 * 64 * 4 and found.memory.cache == {}
    assert "whole batch" in found.render()


def test_a_text_model():
    found = cost(BagConfig(), batch=3, length=7)
    assert found.flops.forward == 3 * 2 * 24 * 2 == 3 * found.flops_per_sequence and found.flops_per_token == {}
    assert found.parameters == {"embeddings": 31 * 24, "head": 50, "total": 31 * 24 + 50}


def test_a_model_that_depends_on_numbers_is_named_in_one_line():
    with pytest.raises(ValueError, match="Bag does not run on the meta device: ") as error:
        cost(BagConfig(numbers=True))
    assert "\n" not in str(error.value)
