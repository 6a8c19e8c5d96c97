"""A small model of a family, example inputs for its `forward`, and what that takes and returns."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.nn.patches import sides

Inputs = dict[str, Tensor]
LENGTHS = (4, 7, 2, 6, 5, 1, 3)
EXTENTS = ((1.0, 1.0), (0.55, 0.78), (0.9, 0.33), (0.25, 1.0), (1.0, 0.16), (0.82, 0.57), (0.14, 0.1))
"""Rows and columns of images that are smaller than the padded batch, as shares of it."""
EXAMPLES: dict[str, Callable[[int, Any], Tensor]] = {
    "source": lambda rows, config: torch.randint(config.vocab_size, (rows, 7)),
    "lengths": lambda rows, config: torch.tensor(LENGTHS)[:rows],
    "target": lambda rows, config: torch.randint(config.vocab_size, (rows, 5)),
    "ids": lambda rows, config: torch.randint(config.vocab_size, (rows, 7)),
    "types": lambda rows, config: torch.randint(max(1, getattr(config, "types", 1)), (rows, 7)),
    "pixels": lambda rows, config: torch.randn(rows, config.channels, *sides(config.image)),
    "sizes": lambda rows, config: (torch.tensor(EXTENTS)[:rows] * torch.tensor(sides(config.image))).ceil().long(),
    "noise": lambda rows, config: torch.rand(rows, config.tokens - 1),
}
"""Example values of the arguments that a `forward` may have, by name."""

Build = Callable[..., nn.Module]
"""(changes of config fields) → a freshly initialised model."""
Store = tuple[Callable[[Any, Path], Any], Callable[[Path], Any]]
"""Functions that save a model to a directory and load it from there."""


def example(model: Any, rows: int = 3) -> Inputs:
    """Example inputs for a model's `forward`, with numbers in the type of its weights."""
    if (own := getattr(model, "example", None)) is not None:
        inputs = own(rows)
    else:
        parameters = inspect.signature(model.forward).parameters
        needed = [name for name, p in parameters.items() if name in EXAMPLES or p.default is p.empty]
        if unknown := [name for name in needed if name not in EXAMPLES]:
            raise ValueError(
                f"{type(model).__name__}.forward takes {unknown[0]!r}, for which no example is known; "
                "declare example(rows), which returns a dictionary of inputs"
            )
        inputs = {name: EXAMPLES[name](rows, model.config) for name in needed}
    like = next(model.parameters(), torch.empty(0))
    return {name: value.to(like) if value.is_floating_point() else value for name, value in inputs.items()}


class Case:
    """A small model of a family, built anew for each law, and what its `forward` takes and returns."""

    def __init__(self, build: Build, store: Store | None = None) -> None:
        self.build, self.store = build, store

    @cached_property
    def model(self) -> Any:
        """The model as built, for reading its declarations; laws build others to train and cast."""
        return self.build()

    @cached_property
    def inputs(self) -> Inputs:
        return example(self.model)

    @cached_property
    def output(self) -> Tensor:
        with torch.no_grad():
            return self.model(**self.inputs)

    @cached_property
    def sequence(self) -> str:
        """The input for each of whose tokens the model has an output, if there is one."""
        shape = self.output.shape[:2] if self.output.dim() > 2 else ()
        texts = {name: self.inputs[name] for name in ("target", "ids") if name in self.inputs}
        return next((name for name, ids in texts.items() if ids.shape == shape), "")

    @cached_property
    def padded(self) -> str:
        """The sequence whose true lengths are an input, if there is one."""
        if "lengths" not in self.inputs or not self.by_row:
            return ""
        return next((name for name in ("source", "ids") if name in self.inputs), "")

    @cached_property
    def recorded(self) -> str:
        """The input of numbers over time whose true lengths are an input, if there is one."""
        if "lengths" not in self.inputs:
            return ""
        return next((name for name in ("audio", "frames", "video") if name in self.inputs), "")

    def own_vectors(self, out: Tensor) -> list[Tensor]:
        """The outputs of each recording, without those of its padding."""
        if not hasattr(self.model, "out_lengths"):
            return list(out)
        counts = self.model.out_lengths(self.inputs["lengths"]).tolist()
        return [row[:count] for row, count in zip(out, counts, strict=True)]

    @cached_property
    def by_row(self) -> bool:
        """Whether each row of the batch has an output of its own, rather than one for every other row."""
        fewer = {name: value[:-1] for name, value in self.inputs.items()}
        with torch.no_grad():
            return self.model(**fewer).shape[1:] == self.output.shape[1:]

    @property
    def vocabulary(self) -> bool:
        return "vocab_size" in self.fields

    @property
    def logits(self) -> bool:
        """Whether the output has a number for each label or token."""
        config = self.model.config
        return self.output.shape[-1] in (getattr(config, "vocab_size", 0), len(getattr(config, "labels", ())))

    @property
    def graphs(self) -> bool:
        """Whether it reads nodes and edges of graphs."""
        return {"nodes", "edges"} <= self.inputs.keys()

    @property
    def clips(self) -> bool:
        """Whether it reads clips."""
        return "video" in self.inputs

    @property
    def fields(self) -> set[str]:
        return {field.name for field in dataclasses.fields(self.model.config)}

    def to(self, dtype: torch.dtype) -> "Case":
        """The case with models in another number type, built anew."""
        return Case(lambda **changes: self.build(**changes).to(dtype), self.store)

    @property
    def exact(self) -> "Case":
        return self.to(torch.float64)

    @property
    def encoder(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        """(ids, lengths) → vectors of tokens that attend to both sides, if the family has such a part."""
        if not self.padded or "position" not in self.fields:
            return None
        if declares(self.model, "encode"):
            return lambda ids, lengths: self.model.encode(ids, lengths)[0]
        return None if declares(self.model, "step") else self.model.features


def declares(model: Any, method: str) -> bool:
    return getattr(model, method, None) is not None
