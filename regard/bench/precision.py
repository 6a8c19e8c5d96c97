"""Numbers of 16 and 8 bits beside float32's: what is left of values, of a model's gradients, and of its loss."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import at_least
from regard.data.sets.batches import Batch
from regard.inside.draw.canvas import Sheet, Target, shades, write_legend
from regard.models import build, preset
from regard.objectives.next_token import next_token
from regard.train.eight_bits import FP8, Format, rounded, rounded_linear
from regard.train.progress import Line

if TYPE_CHECKING:
    import matplotlib.figure

TYPES = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip
FORMATS = {
    "float32": None,
    "float16": Format(torch.float16, torch.float16),
    "bfloat16": Format(torch.bfloat16, torch.bfloat16),
    "fp8": FP8,
    "fp8, not scaled": Format(FP8.forward, FP8.backward),
    "e5m2 alone": Format(FP8.backward, FP8.backward, scaled=True),
}
"""Formats that products read; fp8 is e4m3 in the forward pass and e5m2 in the backward pass."""
LETTERS = 61
"""Symbols of the text that is learned: each is followed by one of three."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionConfig:
    """Sizes of the model that is trained once in each format."""

    steps: int = 200
    """Updates."""
    dim: int = 64
    """Width."""
    depth: int = 2
    """Blocks."""
    rows: int = 16
    """Texts in a batch."""
    length: int = 64
    """Symbols in a text."""

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, depth=self.depth, rows=self.rows, length=self.length)
        at_least(32, dim=self.dim)


def measure_precision(config: PrecisionConfig, *, quiet: bool = True) -> dict[str, Any]:
    """Measure the rounding of values by magnitude, then gradients and losses of a GPT with rounded products."""
    line, magnitudes = Line(quiet), [float(power) for power in range(-30, 21)]
    values = {
        name: {
            "largest": torch.finfo(dtype).max, "smallest": torch.finfo(dtype).smallest_normal,
            "step": torch.finfo(dtype).eps, "errors": [rounding_error(dtype, power) for power in magnitudes],
        }
        for name, dtype in TYPES.items()
    }  # fmt: skip
    training: dict[str, dict[str, float]] = {}
    exact: list[Tensor] = []
    for name, numbers in FORMATS.items():
        line.show(f"training in {name} …")
        first, gradients, loss = train(config, numbers)
        exact = exact or gradients
        training[name] = {"first_loss": first, "gradient_error": distance(gradients, exact), "loss": loss}
    return {"magnitudes": magnitudes, "values": values, "steps": config.steps, "training": training}


def rounding_error(dtype: torch.dtype, power: float) -> float:
    """The mean relative error of rounding values between 2^power and twice that; 1 where all become zero."""
    x = torch.linspace(1, 2, 2**16 + 1)[:-1].double() * 2.0**power
    near = rounded(x.float(), dtype, scaled=False).double()
    near = near.nan_to_num(nan=math.inf, posinf=math.inf)
    return float(((near - x).abs() / x).clamp(max=1.0).mean())


@contextmanager
def products_in(model: nn.Module, numbers: Format | None) -> Iterator[None]:
    """Context manager: linear layers multiply numbers of a format; None: they stay as they are."""
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear and numbers is not None]
    for layer in layers:
        assert numbers is not None
        layer.forward = partial(rounded_linear, layer, numbers)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def batches(config: PrecisionConfig) -> Iterator[Batch]:
    """Texts of a random language: after each symbol, one of three may follow."""
    random = np.random.default_rng(0)
    follows = random.integers(LETTERS, size=(LETTERS, 3))
    while True:
        ids = np.empty((config.rows, config.length + 1), dtype=np.int64)
        ids[:, 0] = random.integers(LETTERS, size=config.rows)
        for place in range(config.length):
            ids[:, place + 1] = follows[ids[:, place], random.integers(3, size=config.rows)]
        text = torch.from_numpy(ids)
        yield Batch({"ids": text[:, :-1].contiguous()}, text[:, 1:].contiguous(), ())


def train(config: PrecisionConfig, numbers: Format | None) -> tuple[float, list[Tensor], float]:
    """Return the first loss of a GPT, its first gradients, and its mean loss over the last tenth of the steps."""
    torch.manual_seed(0)
    sizes = dict(dim=config.dim, depth=config.depth, heads=config.dim // 32, ffn_dim=4 * config.dim, dropout=0.0)
    model = build("gpt", preset("gpt", "tiny", vocab_size=LETTERS, max_len=config.length, **sizes)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    losses: list[float] = []
    gradients: list[Tensor] = []
    with products_in(model, numbers):
        for batch, _ in zip(batches(config), range(config.steps), strict=False):
            loss, count = next_token(model, batch)
            (loss / count).backward()
            losses.append(loss.item() / count)
            gradients = gradients or [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
    last = losses[-max(1, config.steps // 10) :]
    return losses[0], gradients, sum(last) / len(last)


def distance(found: list[Tensor], exact: list[Tensor]) -> float:
    """The length of the difference of two gradients, relative to the second."""
    difference = sum(float((a - b).square().sum()) for a, b in zip(found, exact, strict=True))
    return math.sqrt(difference / sum(float(b.square().sum()) for b in exact))


def render_precision(result: dict[str, Any]) -> str:
    """Two tables: the types, and the model trained with products of each."""
    lines = ["type      largest     smallest    step at 1   error of 1 … 2"]
    middle = result["magnitudes"].index(0.0)
    for name, own in result["values"].items():
        lines.append(
            f"{name:8}  {own['largest']:<10.4g}  {own['smallest']:<10.3g}  {own['step']:<10.3g}"
            f"  {own['errors'][middle]:.3%}"
        )
    lines += ["", f"products of       first loss  error of gradients  loss after {result['steps']} steps"]
    for name, row in result["training"].items():
        lines.append(f"{name:16}  {row['first_loss']:10.5f}  {row['gradient_error']:18.3%}  {row['loss']:.4f}")
    return "\n".join(lines)


def draw_precision(result: dict[str, Any], path: Target = None) -> "matplotlib.figure.Figure":
    """Draw the error of rounding by magnitude: flat where a type has its precision, 1 where it has no number."""
    sheet = Sheet()
    axes = sheet.chart(
        0, 0, 5.6, 3.0, log="xy", xlabel="magnitude of a value", ylabel="mean relative error of rounding"
    )
    x = [2**power for power in result["magnitudes"]]
    for (name, own), color in zip(result["values"].items(), shades(len(result["values"])), strict=True):
        axes.plot(x, own["errors"], label=name, color=color, linewidth=1.8)
    axes.set_xscale("log", base=2)
    write_legend(axes, loc="center left", bbox_to_anchor=(1.02, 0.5))
    return sheet.save(path)
