"""Counted parameters and FLOPs of models that see, against models that were really built; lecture 001's figures."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from regard.models import preset
from regard.registry import models
from tests.laws.cases import SMALL, example, make

CASES = [(family, number) for family in ("vit", "mae", "detr", "clip") for number in range(len(SMALL[family]))]


@pytest.mark.parametrize(("family", "number"), CASES)
def test_parameters_and_flops(family, number):
    model = make(family, number).double().requires_grad_(False)
    inputs = example(model)
    found = cost(model.config, batch=3)
    assert found.parameters["total"] == sum(p.numel() for p in model.parameters())
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(**inputs)
    assert found.flops.forward == counter.get_total_flops()


def test_hidden_patches_are_not_attended_to():
    config = preset("mae", "tiny")
    read = (config.visible + 1) ** 2 * config.dim * config.depth
    written = config.tokens**2 * config.decoder_dim * config.decoder_depth
    assert cost(config, batch=3).flops.attention == 3 * 4 * (read + written)  # scores, and what they mix


def test_lecture_figures():
    config = preset("vit", "vit-b/16")
    found = cost(config, bytes_per_number=4)
    assert found.setting.length == 197
    assert found.memory.attention_matrices["self"] == 197**2 * 12 * 12 * 4
    mean = preset("vit", "vit-b/16", pooling="mean", depth=48, heads=16, dim=1024)
    assert cost(mean).memory.attention_matrices["self"] == 14**4 * 48 * 16 * 4 == 112.546875 * 2**20  # 14⁴ = 38,416
    pixels = preset("vit", "vit-b/16", image=128, patch=1, pooling="mean", depth=48, heads=16, dim=1024)
    assert cost(pixels).memory.attention_matrices["self"] == 768 * 2**30


def test_an_image_says_its_own_length():
    config = preset("vit", "vit-s/16")
    assert cost(config, length=5).flops == cost(config).flops
    twice = models["vit"].config_class(**{**models["vit"].presets["vit-s/16"], "image": 448})
    assert cost(twice).flops.attention / cost(config).flops.attention == pytest.approx((785 / 197) ** 2)
