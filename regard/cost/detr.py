"""The rule of DETR: a ResNet, two stacks over a feature map and its queries; everything is counted once a picture."""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from regard.cost.attention import attention_parameters, kernel_costs, key_flops, query_flops
from regard.cost.count import Count, Flops, Setting, register_count
from regard.cost.pieces import PositionCost, linear_parameters
from regard.cost.stack import attention_of, norms_parameters, stack_flops, stack_kept, stack_live, stack_parameters
from regard.models.detr import DETRConfig
from regard.nn.patches import sides
from regard.nn.resnet import halved, layers_of


class Convolved(NamedTuple):
    """A convolution without bias: widths, side of its neighbourhood, and numbers that go in and come out."""

    inputs: int
    outputs: int
    size: int
    before: int
    after: int

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.size**2

    @property
    def flops(self) -> int:
        return 2 * self.weights * self.after // self.outputs


def convolutions(config: DETRConfig) -> Iterator[Convolved]:
    """Those of the ResNet, each with its shortcut's."""

    def places(halvings: int) -> int:
        return prod(halved(side, halvings) for side in sides(config.image))

    def convolved(inputs: int, outputs: int, size: int, before: int, after: int) -> Convolved:
        return Convolved(inputs, outputs, size, inputs * places(before), outputs * places(after))

    yield convolved(config.channels, config.stem, 7, 0, 1)
    inputs, came = config.stem, 2
    for stage, (width, count) in enumerate(zip(config.widths, config.blocks, strict=True)):
        for _ in range(count):
            goes = 2 + stage
            if inputs != width or came != goes:
                yield convolved(inputs, width, 1, came, goes)
            for number, size in enumerate(layers_of(inputs, width, bottleneck=config.bottleneck)):
                behind = number - int(config.bottleneck)  # below 0 before the one with strides
                yield convolved(*size, goes if behind > 0 else came, came if behind < 0 else goes)
            inputs, came = width, goes


@register_count(DETRConfig)
def detr(config: DETRConfig, at: Setting) -> Count:
    """Keys and values of the feature map are made once for each block of the decoder."""
    layers, B, D, Q, S = config.layers, at.batch, config.dim, config.queries, config.tokens
    depth, again, labels = config.depth, config.decoder_depth, len(config.labels) + 1
    cross, position = attention_of(layers, cross=True), PositionCost()
    net, pre = list(convolutions(config)), config.norm_place == "pre"
    encoder, decoder = (stack_parameters(layers, depth=n, final=final) for n, final in ((depth, pre), (again, True)))
    looks = kernel_costs[cross.kernel]
    flops = Flops(matrices=sum(one.flops for one in net) + 2 * S * config.widths[-1] * D)
    flops += stack_flops(layers, depth=depth, keys=S, causal=False) * S
    flops += stack_flops(layers, depth=again, keys=Q, causal=False) * Q
    flops += Flops(matrices=query_flops(cross), attention=looks.score_flops(cross, S)) * (again * Q)
    flops += Flops(matrices=key_flops(cross) * S, attention=looks.summary_flops(cross) * S) * again
    flops += Flops(matrices=2 * Q * (D * labels + 2 * D * D + 4 * D))
    if at.training:
        placed = B * D * (depth * S + again * (Q + S))  # vectors with their places, beside those without
        activations = {
            "backbone": B * sum(one.before + one.after for one in net),
            "encoder": stack_kept(layers, position, depth=depth, batch=B, length=S, causal=False, final=pre) + placed,
            "decoder": stack_kept(
                layers, position, depth=again, batch=B, length=Q, context=S, causal=False, final=True
            ),
        }
    else:
        reading = stack_live(layers, position, batch=B, length=S, causal=False)
        asking = stack_live(layers, position, batch=B, length=Q, context=S, causal=False)
        activations = {"widest_layer": max(reading, asking, B * max(one.before + one.after for one in net))}
    trained = 0 if config.frozen else sum(2 * one.outputs for one in net)
    held = kernel_costs[layers.kernel].holds(attention_of(layers), position, training=at.training)
    return Count(
        parameters={
            "backbone": sum(one.weights for one in net) + trained,
            "projection": linear_parameters(config.widths[-1], D),
            "queries": Q * D * (2 if config.contents else 1),
            **{f"encoder_{name}": number for name, number in encoder.items()},
            "decoder_self_attention": decoder["attention"],
            "decoder_cross_attention": again * attention_parameters(cross),
            "decoder_feedforward": decoder["feedforward"],
            "decoder_norms": norms_parameters(layers, depth=again, parts=3, final=True),
            "heads": linear_parameters(D, labels) + 2 * linear_parameters(D, D) + linear_parameters(D, 4),
        },
        flops_per_token={},
        flops_per_sequence=flops.forward,
        attention_per_sequence=flops.attention,
        activations=activations,
        attention_matrices={
            "encoder": B * config.heads * S * S * depth,
            "decoder_self": B * config.heads * Q * Q * again,
            "decoder_cross": B * config.heads * Q * S * again,
        },
        matrices_held=("encoder", "decoder_self", "decoder_cross") if held else (),
        cache={},
        scores=0,
        notes=("norms of the ResNet that are constants are no parameters",) if config.frozen else (),
    )
