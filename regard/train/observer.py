"""Callbacks of the training loop for an observer of a run, which reads and changes nothing."""

from collections.abc import Iterable
from typing import Any

from regard.data.sets.batches import Batch

Row = dict[str, Any]
"""One line of metrics.jsonl."""
Note = tuple[Row, str]
"""A row to be written, and a message to be shown with it, or an empty one."""


class Observer:
    """Callbacks of the training loop, in their order within a step; a subclass overrides those it needs."""

    def resume(self, rows: list[Row]) -> None:
        """Called once before the first step, with the rows that an interrupted run has written so far."""

    def on_batch(self, epoch: int, index: int, batch: Batch) -> None:
        """Called before each batch of a step goes through the model."""

    def on_gradients(self, step: int) -> None:
        """Called when all gradients of a step are there and the weights are still those before its update."""

    def on_update(self, step: int, loss: float, lr: float) -> Iterable[Note]:
        """Called after the update; returns notes for metrics.jsonl and the terminal."""
        return ()

    def explain(self, quantity: str, value: float, step: int, batch: Batch) -> Note:
        """Called when the loss or the gradient norm is not finite; returns the most probable cause with its cure."""
        return {}, "lower --train.lr or lengthen --train.warmup"
