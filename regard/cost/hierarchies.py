"""The rules of the families whose grid of tokens shrinks from stage to stage: everything is counted once an image."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from regard.cost.attention import (
    attention_kept,
    attention_live,
    attention_parameters,
    kernel_costs,
    key_flops,
    query_flops,
    widths,
)
from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import (
    PositionCost,
    feedforward_flops,
    feedforward_kept,
    feedforward_live,
    feedforward_parameters,
    linear_parameters,
    norm_kept,
    norm_parameters,
)
from regard.cost.stack import attention_of
from regard.models.cnn_attention import CNNAttentionConfig
from regard.models.hierarchy import HierarchyConfig
from regard.models.mvit import MViTConfig
from regard.models.swin import SwinConfig
from regard.nn.block import BlockConfig
from regard.nn.patches import sides
from regard.nn.pooling import Grid, pooled
from regard.nn.windows import LogOffsets, Windows

OFFSETS = PositionCost(biases=True, trained_bias=True)
NOWHERE = PositionCost()


def feedforward_of(sizes: BlockConfig) -> tuple[int, int]:
    """Parameters of a block's feed-forward layer, and FLOPs of one token in it."""
    return (
        feedforward_parameters(sizes.dim, sizes.ffn_dim, activation=sizes.activation, bias=True),
        feedforward_flops(sizes.dim, sizes.ffn_dim, activation=sizes.activation),
    )


@register_count(SwinConfig)
def swin(config: SwinConfig, at: Setting) -> Count:
    """Each token looks at those of its window: attention grows with the area. What fills windows up is computed too."""
    B, D, values, grid = (
        at.batch,
        config.dim,
        config.channels * config.patch**2,
        pooled(sides(config.image), config.patch),
    )
    parts = dict(patches=linear_parameters(values, D) + norm_parameters("layer", D))
    parts |= dict.fromkeys(("attention", "positions", "feedforward", "norms", "merging", "head"), 0)
    flops, matrices, kept, live = Flops(matrices=2 * prod(grid) * values * D), 0, 0, 0
    for stage, depth in enumerate(config.depths):
        sizes, T, last = config.blocks(stage), prod(grid), stage == len(config.depths) - 1
        own = replace(attention_of(sizes), needs=frozenset({"biased"}))
        window = Windows.fit(config.planned(stage) or (config.window,) * 2, config.window).size  # that offsets are for
        offsets = (2 * window - 1) ** 2 * sizes.heads
        if config.offsets == "log":  # the network runs once a batch: its FLOPs and memory are left out
            offsets = linear_parameters(2, LogOffsets.hidden) + LogOffsets.hidden * sizes.heads
        cut = Windows.fit(grid, config.window, within=config.planned(stage))
        filled, keys = prod(cut.filled), cut.size**2
        count, per_token = feedforward_of(sizes)
        parts["attention"] += depth * attention_parameters(own)
        parts["positions"] += depth * offsets
        parts["feedforward"] += depth * count
        parts["norms"] += 2 * depth * norm_parameters("layer", sizes.dim)
        projected, looked = 2 * 4 * sizes.dim**2, kernel_costs[own.kernel].score_flops(own, keys)
        flops += Flops(matrices=depth * (filled * projected + T * per_token), attention=depth * filled * looked)
        matrices += B * depth * sizes.heads * filled * keys
        layer = dict(batch=B * filled // keys, queries=keys, keys=keys, own=True)
        forward = feedforward_kept(sizes.dim, sizes.ffn_dim, activation=sizes.activation, dropout=0.0)
        noise = 2 * sizes.dim if config.dropout else 0
        kept += depth * B * T * (forward + 2 * norm_kept("layer", sizes.dim) + noise)
        kept += depth * attention_kept(own, OFFSETS, **layer)
        moments = (
            attention_live(own, OFFSETS, **layer),
            B * T * feedforward_live(sizes.ffn_dim, activation=sizes.activation),
        )
        live = max(live, max(moments) + 4 * B * T * sizes.dim)
        grid = grid if last else pooled(grid, 2)
        if not last:
            normed = sizes.dim * (4 if config.norm_place == "pre" else 2)
            parts["merging"] += norm_parameters("layer", normed) + 8 * sizes.dim**2
            flops += Flops(matrices=2 * prod(grid) * 8 * sizes.dim**2)
            kept += B * prod(grid) * (4 * sizes.dim + norm_kept("layer", normed))
    return hierarchy(config, at, sizes.dim, prod(grid), parts, flops, kept, live, matrices, trained=True)


def hierarchy(
    config: HierarchyConfig, at: Setting, dim: int, tokens: int, parts: dict[str, int], flops: Flops, kept: int,
    live: int, matrices: int, *, trained: bool,
) -> Count:  # fmt: skip
    """The end of all these families: a norm of the last tokens, their mean, a head."""
    labels = len(config.labels)
    parts["norms"] += norm_parameters("layer", dim)
    parts["head"] = linear_parameters(dim, labels) if labels else 0
    flops += Flops(matrices=2 * dim * labels)
    rows, columns = sides(config.image)
    kept += at.batch * (tokens * norm_kept("layer", dim) + config.channels * rows * columns + dim)
    return Count(
        parameters=parts,
        flops_per_token={},
        flops_per_sequence=flops.forward,
        attention_per_sequence=flops.attention,
        activations={"stages": kept} if at.training else {"widest_layer": live},
        attention_matrices={"self": matrices},
        matrices_held=("self",) if at.training and (trained or config.attention_dropout) else (),
        cache={},
        scores=0,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One block of an MViT: its sizes, the width and grid of what comes in, and how it pools queries and keys."""

    sizes: BlockConfig
    inputs: int
    grid: Grid
    strides: tuple[int, int]

    @property
    def queries(self) -> Grid:
        return pooled(self.grid, self.strides[0])

    @property
    def keys(self) -> Grid:
        return pooled(self.grid, self.strides[1])


def steps(config: MViTConfig) -> Iterator[Step]:
    grid = pooled(sides(config.image), config.patch)
    for stage, depth in enumerate(config.depths):
        sizes = config.blocks(stage)
        for number in range(depth):
            first = stage > 0 and number == 0
            step = Step(
                sizes, sizes.dim // 2 if first else sizes.dim, grid, (2 if first else 1, config.key_strides(stage))
            )
            yield step
            grid = step.queries


@register_count(MViTConfig)
def mvit(config: MViTConfig, at: Setting) -> Count:
    """Queries look at pooled keys; convolutions pool, and relative positions make q and k longer."""
    B, D, values = at.batch, config.dim, config.channels * (2 * config.patch - 1) ** 2
    relative = config.position == "relative"
    parts = dict(patches=linear_parameters(values, D), positions=0 if relative else config.tokens * D)
    parts |= dict.fromkeys(("attention", "pooling", "feedforward", "norms", "widening", "head"), 0)
    flops, matrices, kept, live = Flops(matrices=2 * config.tokens * values * D), 0, 0, 0
    for step in steps(config):
        sizes, inputs, width = step.sizes, step.inputs, step.sizes.dim
        own = replace(attention_of(sizes), context_dim=inputs)
        K, H, T = widths(own)[0] // sizes.heads, sizes.heads, prod(step.grid)
        Q, S, fine = prod(step.queries), prod(step.keys), pooled(step.grid, min(step.strides))
        count, per_token = feedforward_of(sizes)
        parts["attention"] += attention_parameters(own) - (width - inputs) * width
        parts["pooling"] += 3 * (9 * K + norm_parameters("layer", K))
        parts["positions"] += sum(2 * side - 1 for side in fine) * K if relative else 0
        parts["feedforward"] += count
        parts["norms"] += norm_parameters("layer", inputs) + norm_parameters("layer", width)
        widened = inputs != width
        parts["widening"] += linear_parameters(inputs, width) if widened else 0
        longer = sum(step.keys) if relative else 0
        made = 2 * T * inputs * width * (4 if widened else 3) + 2 * 9 * (Q + 2 * S) * width
        flops += Flops(
            matrices=made + 2 * Q * width * width + Q * per_token,
            attention=2 * H * Q * (2 * S * (K + longer) + K * longer),
        )
        matrices += B * H * Q * S
        forward = feedforward_kept(width, sizes.ffn_dim, activation=sizes.activation, dropout=0.0)
        pools = T * 3 * width + (Q + 2 * S) * (width + 2 * H) + Q * width  # what is convolved, what is normalised, q
        looks = (2 * Q + 2 * S) * (width + H * longer) + Q * H  # q, k, v and mixed values, all longer, and sums
        kept += B * (T * norm_kept("layer", inputs) + T * inputs + pools + looks + Q * width)
        kept += B * Q * (forward + norm_kept("layer", width) + (2 * width if config.dropout else 0))
        kept += B * T * width if step.strides[0] > 1 else 0  # what was the largest, and where
        moment = max(T * 3 * width + pools + looks, Q * feedforward_live(sizes.ffn_dim, activation=sizes.activation))
        live = max(live, B * (moment + 3 * T * inputs))
    return hierarchy(config, at, width, Q, parts, flops, kept, live, matrices, trained=False)


@register_count(CNNAttentionConfig)
def cnn_attention(config: CNNAttentionConfig, at: Setting) -> Count:
    """Two convolutions a block, and behind those of the last stages attention over all places of the map."""
    B, D, values = at.batch, config.dim, config.channels * (2 * config.patch + 1) ** 2
    grid, width, T, holds = pooled(sides(config.image), config.patch), D, config.tokens, False
    parts = dict(patches=linear_parameters(values, D)) | dict.fromkeys(
        ("convolutions", "attention", "norms", "head"), 0
    )
    flops, matrices, kept, live = Flops(matrices=2 * T * values * D), 0, 0, 0
    copies = 2 if config.activation == "relu" else 3  # what is normalised, activated (ReLU keeps its result), convolved
    for stage, depth in enumerate(config.depths):
        own = config.attention_for(stage)
        for block in range(depth):
            inputs, before, first = width, T, stage > 0 and block == 0
            width, grid = D * 2**stage, pooled(grid, 2) if first else grid
            T = prod(grid)
            weights = 9 * (inputs + width) * width + (inputs * width if first else 0)
            parts["convolutions"] += weights
            parts["norms"] += 2 * (inputs + width)
            flops += Flops(matrices=2 * T * weights)
            kept += B * (copies * (before * inputs + T * width) + (2 * T * width if config.dropout else 0))
            live = max(live, B * 5 * max(before * inputs, T * width))  # two of them in the layout of PyTorch's library
            if own is not None:
                kernel, layer = kernel_costs[own.kernel], dict(batch=B, queries=T, keys=T, own=True)
                unmasked = B * T * T if not kernel.holds(own, NOWHERE, training=at.training) else 0
                parts["attention"] += attention_parameters(own)
                parts["norms"] += norm_parameters("layer", width)
                looked = kernel.score_flops(own, T) + kernel.summary_flops(own)
                flops += Flops(matrices=T * (query_flops(own) + key_flops(own)), attention=T * looked)
                matrices += B * own.heads * T * T
                kept += B * T * norm_kept("layer", width) + attention_kept(own, NOWHERE, **layer) - unmasked
                live = max(live, attention_live(own, NOWHERE, **layer) - B * T * T + 2 * B * T * width)
                holds = kernel.holds(own, NOWHERE, training=at.training)
    return hierarchy(config, at, width, T, parts, flops, kept, live, matrices, trained=holds)
