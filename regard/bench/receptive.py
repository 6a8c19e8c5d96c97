"""Receptive fields, measured: the gradient of the middle unit behind each block at every pixel, or token.

A convolution reads neighbours, so that its field grows from block to block; attention may read everything at once.
What a unit could read is not what it reads: the effective field is where 90 % of the gradient lies (Luo et al., 2016).
Measured on models as they are initialised; of a trained run, before and after training.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.bench.measure import interruptible, line_up, report
from regard.config import check_positive, override
from regard.inside.capture.states import examples_for, read_example, shaped, vectors_in
from regard.inside.draw.canvas import Sheet, Target, pen, ramp, write_legend
from regard.models import build, parts, preset
from regard.nn.embeddings import Embedding
from regard.registry import models
from regard.tasks import load
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

SHORT = {"cnn": "cnn-attention:attention=0"}
"""Further names of families with settings."""
SIZES = dict(channels=3, patch=4, vocab_size=64)
"""Fields of models that are built, where they have them."""
DIRECTIONS = 4
"""Random directions of the unit whose gradients are averaged."""
INSIDE = 0.9
"""Share of the gradient that the effective field holds."""
LEAST = 1e-6
"""Gradients below this share of the largest count as none."""
MOST_DRAWN = 4
"""Blocks of a model that are drawn."""

Unit = tuple[Tensor, tuple[float, ...]]
"""The vector of a unit in each row of a batch, and its position in the input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReceptiveConfig:
    """Models to measure, and the sizes of their inputs."""

    models: tuple[str, ...]
    """Families with settings where wanted, cnn, or directories of runs."""
    image: int = 64
    """Pixels of an image's side, for models that are built."""
    length: int = 128
    """Tokens of a text."""
    inputs: int = 8
    """Inputs to average over."""

    def __post_init__(self) -> None:
        check_positive(self, "image", "length", "inputs")
        if not self.models:
            raise ValueError("nothing to measure: name at least one model, such as cnn, vit or gpt")


def measure_receptive(config: ReceptiveConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure every model; a run also as it was before training. After Ctrl-C return the results so far."""
    line, measured = Line(quiet), dict[str, Any]()
    result: dict[str, Any] = {"inputs": config.inputs, "inside": INSIDE, "models": measured}
    with interruptible(result):
        for name in config.models:
            for title, model, inputs in built(config, name):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(1)
                    measured[title] = fields_of(model, inputs)
                last = measured[title]["blocks"][-1]
                line.say(f"{title}: {last['size']} of {measured[title]['extent']} {measured[title]['unit']}")
    return result


def built(config: ReceptiveConfig, name: str) -> list[tuple[str, nn.Module, Tensor]]:
    """A model with its inputs and title; a run twice: as if it were initialised anew, and trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if Path(name).is_dir():
            task: Any = load(name)
            fresh = type(task.model)(task.model.config)
            inputs = inputs_of(config, task.model, task)
            return [(f"{name}, untrained", fresh, inputs), (name, task.model, inputs)]
        family, _, settings = SHORT.get(name, name).partition(":")
        cls = models[family]
        wanted = SIZES | dict(image=config.image, max_len=config.length)
        fields = {key: value for key, value in wanted.items() if key in cls.config_class.__dataclass_fields__}
        plan = preset(family, "tiny", **fields) if "tiny" in cls.presets else override(cls.config_class(), fields)
        pairs = (part.partition("=") for part in filter(None, settings.split(",")))
        model = build(family, override(plan, {key: value for key, _, value in pairs}))
        return [(name, model, inputs_of(config, model))]


def inputs_of(config: ReceptiveConfig, model: Any, task: Any = None) -> Tensor:
    """Noise, or random tokens; for a run that reads images the embedded digits, as it preprocesses them."""
    taken = signature(parts.image_tower(model).features).parameters
    if "pixels" in taken and task is not None:
        items = examples_for(task, None).items[: config.inputs]
        return torch.cat([read_example(task, item).inputs["pixels"] for item in items])
    if "pixels" in taken:
        return torch.randn(config.inputs, model.config.channels, config.image, config.image)
    if "ids" not in taken:
        name = type(model).__name__
        raise ValueError(f"a {name} reads {', '.join(taken)}; name a model of one image or one text, as vit or gpt")
    return torch.randint(model.config.vocab_size, (config.inputs, min(config.length, model.config.max_len)))


def fields_of(model: Any, inputs: Tensor) -> dict[str, Any]:
    """The receptive field of the middle unit behind each block, with its sizes."""
    tower, pixels = parts.image_tower(model.float().eval()), inputs.dim() == 4
    leaves, outputs = [inputs.detach().clone().requires_grad_()] if pixels else list[Tensor](), list[Tensor]()

    def embedded(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with ExitStack() as hooks:
        if not pixels:
            embedding = next(module for module in tower.modules() if isinstance(module, Embedding))
            hooks.enter_context(embedding.register_forward_hook(embedded))
        for block in dict.fromkeys(parts.blocks(tower)):
            hooks.enter_context(block.register_forward_hook(lambda *call: outputs.append(vectors_in(call[-1]))))
        taken = signature(tower.features).parameters
        lengths = {"lengths": torch.full((len(inputs),), inputs.shape[1])} if "lengths" in taken else {}
        whole = tower.features(leaves[0] if pixels else inputs, **lengths)
    units = [middle(output, parts.prefix_length(model), tuple(inputs.shape[2:])) for output in outputs or [whole]]
    size: Callable[..., dict[str, Any]] = image_size if pixels else text_size
    blocks = [size(gradient_field(unit, leaves[0]), at) for unit, at in units]
    return {"unit": "pixels" if pixels else "tokens", "extent": inputs.shape[-1], "blocks": blocks}


def middle(output: Tensor, prefix: int, size: tuple[int, ...]) -> Unit:
    """The unit in the middle of a feature map, a grid of tokens, or a text, and where in the input it lies."""
    if not size:  # a text
        at = output.shape[1] // 2
        return output[:, at], (float(at),)
    if output.dim() == 3:
        grid = shaped(output.shape[1] - prefix, size[0] / size[1])
        output = output[:, prefix:].mT.unflatten(2, grid)
    rows, columns = output.shape[2:]
    row, column = rows // 2, columns // 2
    return output[:, :, row, column], ((row + 0.5) * size[0] / rows - 0.5, (column + 0.5) * size[1] / columns - 0.5)


def gradient_field(unit: Float[Tensor, "B D"], leaf: Tensor) -> np.ndarray:
    """|∂ unit / ∂ input| at each pixel or token, the mean over inputs and random directions; it sums to 1."""
    total = torch.zeros(leaf.shape[2:] if leaf.dim() == 4 else leaf.shape[1:2])
    for _ in range(DIRECTIONS):
        direction = nn.functional.normalize(torch.randn(unit.shape[1]), dim=0)
        (gradient,) = torch.autograd.grad((unit @ direction).sum(), leaf, retain_graph=True)
        total += gradient.abs().mean(0).sum(0) if leaf.dim() == 4 else gradient.abs().mean(0).sum(-1)
    if not total.sum() > 0:
        raise ValueError("the middle unit does not depend on the input: its gradient is 0; give a model that reads it")
    return (total / total.sum()).numpy()


def shortened(field: np.ndarray) -> list[Any]:
    """A field as lists of numbers of four digits."""
    return [shortened(row) if field.ndim > 1 else float(f"{row:.4g}") for row in field]


def image_size(field: np.ndarray, at: tuple[float, float]) -> dict[str, Any]:
    """The sides of the squares around a unit that hold 90 % of the gradient, and all of it."""
    rows, columns = (np.abs(np.arange(count) - middle) for count, middle in zip(field.shape, at, strict=True))
    far = np.maximum(rows[:, None], columns[None, :])
    order = np.argsort(far, axis=None)
    held = far.flat[order[np.searchsorted(np.cumsum(field.flat[order]), INSIDE)]]
    reached = far[field > LEAST * field.max()].max()
    most = max(field.shape)
    sides = [min(most, int(round(2 * one + 1))) for one in (held, reached)]
    return {"size": sides[0], "reach": sides[1], "field": shortened(field)}


def text_size(field: np.ndarray, at: tuple[float]) -> dict[str, Any]:
    """The tokens around a unit, as far as they hold 90 % of the gradient, and all that it depends on."""
    far, seen = np.abs(np.arange(len(field)) - at[0]), field > LEAST * field.max()
    order = np.argsort(far, kind="stable")
    held = far[order[np.searchsorted(np.cumsum(field[order]), INSIDE)]]
    return {"size": int((seen & (far <= held)).sum()), "reach": int(seen.sum()), "field": shortened(field)}


def render_receptive(result: Mapping[str, Any]) -> str:
    """A table: effective and whole field behind each block."""
    head = [
        f"receptive field of the middle unit behind each block: where {result['inside']:.0%} of |∂ unit / ∂ input| "
        f"lies / all that it depends on; mean of {result['inputs']} inputs; images: side of a square in pixels",
    ]
    most = max(len(part["blocks"]) for part in result["models"].values())
    table = [["", "of", *(f"block {i + 1}" for i in range(most))]]
    for name, part in result["models"].items():
        cells = [f"{one['size']} / {one['reach']}" for one in part["blocks"]]
        table.append([name, f"{part['extent']} {part['unit']}", *cells, *[""] * (most - len(cells))])
    return report(head, line_up(table))


def draw_receptive(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw fields over pixels as maps, a row for each model; fields over tokens as lines."""
    sheet, side, apart = Sheet(), 1.5, 0.62
    images = {name: part for name, part in result["models"].items() if part["unit"] == "pixels"}
    for row, (name, part) in enumerate(images.items()):
        blocks = part["blocks"]
        drawn = sorted({round(i * (len(blocks) - 1) / (MOST_DRAWN - 1)) for i in range(MOST_DRAWN)})
        for column, number in enumerate(drawn):
            one = blocks[number]
            axes = sheet.place(column * (side + 0.25), -row * (side + apart), side, side)
            field = np.array(one["field"])
            axes.imshow(np.sqrt(field / field.max()), cmap=ramp(), vmin=0, vmax=1, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.set_title(f"block {number + 1}: {one['size']} of {part['extent']}", loc="left", **pen(8))
            if column == 0:
                axes.set_ylabel(Path(name.partition(",")[0]).name + "".join(name.partition(",")[1:]), **pen(9))
    texts = {name: part for name, part in result["models"].items() if part["unit"] == "tokens"}
    if texts:
        axes = sheet.chart(0, -len(images) * (side + apart) - 1.1, 5, 2.4, xlabel="token", log="y",
                           ylabel="|∂ middle unit / ∂ input|", title="behind the last block")  # fmt: skip
        for name, part in texts.items():
            last = part["blocks"][-1]
            values = [value if value > 0 else np.nan for value in last["field"]]
            axes.plot(values, linewidth=1.4, label=f"{name}: {last['size']} of {part['extent']}")
        write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return sheet.save(path)
