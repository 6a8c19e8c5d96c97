"""The interface of models that training and decoding rely on."""

from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import nearest, override
from regard.nn.stack import Parts
from regard.registry import models


@runtime_checkable
class State(Protocol):
    """State of a model between decoding steps: keys and values, or a recurrent state. Owned by the caller."""

    length: int

    def select(self, rows: Int[Tensor, "N"], sources: Int[Tensor, "M"] | None = None) -> None:
        """Keep rows of the batch (beams); `sources` are the rows of their inputs to keep, where those change too."""


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
        """Read the first tokens and the `inputs`; return the logits of the next token."""

    def step(self, ids: Int[Tensor, "B"], cache: State) -> Float[Tensor, "B V"]:
        """Read one more token a row; return the logits of the next."""


def check_generator(model: Any) -> None:
    """Raise an error that names what a model lacks to be a `Generator`."""
    missing = [name for name in ("reads", "new_cache", "prefill", "step") if not hasattr(model, name)]
    if missing:
        raise ValueError(f"{model!r:.60} cannot generate, it has no {missing[0]}; give a generative model")


def parts_of(model: Any) -> Parts | None:
    """Return the parts of a Transformer that may run as a program over pages; None for other models."""
    return model.parts() if hasattr(model, "parts") else None


def preset(family: str, name: str, **changes: Any) -> Any:
    """Return the config of a published (or otherwise named) size of a family."""
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
    """Return a newly initialised model."""
    return models[family](config)
