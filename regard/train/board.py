"""The same figures for TensorBoard, where it is installed: `tensorboard --logdir runs`."""

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.doctor.findings import Finding


class Board:
    """Event files beside metrics.jsonl; nothing at all without the package `tensorboard`."""

    def __init__(self, out: Path) -> None:
        self.writer: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(out / "tensorboard"))

    def add(self, row: Mapping[str, Any]) -> None:
        if self.writer is not None:
            for name, value in scalars({key: value for key, value in row.items() if key != "step"}):
                self.writer.add_scalar(name, value, row["step"])
            if "finding" in row:
                self.writer.add_text("doctor", str(Finding(**row["finding"])), row["step"])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def scalars(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a row by its path: watch/entropy/decoder.blocks.0.attention/1."""
    for key, value in row.items():
        if isinstance(value, list):
            value = {str(place): one for place, one in enumerate(value)}
        if isinstance(value, Mapping):
            yield from scalars(value, f"{path}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{path}{key}", value
