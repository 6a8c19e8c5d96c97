"""Gradients against distance: how strongly the last output depends on an input that lies so many tokens back.

In a recurrent network ∂h_T/∂h_t is a product of T − t Jacobians, which vanishes or explodes exponentially; attention
has a path of one step to every token. Measured on models as they are initialised, or on trained runs.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.bench.measure import Point, fit_exponent, interruptible, line_up, report
from regard.config import at_least, check_positive, override
from regard.inside.draw.canvas import Sheet, Target, write_legend
from regard.models import build, preset
from regard.nn.embeddings import Embedding
from regard.registry import models
from regard.tasks import load
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

VOCABULARY = 64
DIRECTIONS = 4
"""Random directions of the output whose gradients are averaged."""
LEAST = 1e-250
"""Gradients below this are left out of fits: they may have been rounded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientConfig:
    """Models to measure, and their sizes."""

    models: tuple[str, ...]
    """Families with settings where wanted, as gpt:residual=false, or directories of runs."""
    length: int = 256
    """Tokens of the sequence."""
    dim: int = 64
    """Width of the models that are built."""
    depth: int = 2
    """Layers of the models that are built."""
    gain: float = 1.0
    """Factor on the matrices of the layers; above 1 a recurrent network explodes instead."""
    seeds: int = 5
    """Initialisations that are averaged."""

    def __post_init__(self) -> None:
        check_positive(self, "dim", "depth", "seeds")
        at_least(8, length=self.length)
        if not (math.isfinite(self.gain) and self.gain > 0):
            raise ValueError(f"gain={self.gain} must be a number above 0")
        if not self.models:
            raise ValueError("nothing to measure: name at least one model, such as lstm or gpt")


def measure_gradients(config: GradientConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure every model; after Ctrl-C return the results so far."""
    line = Line(quiet)
    measured: dict[str, Any] = {}
    result: dict[str, Any] = {
        "length": config.length, "dim": config.dim, "depth": config.depth, "gain": config.gain, "seeds": config.seeds,
        "models": measured,
    }  # fmt: skip
    with interruptible(result):
        for name in config.models:
            points = gradient_by_distance(config, name)
            measured[name] = {"points": points, **law(points), "reach": reach(points)}
            line.say(f"{name}: {measured[name]['law']}")
    return result


def gradient_by_distance(config: GradientConfig, name: str) -> list[Point]:
    """The geometric mean over seeds of ‖∂ output / ∂ input‖ at each distance from 1 on, as points."""
    logs = []
    for seed in range(config.seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, vocabulary = get_model(config, name)
            ids = torch.randint(vocabulary, (1, config.length))
            norms = input_gradients(model.double().eval(), ids)
        logs.append(norms.clamp_min(torch.finfo(norms.dtype).tiny).log())
    means = torch.stack(logs).mean(0).exp().flip(0).tolist()
    return [{"length": distance, "gradient": value} for distance, value in enumerate(means) if distance]


def get_model(config: GradientConfig, name: str) -> tuple[nn.Module, int]:
    """A language model, built or loaded from a run, and the size of its vocabulary."""
    if Path(name).is_dir():
        loaded: Any = load(name).model
        return check_language_model(loaded, name), loaded.config.vocab_size
    family, _, settings = name.partition(":")
    cls = models[family]
    wanted = {"vocab_size": VOCABULARY, "dim": config.dim, "depth": config.depth, "max_len": config.length}
    fields = {key: value for key, value in wanted.items() if key in cls.config_class.__dataclass_fields__}
    if "tiny" in cls.presets:
        changed = preset(family, "tiny", **fields)
    else:
        changed = override(cls.config_class(), fields)
    pairs = (part.partition("=") for part in filter(None, settings.split(",")))
    model = check_language_model(build(family, override(changed, {key: value for key, _, value in pairs})), name)
    with torch.no_grad():
        for module in [module for module in model.modules() if not isinstance(module, Embedding)]:
            for key, weight in module.named_parameters(recurse=False):
                if weight.ndim == 2 and key != "weight" or isinstance(module, nn.Linear) and key == "weight":
                    weight.mul_(config.gain)
    return model, VOCABULARY


def check_language_model(model: Any, name: str) -> nn.Module:
    """Raise an error if a model needs more than the tokens before its output."""
    if getattr(model, "reads", None) != ():
        raise ValueError(f"{name} is no language model; take one, such as rnn, gru, lstm or gpt")
    return model


def input_gradients(model: nn.Module, ids: Tensor) -> Float[Tensor, "T"]:
    """The norm of the gradient of the last position's output with respect to each token's embedding, averaged over
    directions: an estimate of the root mean square of the Jacobian's singular values."""
    inputs: list[Tensor] = []

    def keep(module: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    embedding = next(module for module in model.modules() if isinstance(module, Embedding))
    handle = embedding.register_forward_hook(keep)
    try:
        out: Tensor = model.features(ids)[0, -1]  # type: ignore[operator]
    finally:
        handle.remove()
    squares = torch.zeros(ids.shape[1], dtype=out.dtype)
    for _ in range(DIRECTIONS):
        direction = nn.functional.normalize(torch.randn_like(out), dim=0)
        (gradient,) = torch.autograd.grad(out @ direction, inputs[0], retain_graph=True)
        squares += gradient[0].square().sum(-1)
    return (squares / DIRECTIONS).sqrt()


def law(points: Sequence[Point]) -> dict[str, Any]:
    """The factor of a step if the gradient falls exponentially with distance, the exponent if it falls as a power, and
    in words the one of them that fits better."""
    known = [point for point in points if point["gradient"] > LEAST]
    logs = [math.log(point["gradient"]) for point in known]
    steps = [float(point["length"]) for point in known]
    factor = math.exp(statistics.linear_regression(steps, logs).slope)
    fitted = fit_exponent(known, "gradient")
    exponent = fitted["exponent"] if fitted else 0.0
    flat = max(logs) - min(logs) < math.log(10)
    by_power = abs(statistics.correlation(list(map(math.log, steps)), logs)) if not flat else 0.0
    by_factor = abs(statistics.correlation(steps, logs)) if not flat else 0.0
    words = "level" if flat else f"{factor:.3g}^d" if by_factor > by_power else f"d^{exponent:.2f}"
    return {"factor": factor, "exponent": exponent, "law": words}


def reach(points: Sequence[Point]) -> int:
    """The largest distance at which the gradient is at least a hundredth of that of the token before the last."""
    return max(point["length"] for point in points if point["gradient"] >= points[0]["gradient"] / 100)


def shown_distances(length: int) -> list[int]:
    """Distances for a table: 1, 4, 16, … and the largest."""
    return [*(4**i for i in range(20) if 4**i < length - 1), length - 1]


def render_gradients(result: Mapping[str, Any]) -> str:
    """A table of gradients by distance, with the law that they follow."""
    distances = shown_distances(result["length"])
    head = [
        f"gradient of the last output with respect to the input d tokens back; width {result['dim']}, "
        f"{result['depth']} layers, mean of {result['seeds']} initialisations"
        + ("" if result["gain"] == 1 else f", ×{result['gain']:g}")
    ]
    table = [["", *(f"d = {distance}" for distance in distances), "1/100 until", "law"]]
    for name, part in result["models"].items():
        values = {point["length"]: point["gradient"] for point in part["points"]}
        cells = [f"{values[distance]:.2g}" for distance in distances]
        table.append([name, *cells, f"d = {part['reach']}", part["law"]])
    return report(head, line_up(table))


def draw_gradients(result: Mapping[str, Any], path: Target) -> "matplotlib.figure.Figure":
    """Draw the gradient against distance, a line for each model; exponential decay is a straight line."""
    sheet = Sheet()
    axes = sheet.chart(0, 0, 4.6, 3, xlabel="distance in tokens", ylabel="‖∂ last output / ∂ input‖", log="y")
    for name, part in result["models"].items():
        points = [(point["length"], point["gradient"]) for point in part["points"] if point["gradient"] > 1e-30]
        axes.plot(*zip(*points, strict=True), linewidth=1.6, label=f"{name}  {part['law']}")
    axes.set(xlim=(0, None))
    write_legend(axes, loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0)
    return sheet.save(path)
