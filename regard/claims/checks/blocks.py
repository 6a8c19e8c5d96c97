"""Checks of the block around attention: feed-forward layer, residual, norm, and the stack of them."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.claims.checks.base import build, check, gap, reach, words
from regard.nn.block import Block, BlockConfig
from regard.nn.embeddings import Embedding
from regard.nn.feedforward import FeedForward
from regard.nn.masks import causal
from regard.nn.norm import build_norm
from regard.nn.positions import Position
from regard.nn.stack import Stack, zero_output_init
from regard.registry import models
from regard.train.schedule import inverse_sqrt

SIZES: dict[str, Any] = dict(dim=12, heads=3, ffn_dim=29, dropout=0.0)
NOWHERE = dict(dim=12, heads=3, head_dim=4, max_len=9)


def block(**changes: Any) -> Block:
    return Block(BlockConfig(**SIZES, **changes), Position(**NOWHERE), causal=False, cross=False)


def feedforward(dim: int = 12, hidden: int = 29) -> FeedForward:
    return FeedForward(dim, hidden, activation="relu", bias=True)


@check
def other_positions(part: str) -> float:
    """Return the gradient that the output of one position has from all others, in a part of a block."""
    x, parts = words(7, 12), block()
    return reach(getattr(parts, part)(x)[:, :1], x)[0, 1:].sum().item()


@check
def feedforward_by_hand(rectified: int = 1) -> float:
    """Return the gap of max(0, xW₁ + b₁)W₂ + b₂ from ours; rectified 2: with a ReLU behind the second layer, too."""
    layer, x = feedforward(), words(7, 12)
    by_hand = (x @ layer.up.weight.T + layer.up.bias).relu() @ layer.down.weight.T + layer.down.bias
    return gap(layer(x), by_hand.relu() if rectified == 2 else by_hand)


@check
def feedforward_as_convolution() -> float:
    """Return the gap of two convolutions of width 1 from a feed-forward layer with their weights."""
    layer, x = feedforward(), words(10, 12, rows=2)
    hidden = F.conv1d(x.mT, layer.up.weight[..., None], layer.up.bias).relu()
    return gap(layer(x), F.conv1d(hidden, layer.down.weight[..., None], layer.down.bias).mT)


@check
def feedforward_shifted() -> float:
    """Return the gap of a shifted output from the output of a shifted input."""
    layer, x = feedforward(), words(10, 12)
    return gap(layer(x.roll(1, dims=1)), layer(x).roll(1, dims=1))


@check
def feedforward_weights(biases: bool) -> int:
    """Return the parameters of a feed-forward layer of widths 512 and 2048, with or without its biases."""
    return sum(p.numel() for p in feedforward(512, 2048).parameters() if biases or p.dim() > 1)


@check
def ffn_ratio() -> int:
    """Return the hidden width of the feed-forward layers of the paper's base model."""
    return models["transformer"].config_class().ffn_dim


@check
def linear_in_values() -> float:
    """Return the gap of attention from being linear in its values, the weights being fixed."""
    layer, x = block().attention, words(7, 12)
    q, k, v = layer.project(x)
    kernel = layer.kernel
    return gap(kernel(q, k, 3 * v)[0], 3 * kernel(q, k, v)[0])


@check
def layer_by_layer(formula: str) -> float:
    """Return the gap of a formula for a whole layer from an encoder layer with the norm after each residual."""
    layer, x = block(norm_place="post"), words(5, 12)
    norm = lambda y: F.layer_norm(y, (12,))  # noqa: E731
    z = norm(x + layer.attention(x))
    by_hand = {
        "four steps": lambda: norm(z + layer.feedforward(z)),
        "one line": lambda: layer.feedforward(z),
    }
    return gap(layer(x), by_hand[formula]())


@check
def attention_lost(formula: str) -> float:
    """Return what attention contributes to a layer whose feed-forward part is zero: in a block, or in one formula."""
    layer, x = block(), words(5, 12)
    nn.init.zeros_(layer.feedforward.down.weight)
    nn.init.zeros_(layer.feedforward.down.bias)
    whole = layer(x) if formula == "block" else x + layer.feedforward(x + layer.attention(x))
    return gap(whole, x)


def deep(depth: int, *, residual: bool, norm: bool = True) -> tuple[Tensor, Tensor]:
    """Return input and output of so many untrained blocks, with or without residuals and norms."""
    torch.manual_seed(0)
    x = words(7, 12)
    y: Tensor = x
    for _ in range(depth):
        layer = block()
        for part in ("attention", "feedforward"):
            new = getattr(layer, part)(layer.norms[part](y) if norm else y)
            y = y + new if residual else new
    return x, y


@check
def gradient_at_depth(depth: int, residual: bool, norm: bool = True) -> float:
    """Return the size of the gradient that the input gets through so many untrained blocks."""
    x, y = deep(depth, residual=residual, norm=norm)
    return reach(y, x).mean().item()


@check
def residual_gain(depth: int) -> float:
    """Return how many times larger the gradient at the input of so many untrained blocks is with residuals."""
    return gradient_at_depth(depth, residual=True) / gradient_at_depth(depth, residual=False)


@check
def activation_at_depth(depth: int, norm: bool) -> float:
    """Return how many times the input the output of so many feed-forward layers is, their weights tripled."""
    torch.manual_seed(0)
    y: Tensor = words(7, 12)
    first = y.std().item()
    for _ in range(depth):
        layer = block()
        for parameter in layer.feedforward.parameters():
            parameter.data *= 3
        y = layer.feedforward(layer.norms["feedforward"](y) if norm else y)
    return y.std().item() / first


@check
def identity_by_zero() -> float:
    """Return the gap of a stack of six blocks, whose parts give zero, from its input."""
    stack = Stack(BlockConfig(**SIZES), Position(**NOWHERE), depth=6, causal=False, final_norm=False)
    zero_output_init(stack)
    for name, parameter in stack.named_parameters():
        if name.endswith(("out.bias", "down.bias")):
            nn.init.zeros_(parameter)
    x = words(5, 12)
    return gap(stack(x), x)


@check
def norm_statistics() -> list[float]:
    """Return the largest mean and the mean variance of normed tokens whose scale is 1000 and whose offset is 50."""
    y = build_norm("layer", 64, 1e-5)(1000 * torch.randn(7, 64) + 50)
    return [y.mean(-1).abs().max().item(), y.var(-1, unbiased=False).mean().item()]


@check
def norm_formula(lecture: str) -> float:
    """Return the gap of a lecture's LayerNorm from PyTorch's, on vectors of width 5 with ε = 0.1."""
    x, eps = torch.randn(3, 5), 0.1
    centred = x - x.mean(-1, keepdim=True)
    spread = x.std(-1, keepdim=True, unbiased=lecture == "001")
    return gap(centred / (spread + eps), build_norm("layer", 5, eps)(x))


@check
def norm_reaches_tokens() -> float:
    """Return the gradient that the norm of one token has from other tokens."""
    x = words(7, 12)
    return reach(build_norm("layer", 12, 1e-5)(x)[:, :1], x)[0, 1:].sum().item()


def small(family: str = "transformer", **changes: Any) -> Any:
    return build(family, **{"vocab_size": 53, "depth": 3, **SIZES, **changes})


@check
def contexts_of_decoder(last: bool) -> int:
    """Return how many decoder layers get the encoder's last output (or else that of the encoder layer beside them)."""
    model, seen, encoded = small(), [], []
    for one in model.encoder.blocks:
        one.register_forward_hook(lambda module, inputs, out: encoded.append(out))
    for one in model.decoder.blocks:
        one.cross.register_forward_hook(lambda module, inputs, out: seen.append(inputs[1]))  # type: ignore[union-attr]
    model(torch.randint(53, (1, 6)), torch.tensor([6]), torch.randint(53, (1, 4)))
    wanted = [model.encoder.norm(encoded[-1])] * 3 if last else encoded
    return sum(gap(context, beside) < 1e-9 for context, beside in zip(seen, wanted, strict=True))


@check
def cross_is_added() -> float:
    """Return the gap of a decoder layer from one whose cross-attention is added to its input by hand."""
    layer = Block(BlockConfig(**SIZES), Position(**NOWHERE), causal=True, cross=True)
    x, memory = words(4, 12), words(6, 12)
    assert layer.cross is not None
    y = x + layer.attention(layer.norms["attention"](x), mask=causal())
    y = y + layer.cross(layer.norms["cross"](y), memory)
    return gap(layer(x, memory, mask=causal()), y + layer.feedforward(layer.norms["feedforward"](y)))


@check
def shared_between_blocks() -> int:
    """Return the number of parameters that two blocks of a stack share."""
    first, second, *_ = small().encoder.blocks
    return len(set(map(id, first.parameters())) & set(map(id, second.parameters())))


@check
def widths() -> int:
    """Return the number of different widths between the blocks of an encoder and a decoder."""
    model, seen = small(), set()
    for one in (*model.encoder.blocks, *model.decoder.blocks):
        one.register_forward_hook(lambda module, inputs, out: seen.add(out.shape[-1]))
    model(torch.randint(53, (1, 6)), torch.tensor([6]), torch.randint(53, (1, 4)))
    return len(seen)


@check
def parts_of_a_layer(cross: bool) -> int:
    """Return the number of residual connections in a layer of the encoder, or of the decoder."""
    return len(Block(BlockConfig(**SIZES), Position(**NOWHERE), causal=cross, cross=cross).norms)


@check
def embedding_scale(dim: int) -> float:
    """Return the factor by which a token's vector is multiplied before positions are added."""
    embedding = Embedding(7, dim, Position(dim=dim, heads=1, head_dim=dim, max_len=3), dropout=0.0, scaled=True)
    return (embedding(torch.tensor([[3]]))[0, 0] / embedding.weight[3]).median().item()


@check
def embedding_as_product() -> float:
    """Return the gap of a lookup in the embedding from the product of one-hot vectors with its matrix."""
    embedding = Embedding(7, 12, Position(**NOWHERE), dropout=0.0, scaled=False)
    ids = torch.tensor([[3, 1, 6]])
    return gap(embedding(ids), F.one_hot(ids, 7).double() @ embedding.weight)


@check
def static_vectors(depth: int) -> float:
    """Return the change of a word's vector when the words around it change: depth 0 is the embedding alone."""
    model = small("gpt")
    vectors = []
    for first in (5, 6):
        ids = torch.tensor([[first, 7, 30]])
        vectors.append(model.embedding(ids) if depth == 0 else model.features(ids))
    return gap(vectors[0][:, -1], vectors[1][:, -1])


@check
def next_token_probabilities() -> list[float]:
    """Return the numbers for each position, and the largest distance from 1 of their softmax's sum, of 53 tokens."""
    model = small("gpt")
    logits = model(torch.randint(53, (1, 6)))
    return [float(logits.shape[-1]), (logits.softmax(-1).sum(-1) - 1).abs().max().item()]


@check
def learning_rate(step: int, dim: int = 512, warmup: int = 4000) -> float | str:
    """Return the learning rate of the 2017 paper at a step."""
    try:
        return inverse_sqrt(step, dim=dim, warmup=warmup)
    except ZeroDivisionError:
        return "division by zero"


@check
def peak_of_learning_rate() -> int:
    """Return the step with the highest learning rate of the 2017 paper, width 512, warm-up 4000."""
    return max(range(1, 20_000), key=lambda step: inverse_sqrt(step, dim=512, warmup=4000))


@check
def variance_of_product() -> float:
    """Return the variance of the product of two independent standard normal numbers."""
    a, b = torch.randn(2, 400_000)
    return (a * b).var().item()


@check
def glorot_variance() -> float:
    """Return the variance of Glorot-initialised weights of width 512, as a multiple of 2 / (fan in + fan out)."""
    model = small(dim=512, heads=8, ffn_dim=64, depth=1)
    return model.encoder.blocks[0].attention.query.weight.var().item() * 512  # type: ignore[union-attr,operator]
