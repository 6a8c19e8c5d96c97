"""Checks of images as sequences: patches, windows, hierarchies, and what convolutions have built in."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.claims.checks.base import build, check, gap, reach, words
from regard.cost import patches
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.patches import PatchEmbedding
from regard.nn.windows import LearnedOffsets, Windows
from regard.registry import models

VIT: dict[str, Any] = dict(image=32, patch=8, channels=3, dim=24, depth=2, heads=3, ffn_dim=48, labels=("a", "b"))


@check
def patch_embedding() -> float:
    """Return the gap of flattened patches times a matrix from the embedding of an image's patches."""
    layer: Any = PatchEmbedding(3, 16, 20)
    pixels = torch.randn(1, 3, 48, 48)
    flat = F.unfold(pixels, 16, stride=16).mT  # B T P²C
    by_hand = flat @ layer.project.weight.flatten(1).T + layer.project.bias
    return gap(layer(pixels).flatten(2).mT, by_hand)


@check
def class_token_sees() -> float:
    """Return the least gradient that a ViT's output has from any patch."""
    pixels = torch.randn(1, 3, 32, 32, requires_grad=True)
    (gradient,) = torch.autograd.grad(build("vit", **VIT)(pixels)[0, 0], pixels)
    return F.unfold(gradient.abs(), 8, stride=8).sum(1).min().item()


@check
def shuffled_patches(position: str) -> float:
    """Return the change of a ViT's logits when its patches are shuffled."""
    model, pixels = build("vit", **VIT | {"position": position}), torch.randn(1, 3, 32, 32)
    flat = F.unfold(pixels, 8, stride=8)
    shuffled = F.fold(flat[:, :, torch.randperm(flat.shape[-1])], (32, 32), 8, stride=8)
    return gap(model(shuffled), model(pixels))


@check
def shifted_image(layer: str) -> float:
    """Return the gap of a shifted output from the output of a shifted image: a convolution, or a ViT's patches."""
    pixels = torch.randn(1, 3, 32, 32)
    moved = pixels.roll((8, 8), (2, 3))
    if layer == "convolution":
        conv = nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular")
        return gap(conv(moved), conv(pixels).roll((8, 8), (2, 3)))
    model = build("vit", **VIT)
    grid = lambda x: model.features(x)[:, 1:].mT.unflatten(2, (4, 4))  # noqa: E731
    return gap(grid(moved), grid(pixels).roll((1, 1), (2, 3)))


@check
def receptive_field(layers: int, width: int = 3) -> int:
    """Return the side of the receptive field of so many convolutions, measured by the gradient."""
    x = torch.randn(1, 1, 41, 41, requires_grad=True)
    y: Tensor = x
    for _ in range(layers):
        y = nn.Conv2d(1, 1, width, padding=width // 2)(y)
    (gradient,) = torch.autograd.grad(y[0, 0, 20, 20], x)
    return int((gradient[0, 0, 20] != 0).sum())


@check
def attention_field(tokens: int) -> int:
    """Return how many of so many tokens one layer of attention sees, measured by the gradient."""
    x = words(tokens, 12)
    return int((reach(Attention(AttentionConfig(dim=12, heads=3))(x)[:, :1], x) > 0).sum())


def _swin(depths: tuple[int, ...]) -> Any:
    heads = tuple(3 for _ in depths)
    return build("swin", image=32, patch=2, channels=1, dim=24, depths=depths, heads=heads, window=4, labels=("a",))


@check
def window_sees(blocks: int) -> int:
    """Return how many of 256 tokens the first one of the second window sees after so many window blocks."""
    model, pixels = _swin((blocks,)), torch.randn(1, 1, 32, 32, requires_grad=True)
    x, grid = model.tokens(pixels)
    y, _ = model.stages[0](x, grid)
    noise = torch.randn(24, generator=torch.Generator().manual_seed(5))
    (gradient,) = torch.autograd.grad((y[0, 5 * 16 + 5] * noise).sum(), x)
    return int((gradient[0].abs().sum(-1) > 0).sum())


@check
def stage_sides() -> list[int]:
    """Return the side of the grid of each stage of Swin-T at 224 pixels."""
    config = models["swin"].config_class()
    return [config.image // config.patch // 2**stage for stage in range(len(config.depths))]


@check
def stage_shapes(family: str) -> int:
    """Return the number of different (tokens, width) that the blocks of a family have."""
    seen: set[tuple[int, ...]] = set()
    model = _swin((2, 2)) if family == "swin" else build("vit", **VIT | {"image": 32, "channels": 1, "patch": 8})
    blocks = [b for s in model.stages for b in s.blocks] if family == "swin" else model.encoder.blocks
    for block in blocks:
        block.register_forward_hook(lambda module, inputs, out: seen.add(tuple(out.shape[-2:])))
    model(torch.randn(1, 1, 32, 32))
    return len(seen)


@check
def ragged_windows() -> int:
    """Return the number of sizes of regions that may attend to each other in shifted windows of 4 on a grid of 8."""
    mask = Windows.fit((8, 8), 4, shifted=True).mask(1)
    assert mask is not None
    allowed = mask.dense(16, 16)[:, 0]
    return len(set(allowed.sum(-1).flatten().tolist()))


@check
def window_offsets(window: int) -> int:
    """Return the number of different offsets of two tokens in a window, each with a learned bias."""
    return len(LearnedOffsets(window, heads=3, head_dim=8).numbers())


@check
def detected_boxes(side: int) -> int:
    """Return the number of predictions of a DETR with 10 queries for an image of this side."""
    model = build("detr", **models["detr"].presets["tiny"], labels=("a", "b"))
    return model(torch.randn(1, 3, side, side)).shape[1]


@check
def joined_tokens(image: int = 224, patch: int = 16, text: int = 20) -> int:
    """Return the tokens of an image's patches and a text in one sequence, read by one layer."""
    tokens = patches(image, patch) + text
    return Attention(AttentionConfig(dim=12, heads=3))(words(tokens, 12)).shape[1]
