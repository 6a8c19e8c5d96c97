"""A registered family examined: a small model of it, example inputs for its `forward`, and every law that applies.

Which laws apply follows from the arguments of `forward`, the shape of its output and the methods that a family
declares. A family whose `forward` takes other arguments than EXAMPLES declares `example(rows)`, which returns them.
"""

import dataclasses
import inspect
import tempfile
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import nearest
from regard.data.sets.batches import IGNORE
from regard.doctor import laws
from regard.doctor.verdicts import Diagnosis, Law, in_one_line, judge
from regard.nn.patches import sides
from regard.registry import models

VOCAB = 97
"""Tokens of a small model's vocabulary; MANY where one token must not count."""
MANY = 997
IMAGE = 32
"""Most rows and columns of images, unless a preset names others."""
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


def example(model: Any, rows: int = 3) -> dict[str, Tensor]:
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
    def inputs(self) -> dict[str, Tensor]:
        return example(self.model)

    @cached_property
    def output(self) -> Tensor:
        with torch.no_grad():
            return self.model(**self.inputs)

    @cached_property
    def sequence(self) -> str | None:
        """The input for each of whose tokens the model has an output."""
        shape = self.output.shape[:2] if self.output.dim() > 2 else ()
        texts = {name: self.inputs[name] for name in ("target", "ids") if name in self.inputs}
        return next((name for name, ids in texts.items() if ids.shape == shape), None)

    @cached_property
    def padded(self) -> str | None:
        """The sequence whose true lengths are an input."""
        texts = [name for name in ("source", "ids") if name in self.inputs]
        return texts[0] if texts and "lengths" in self.inputs and self.by_row else None

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
    def fields(self) -> set[str]:
        return {field.name for field in dataclasses.fields(self.model.config)}

    def exact(self, **changes: Any) -> tuple[Any, dict[str, Tensor]]:
        """A model in float64 and inputs for it."""
        model = self.build(**changes).double()
        return model, example(model)

    @cached_property
    def encoder(self) -> Callable[[Any], Callable[[Tensor, Tensor], Tensor]] | None:
        """model → (ids, lengths) → vectors of tokens that attend to both sides, if the family has such a part."""
        if self.padded is None or "position" not in self.fields:
            return None
        if declares(self.model, "encode"):
            return lambda model: lambda ids, lengths: model.encode(ids, lengths)[0]
        return None if declares(self.model, "step") else lambda model: model.features


def declares(model: Any, method: str) -> bool:
    return getattr(model, method, None) is not None


REASONS = {
    "sequence": "it has no output for each token of target or ids",
    "padded": "it takes no lengths of source or ids",
    "by_row": "it has an output for pairs of rows",
    "logits": "its output has no logit for each of its config's labels or vocab_size tokens",
    "vocabulary": "its config has no vocab_size",
    "encoder": "it has no part with positions that attends to both sides of a text",
    "store": "nothing to save it with was given",
}
"""Properties of a case that laws need, with the outcome if one is missing; other needs are methods of the model."""


def missing(law: Law, case: Case) -> str | None:
    """The reason why a law does not apply to a family, None if it does."""
    for need in law.needs:
        if need in REASONS:
            if not getattr(case, need):
                return REASONS[need]
        elif not declares(case.model, need):
            return f"it declares no {need}()"
    return None


# ---- the laws -------------------------------------------------------------------------------------------------


def of_sequence(law: Callable[..., None], case: Case) -> None:
    model, inputs = case.exact()
    law(model, inputs, case.sequence)


def of_cache(law: Callable[..., None], case: Case) -> None:
    with torch.no_grad():
        of_sequence(law, case)


def of_padding(law: Callable[..., None], case: Case) -> None:
    model, inputs = case.exact()
    law(model, inputs, case.padded, case.sequence)


def rows_are_independent(case: Case) -> None:
    model, inputs = case.exact()
    laws.batch_equals_single(model, inputs, case.padded)


def order_is_unknown(case: Case) -> None:
    assert case.encoder is not None and case.padded is not None
    model, inputs = case.exact(position="none")
    laws.order_is_unknown(case.encoder(model), inputs[case.padded], inputs["lengths"])


def learns(case: Case) -> None:
    laws.every_parameter_learns(case.model, case.inputs)


def is_finite(dtype: torch.dtype, case: Case) -> None:
    model = case.build().to(dtype)
    laws.stays_finite(model, example(model, rows=2), dtype)


def is_saved(case: Case) -> None:
    assert case.store is not None
    with tempfile.TemporaryDirectory() as directory:
        laws.saved_is_loaded(case.model, case.inputs, *case.store, Path(directory))


def starts_at_chance(case: Case) -> None:
    # A tied output gives the token that was just read a logit that is √dim higher; among MANY it does not count.
    model = case.build(**({"vocab_size": MANY} if case.sequence else {}))
    laws.starts_at_chance(model, example(model, rows=len(LENGTHS)))


def overfits(case: Case) -> None:
    model: Any = case.build()
    # Two rows that begin alike could not have different targets.
    inputs = laws.all_different(example(model), model.config.vocab_size) if case.vocabulary else example(model)
    shape, targets = case.output.shape, torch.randn(case.output.shape)
    if len(shape) > 1 and shape[-1] > 1:
        targets = torch.randint(shape[-1], shape[:-1])
    if case.padded is not None and case.padded == case.sequence:
        targets[laws.padding_of(inputs, case.padded)] = IGNORE
    laws.one_batch_can_be_overfitted(model, inputs, targets)


CAUSAL, PADDED = ("sequence", "vocabulary", "step"), ("padded", "vocabulary")
LAWS = [
    Law("hides the future: outputs", partial(of_sequence, laws.hides_the_future), CAUSAL,
        "it leaks: it would copy the answer"),
    Law("hides the future: gradients", partial(of_sequence, laws.future_has_no_gradient), (*CAUSAL, "features"),
        "it leaks: it learns from what it must predict"),
    Law("padding changes nothing: outputs", partial(of_padding, laws.padding_changes_nothing), PADDED,
        "answers depend on what fills up a batch"),
    Law("padding changes nothing: gradients", partial(of_padding, laws.padding_has_no_gradient), (*PADDED, "features"),
        "it learns from what fills up a batch"),
    Law("batch equals single", rows_are_independent, ("by_row",), "answers depend on the other rows of a batch"),
    Law("cached equals uncached", partial(of_cache, laws.cached_equals_uncached), (*CAUSAL, "prefill", "new_cache"),
        "it generates other text than it was trained on"),
    Law("beams equal copies", partial(of_cache, laws.beams_equal_copies), (*CAUSAL, "prefill", "new_cache"),
        "beam search mixes its beams"),
    Law("order is unknown without positions", order_is_unknown, ("encoder",),
        "position='none' still treats positions differently"),
    Law("every parameter learns", learns, (), "a part of it does nothing"),
    Law("finite in float32", partial(is_finite, torch.float32), (), "training would end in NaN"),
    Law("finite in bfloat16", partial(is_finite, torch.bfloat16), (), "training would end in NaN"),
    Law("saved is loaded", is_saved, ("store",), "a run could not be used again"),
    Law("loss starts at ln V", starts_at_chance, ("logits",), "it starts with wrong certainties"),
    Law("one batch can be overfitted", overfits, (), "it does not learn"),
]  # fmt: skip


def examine_family(name: str, store: Store | None = None, *, seed: int = 0) -> Diagnosis:
    """Runs every law on a small model of FAMILY or FAMILY:PRESET, without a preset of its first one.

    A family that cannot be built, or that fails on its example, is a ValueError: nothing else can be examined.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        case = Case(builder(name), store)
        try:
            assert case.output is not None
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"family {name!r} fails on its example: {in_one_line(error)}") from None
        outcomes = []
        for law in LAWS:
            torch.manual_seed(seed)
            outcomes.append(judge(law, case, missing(law, case)))
    return Diagnosis("family", name, outcomes)


def builder(name: str) -> Build:
    """A function that builds small models of FAMILY, by its `small` fields or first preset, or of FAMILY:PRESET."""
    family, _, preset = name.partition(":")
    cls = models[family]
    presets = getattr(cls, "presets", None) or {"": {}}
    if preset and preset not in presets:
        raise ValueError(f"{family} has no preset {preset!r}; {nearest(preset, presets)}")
    sizes = presets[preset] if preset else getattr(cls, "small", next(iter(presets.values())))
    try:
        config = cls.config_class(**sizes)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"family {family!r} cannot be built: {in_one_line(error)}; declare config_class, and presets = "
            "{'tiny': dict(…)} with every field that has no default"
        ) from None
    known = {field.name for field in dataclasses.fields(config)}
    less = {key: value for key, value in {"vocab_size": VOCAB, "dropout": 0.0}.items() if key in known}
    if "image" in known and "image" not in sizes and max(sides(config.image)) > IMAGE:
        less["image"] = IMAGE
    return lambda **changes: cls(dataclasses.replace(config, **less | changes)).eval()
