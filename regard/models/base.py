"""What training and decoding ask of a model; a family says nothing about either."""

from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import nearest, override
from regard.registry import models


@runtime_checkable
class State(Protocol):
    """What a model remembers between steps: keys and values, or a recurrent state. Owned by the caller."""

    length: int

    def select(self, rows: Int[Tensor, "N"], sources: Int[Tensor, "M"] | None = None) -> None:
        """Keeps rows of the batch (beams); `sources` where the sources that they read change too."""


@runtime_checkable
class Generator(Protocol):
    """A generative model: `features` and `head` for training, `prefill` and `step` for decoding."""

    reads: ClassVar[tuple[str, ...]]
    """Names of the inputs of `prefill` beside the prefix, such as ("source",); () for a language model. Token
    sequences (B T) come padded, with a further input `lengths`."""
    config: Any
    head: nn.Module
    training: bool
    presets: ClassVar[dict[str, dict[str, Any]]]

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...

    def features(self, **inputs: Tensor) -> Float[Tensor, "B T D"]: ...

    def new_cache(self, room: int) -> State: ...

    def prefill(self, prefix: Int[Tensor, "B T"], cache: State, **inputs: Tensor) -> Float[Tensor, "B V"]:
        """Reads the first tokens (and `inputs`, such as a source); returns the scores of the next."""

    def step(self, ids: Int[Tensor, "B"], cache: State) -> Float[Tensor, "B V"]:
        """Reads one more token a row; returns the scores of the next."""


def preset(family: str, name: str, **changes: Any) -> Any:
    """The config of a published (or otherwise named) size of a family."""
    cls = models[family]
    if name not in cls.presets:
        raise ValueError(f"{family} has no preset {name!r}; {nearest(name, cls.presets)}")
    return override(cls.config_class(**cls.presets[name]), changes)


def fitting(family: str, rows: int, columns: int) -> dict[str, Any]:
    """Fields that suit images of this size, from the `fitting` of the family's config; {} where it has none."""
    suggest = getattr(models[family].config_class, "fitting", None)
    return suggest(rows, columns) if suggest else {}


def without_labels(config: Any) -> Any:
    """The config to fine-tune a model with, by its `without_labels`; where it has none, the config without labels."""
    strip = getattr(config, "without_labels", None)
    return strip() if strip else replace(config, labels=())


def build(family: str, config: Any) -> nn.Module:
    """A freshly initialised model."""
    return models[family](config)
