"""TensorBoard events with the figures of metrics.jsonl, where the package is installed: `tensorboard --logdir runs`."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Board:
    """Writes event files beside metrics.jsonl; does nothing without the package `tensorboard`."""

    def __init__(self, out: Path) -> None:
        self.writer: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(out / "tensorboard"))

    def add(self, row: Mapping[str, Any], message: str = "") -> None:
        if self.writer is not None:
            for name, value in scalars({key: value for key, value in row.items() if key != "step"}):
                self.writer.add_scalar(name, value, row["step"])
            if message:
                self.writer.add_text("doctor", message, row["step"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def scalars(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a row with its path, as watch/entropy/decoder.blocks.0.attention/1."""
    for key, value in row.items():
        if isinstance(value, list):
            value = {str(index): each for index, each in enumerate(value)}
        if isinstance(value, Mapping):
            yield from scalars(value, f"{path}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{path}{key}", value
