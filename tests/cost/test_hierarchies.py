"""Counted costs of families with stages: against models that were really built, and against published figures."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import cost
from regard.models import CNNAttentionConfig, LRNetConfig, MViTConfig, SwinConfig, ViTConfig, preset
from tests.cost.test_activation_memory import Widest, build, own_storages

NAMES = tuple("abcde")
CONFIGS = {
    "swin": SwinConfig(image=(29, 38), channels=2, patch=3, dim=6, depths=(2, 3), heads=(2, 3), window=4, labels=NAMES),
    "swin, one stage": SwinConfig(image=(31, 50), patch=2, dim=10, depths=(3,), heads=(5,), window=3, ffn_ratio=1.7),
    "swin v2": SwinConfig(
        image=(29, 38), channels=2, patch=3, dim=6, depths=(1, 2), heads=(2, 3), window=4, labels=NAMES,
        kernel="cosine", offsets="log", norm_place="post",
    ),
    "mvit": MViTConfig(image=(29, 38), channels=2, patch=3, dim=6, heads=2, depths=(1, 2, 1), labels=NAMES),
    "mvit, version 1": MViTConfig(
        image=47, patch=2, dim=6, depths=(2, 2), key_stride=3, position="learned", residual=False
    ),
    "cnn": CNNAttentionConfig(image=(29, 38), channels=2, patch=3, dim=8, depths=(2, 1), attention=0, labels=NAMES),
    "cnn-attention": CNNAttentionConfig(
        image=(29, 38), channels=2, patch=2, dim=10, depths=(1, 2, 1), attention=2, heads=4, activation="relu"
    ),
    "lr-net": LRNetConfig(image=(29, 38), channels=2, patch=3, dim=8, depths=(1, 2), window=3, share=3, labels=NAMES),
}  # fmt: skip
every_config = pytest.mark.parametrize("name", CONFIGS)


def pixels(config, B=3):
    rows, columns = (config.image,) * 2 if isinstance(config.image, int) else config.image
    return torch.randn(B, config.channels, rows, columns)


@every_config
def test_parameters(name):
    config = CONFIGS[name]
    assert cost(config).parameters["total"] == sum(parameter.numel() for parameter in build(config).parameters())


def measured_flops(config, B):
    model, given = build(config).eval(), pixels(config, B)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(given)
    return counter.get_total_flops()


@every_config
def test_flops(name):
    config = CONFIGS[name]
    assert cost(config, batch=3).flops.forward == measured_flops(config, 3)


def kept_bytes(model, given):
    """Floating-point bytes that autograd saves in a training pass: each storage once, parameters excluded."""
    own, seen, alive = own_storages(model), {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.train()(given).sum()
    return sum(seen.values())


@every_config
def test_memory(name):
    config = CONFIGS[name]
    model = build(config)
    kept = sum(cost(config, batch=3, training=True).memory.activations.values())
    assert kept == pytest.approx(kept_bytes(model, pixels(config)), rel=0.1)
    with torch.no_grad(), Widest(own_storages(model)) as widest:
        model.eval().features(pixels(config))
    live = sum(cost(config, batch=3).memory.activations.values())
    assert live == pytest.approx(widest.peak, rel=0.5)


@pytest.mark.parametrize(
    ("family", "name", "billions"),
    [
        ("swin", "swin-t", 4.5), ("swin", "swin-s", 8.7), ("swin", "swin-b", 15.4), ("swin", "swinv2-t", 5.9),
        ("mvit", "mvit-t", 4.7), ("mvit", "mvit-s", 7.0), ("mvit", "mvit-b", 10.2),
    ],
)  # fmt: skip
def test_published_multiply_adds(family, name, billions):
    """MViT's are those without relative positions, which ride in longer q, k and v and add up to 6 % here."""
    config = preset(family, name, labels=tuple(map(str, range(1000))))
    plain = replace(config, position="learned") if family == "mvit" else config
    assert cost(plain).flops.forward / 2e9 == pytest.approx(billions, rel=0.025)
    assert cost(config).flops.forward < 1.08 * cost(plain).flops.forward


def test_cost_grows_with_the_area_for_swin_and_with_its_square_for_vit():
    """From 224² to 1792² pixels: 64 times the area."""
    small, large = (cost(preset("swin", "swin-t", image=side)) for side in (224, 1792))
    assert large.flops.attention == 64 * small.flops.attention > 0
    assert large.flops.forward == 64 * small.flops.forward
    small, large = (cost(ViTConfig(image=side, pooling="mean")) for side in (224, 1792))
    assert large.flops.attention == 64**2 * small.flops.attention > 0


def test_tables_tell_attention_apart():
    found = cost(preset("swin", "swin-t"), batch=2)
    assert found.flops.attention / found.flops.forward == pytest.approx(0.031, abs=0.001)
    lines = found.render().splitlines()
    assert not any("once a sequence" in line for line in lines) and any("whole batch" in line for line in lines)
    assert any("image token" in line for line in lines)
    assert found.flops_per_token["image"].attention == found.flops.attention // (2 * 56**2)
