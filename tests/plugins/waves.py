"""A modality of one's own, waves (.csv files with a row a step), and a task over it: the period of a wave.

regard --plugin waves train period
regard --plugin waves period runs/period wave.csv
"""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard import Attention, AttentionConfig, Recipe, register_modality, register_model, register_recipe, register_task
from regard.data.sets.base import Data
from regard.data.sets.batches import Batch, Stream
from regard.modalities import Modality
from regard.runs.fit import Job, prepare
from regard.tasks import EvalSet, Prepared, Scored, Task, TokenSequence, Verb
from regard.train.config import TrainConfig


def read(item: Any) -> np.ndarray:
    """A wave (steps, channels) from the name of a file, its bytes, or numbers."""
    item = Path(item).read_bytes() if isinstance(item, str | Path) else item
    rows = [line.split(",") for line in item.decode().split()] if isinstance(item, bytes) else item
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1)


WAVES = register_modality("wave")(
    Modality(
        name="wave", suffixes=(".csv",), types=(np.ndarray, Tensor, list, bytes), unit="steps", field="wave",
        file="scale.txt", load=lambda path, config: float((path / "scale.txt").read_text()), read=read,
        save=lambda scale, path: (path / "scale.txt").write_text(str(scale)), value=str | list[list[float]],
    )
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class WaveConfig:
    dim: int = 32
    """Width of the vectors."""


@register_model("wave")
class WaveModel(nn.Module):
    config_class, task, presets = WaveConfig, "period", {"tiny": {}}

    def __init__(self, config: WaveConfig) -> None:
        super().__init__()
        self.config, self.steps = config, nn.Conv1d(1, config.dim, 5, padding=2)
        self.attention = Attention(AttentionConfig(dim=config.dim, heads=2))
        self.head = nn.Linear(config.dim, 1)

    def example(self, rows: int) -> dict[str, Tensor]:
        return {"series": torch.randn(rows, 7, 1)}

    def features(self, series: Float[Tensor, "B T 1"]) -> Tensor:
        return self.attention(self.steps(series.mT).mT.relu())

    def forward(self, series: Float[Tensor, "B T 1"]) -> Tensor:
        return self.head(self.features(series).mean(1))


class WavesConfig(Data):
    def split(self) -> tuple[list[Any], list[Any]]:
        periods = np.random.default_rng(0).uniform(4, 12, 240)
        series = [3 * np.sin(6.283 * np.arange(24)[:, None] / period) for period in periods]
        waves = [SimpleNamespace(number=i, series=series[i], period=periods[i], sizes=(24,)) for i in range(240)]
        return waves[60:], waves[:60]


@register_task("period")
class PeriodEstimator(Task):
    inputs, data, verbs = ("wave",), (WavesConfig,), (Verb(name="period", does="estimates periods"),)

    def __init__(self, model: Any, scale: float) -> None:
        self.model, self.scale = model.eval(), scale

    @torch.inference_mode()
    def period(self, series: list[Any]) -> list[dict[str, float]]:
        return [{"period": self.model(**self.read(item).inputs).item()} for item in series]

    def read(self, item: Any, **options: Any) -> Prepared:
        series, model = WAVES.read(item), self.model
        return Prepared(
            model=model, inputs={"series": torch.from_numpy(series)[None] / self.scale},
            sequences=[TokenSequence("wave", "Steps", [f"{value:.1f}" for value in series[:, 0]])],
            run=lambda inputs: model(**inputs)[:, None], answers="number", row_sequence=None,
        )  # fmt: skip

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        waves = test.data.held_out()[: test.limit]
        errors = [abs(self.period([wave.series])[0]["period"] - wave.period) for wave in waves]
        return Scored(scores={"mean_error": float(np.mean(errors)), "examples": len(waves)}, outputs=[])


@register_recipe("period")
def recipe(data: Any) -> Recipe:
    train = TrainConfig(steps=600, warmup=20, batch_tokens=768, lr=1e-2, eval_every=200, save_every=200)
    return Recipe(name="period", family="wave", model=WaveConfig(), data=WavesConfig(), train=train)


@prepare.register
def prepare_waves(data: WavesConfig, recipe: Recipe, out: Path, resume: bool, line: Any) -> Job:
    def collate(waves: Any) -> Batch:
        series = torch.from_numpy(np.stack([wave.series for wave in waves])).float() / 3
        return Batch({"series": series}, torch.tensor([w.period for w in waves]), tuple(w.number for w in waves))

    def objective(model: Any, batch: Batch, **_: Any) -> tuple[Tensor, int]:
        return (model(**batch.inputs)[:, 0] - batch.targets.float()).square().sum(), len(batch.targets)

    train, valid = data.split()
    stream = Stream(lambda epoch: train, collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    fields: Any = dict(readers={"wave": 3.0}, objective=objective, about=f"{len(train)} waves")
    return Job(recipe=recipe, stream=stream, valid=lambda: stream.once(valid), **fields)
