"""ResNet-50, and LR-Net-50 with local relations in place of its convolutions: parameters and work, stage by stage.

What the published table leaves open is a field of the config, and stands below the figures as a note.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from regard.cost.report import binary_size, decimal_size, quantity
from regard.nn.convolution import LocalRelation
from regard.nn.resnet import halved

FIRST_SIZE = 7
"""Side of the neighbourhood in the first stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvNetConfig:
    """A residual network of bottlenecks: 1 × 1, a layer that reads a neighbourhood, 1 × 1 (He et al., 2016)."""

    around: Literal["convolution", "relation"] = "convolution"
    """The layer that reads a neighbourhood: a convolution, or a local relation layer (Hu et al., 2019)."""
    kernel_size: int = 3
    """Side of the neighbourhood in the blocks."""
    first_dim: int = 64
    """Channels of the first stage."""
    inner: tuple[int, ...] = (64, 128, 256, 512)
    """Channels inside the bottlenecks of each stage."""
    outer: tuple[int, ...] = (256, 512, 1024, 2048)
    """Channels between the bottlenecks of each stage."""
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    """Bottlenecks of each stage."""
    share: int = 8
    """Number of channels that share a relation's weights, m."""
    transform: Literal["after", "before", "none"] = "after"
    """The 1 × 1 convolution of a relation layer: on its output, on its values, or none."""
    side: int = 224
    """Pixels of a side of the image."""
    classes: int = 1000
    """Classes of the last layer."""

    def __post_init__(self) -> None:
        if not len(self.inner) == len(self.outer) == len(self.blocks):
            raise ValueError(f"inner={self.inner}, outer={self.outer} and blocks={self.blocks} need an entry a stage")
        for name in ("kernel_size", "first_dim", "share", "side", "classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={self.kernel_size} must be odd; use {self.kernel_size + 1}")
        if min((*self.inner, *self.outer, *self.blocks, 1)) < 1:
            raise ValueError(f"inner={self.inner}, outer={self.outer}, blocks={self.blocks} must all be at least 1")

    @property
    def name(self) -> str:
        """The network's name by its number of layers with weights, such as resnet-50."""
        return f"{'ResNet' if self.around == 'convolution' else 'LR-Net'}-{2 + 3 * sum(self.blocks)}"


CONVNETS = {
    "resnet-50": ConvNetConfig(),
    "lr-net-50": ConvNetConfig(around="relation", kernel_size=7, inner=(100, 200, 400, 800)),
}
"""Published sizes by name."""


Part = tuple[int, int]
"""Cost of one or several layers: number of parameters, and multiply–adds of one image."""


def together(*parts: Part) -> Part:
    """Return the sum of several costs."""
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


class Stage(NamedTuple):
    """A row of the table: side of the output, layers as printed, and multiply–adds of the batch."""

    name: str
    side: int
    layers: str
    parameters: int
    multiply_adds: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ConvNetCost:
    """Parameters and multiply–adds of a convolutional network by stage."""

    config: ConvNetConfig
    """The network that was counted."""
    batch: int
    """Number of images in the batch."""
    stages: tuple[Stage, ...]
    """The stages from the pixels to the classes."""

    @property
    def parameters(self) -> int:
        return sum(stage.parameters for stage in self.stages)

    @property
    def multiply_adds(self) -> int:
        return sum(stage.multiply_adds for stage in self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions behind the figures."""
        config = self.config
        notes = [
            "multiply–adds: convolutions, relations and the last layer, forward; FLOPs are twice as many",
            "a norm (2 parameters a channel) behind each layer; strides are in the layer that reads a neighbourhood; "
            "each stage's first block has a 1×1 convolution beside it",
        ]
        return tuple(notes + (relation_notes(config) if config.around == "relation" else []))

    def render(self) -> str:
        """The table that `regard cost resnet-50` prints."""
        config, widest = self.config, max(len(stage.layers) for stage in self.stages)
        size = 4 * self.parameters

        def row(name: str, output: str, layers: str, parameters: str, work: str) -> str:
            return f"{name:<8}{output:<12}{layers:<{widest}}{parameters:>14}{work:>17}"

        lines = [f"{config.name}: images {config.side} × {config.side} × 3, batch {self.batch}, inference", ""]
        lines.append(row("stage", "output", "layers", "parameters", "multiply–adds"))
        for stage in self.stages:
            output = f"{stage.side} × {stage.side}"
            lines.append(row(stage.name, output, stage.layers, f"{stage.parameters:,}", quantity(stage.multiply_adds)))
        lines.append(row("total", "", "", f"{self.parameters:,}", quantity(self.multiply_adds)))
        lines += ["", f"weights in float32: {decimal_size(size)}, {binary_size(size)}", "", *self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for `--json`."""
        return {
            "model": self.config.name,
            "batch": self.batch,
            "stages": [stage._asdict() for stage in self.stages],
            "parameters": self.parameters,
            "multiply_adds": self.multiply_adds,
            "notes": list(self.notes),
        }


def convnet_cost(config: ConvNetConfig, *, batch: int = 1) -> ConvNetCost:
    """Return the cost of a forward pass, computed from the sizes without building the network."""
    if batch < 1:
        raise ValueError(f"batch={batch} must be at least 1")
    side = halved(config.side, 1)
    table = [("res1", side, *first_stage(config))]
    side, width = halved(side, 1), config.first_dim  # the pooling between the first two stages has no weights
    for index, (inner, outer, blocks) in enumerate(zip(config.inner, config.outer, config.blocks, strict=True)):
        before, side = side, halved(side, 1) if index else side
        parts = [convolution(width, outer, 1, side)]  # beside the first block
        for block in range(blocks):
            came = before if block == 0 else side
            parts.append(convolution(outer if block else width, inner, 1, came))
            parts += [around(config, inner, config.kernel_size, came, side), convolution(inner, outer, 1, side)]
        layers = f"[1×1 {inner}, {config.kernel_size}×{config.kernel_size} {config.around} {inner}, 1×1 {outer}]"
        pool = "3×3 max pool, stride 2; " if index == 0 else ""
        table.append((f"res{index + 2}", side, together(*parts), f"{pool}{layers} × {blocks}"))
        width = outer
    head = width * config.classes + config.classes, width * config.classes
    table.append(("head", 1, head, f"mean over positions, {config.classes} classes"))
    stages = (Stage(name, side, layers, count, batch * work) for name, side, (count, work), layers in table)
    return ConvNetCost(config=config, batch=batch, stages=tuple(stages))


def first_stage(config: ConvNetConfig) -> tuple[Part, str]:
    """Return the cost of the first stage; before a relation layer, a 1 × 1 convolution maps pixels to channels."""
    width, side = config.first_dim, config.side
    layers, after = f"{FIRST_SIZE}×{FIRST_SIZE} {config.around} {width}, stride 2", halved(side, 1)
    if config.around == "convolution":
        return convolution(3, width, FIRST_SIZE, after), layers
    relation = around(config, width, FIRST_SIZE, side, after)
    return together(convolution(3, width, 1, side), relation), f"1×1 {width}, {layers}"


def convolution(inputs: int, outputs: int, size: int, side: int) -> Part:
    """Return the cost of a convolution without bias, followed by a norm; `side` is that of its output."""
    weights = inputs * outputs * size * size
    return weights + 2 * outputs, weights * side * side


def around(config: ConvNetConfig, width: int, size: int, before: int, after: int) -> Part:
    """Return the cost of the layer that reads a size × size neighbourhood, from side `before` to side `after`."""
    if config.around == "convolution":
        return convolution(width, width, size, after)
    groups, hidden = -(-width // config.share), LocalRelation.prior_dim
    prior = 3 * hidden + (hidden + 1) * groups
    queries_and_keys = 2 * width * groups, width * groups * (after**2 + before**2)
    mixed = 2 * width, (groups + width) * size**2 * after**2  # a norm; q·k, and weights times values
    transform = width * width, width * width * (after if config.transform == "after" else before) ** 2
    return together((prior, 0), queries_and_keys, mixed, (0, 0) if config.transform == "none" else transform)


def relation_notes(config: ConvNetConfig) -> list[str]:
    """Assumptions where the published table is open, and the figures under other assumptions."""
    uneven = [str(width) for width in (config.first_dim, *config.inner) if width % config.share]
    others = []
    for option in ("after", "before", "none"):
        other = convnet_cost(dataclasses.replace(config, transform=option))
        others.append(f"{option} {quantity(other.parameters)} and {quantity(other.multiply_adds)}")
    return [
        f"relation: q and k are one number for every {config.share} channels, values are its input; 1×1 convolution of "
        f"its own: {config.transform} (--transform {'; '.join(others)})",
        *([f"{config.share} does not divide {', '.join(uneven)}: the last group is smaller"] if uneven else []),
        f"prior: a network of {LocalRelation.prior_dim} hidden units, whose work (once a pass) is left out",
        f"blocks a stage: {', '.join(map(str, config.blocks))}; the lecture's table prints only the first",
    ]
