"""A registered family examined: a small model of it, example inputs for its `forward`, and every law that applies.

Which laws apply follows from the arguments of `forward`, the shape of its output and the methods that a family
declares. A family whose `forward` takes other arguments than EXAMPLES declares `example(rows)`, which returns them.
"""

import dataclasses
import warnings
from functools import partial

import torch

from regard.config import nearest
from regard.doctor import graph_laws, laws, video_laws
from regard.doctor.case import Build, Case, Store, declares
from regard.doctor.verdicts import Law, Report, in_one_line, run
from regard.nn.patches import sides
from regard.registry import models

VOCAB = 97
"""Tokens of a small model's vocabulary."""
IMAGE = 32
"""Most rows and columns of images, unless a preset names others."""
REASONS = {
    "sequence": "it has no output for each token of target or ids",
    "padded": "it takes no lengths of source or ids",
    "recorded": "it takes no lengths of audio, frames or video",
    "clips": "it reads no clips",
    "by_row": "it has an output for pairs of rows",
    "logits": "its output has no logit for each of its config's labels or vocab_size tokens",
    "vocabulary": "its config has no vocab_size",
    "encoder": "it has no part with positions that attends to both sides of a text",
    "graphs": "it reads no nodes of graphs",
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


CAUSAL, PADDED = ("sequence", "vocabulary", "step"), ("padded", "vocabulary")
CACHED = (*CAUSAL, "prefill", "new_cache")
LAWS = [
    Law("hides the future: outputs", laws.hides_the_future, CAUSAL, "it leaks: it would copy the answer", True),
    Law("hides the future: gradients", laws.future_has_no_gradient, (*CAUSAL, "features"),
        "it leaks: it learns from what it must predict", True),
    Law("padding changes nothing: outputs", laws.padding_changes_nothing, PADDED,
        "answers depend on what fills up a batch", True),
    Law("padding changes nothing: gradients", laws.padding_has_no_gradient, (*PADDED, "features"),
        "it learns from what fills up a batch", True),
    Law("recordings end where they end", laws.recordings_end, ("recorded",),
        "answers depend on what fills up a batch", True),
    Law("batch equals single", laws.batch_equals_single, ("by_row",),
        "answers depend on the other rows of a batch", True),
    Law("cached equals uncached", laws.cached_equals_uncached, CACHED,
        "it generates other text than it was trained on", True),
    Law("beams equal copies", laws.beams_equal_copies, CACHED, "beam search mixes its beams", True),
    Law("order is unknown without positions", laws.order_is_unknown, ("encoder",),
        "position='none' still treats positions differently", True),
    Law("order of nodes is unknown", graph_laws.order_of_nodes_is_unknown, ("graphs",),
        "answers depend on the numbers that nodes happen to have", True),
    Law("filling of graphs changes nothing", graph_laws.filling_changes_nothing, ("graphs",),
        "answers depend on what fills up a batch", True),
    Law("graphs do not meet", graph_laws.graphs_do_not_meet, ("graphs",),
        "a graph sees its neighbours in the batch", True),
    Law("time runs one way", video_laws.time_runs_one_way, ("clips",),
        "it sees the frames of a clip, and not their order", True),
    Law("every parameter learns", laws.every_parameter_learns, (), "a part of it does nothing"),
    Law("finite in float32", partial(laws.stays_finite, torch.float32), (), "training would end in NaN"),
    Law("finite in bfloat16", partial(laws.stays_finite, torch.bfloat16), (), "training would end in NaN"),
    Law("saved is loaded", laws.saved_is_loaded, ("store",), "a run could not be used again"),
    Law("loss starts at ln V", laws.starts_at_chance, ("logits",), "it starts with wrong certainties"),
    Law("one batch can be overfitted", laws.one_batch_can_be_overfitted, (), "it does not learn"),
]  # fmt: skip


def examine_family(name: str, store: Store | None = None) -> Report:
    """Runs every law on a small model of FAMILY or FAMILY:PRESET, without a preset of its first one.

    A family that cannot be built, or that fails on its example, is a ValueError: nothing else can be examined.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about a head without outputs, which is an error here
        torch.manual_seed(0)
        case = Case(builder(name), store)
        try:
            shape = tuple(case.output.shape)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"family {name!r} fails on its example: {in_one_line(error)}") from None
        if 0 in shape:
            raise ValueError(
                f"family {name!r} has an empty output, {shape}; without labels let forward return vectors, as "
                "embed does, or name labels in its first preset"
            )
        return Report("family", name, run(LAWS, case, missing))


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
