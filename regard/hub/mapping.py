"""Another project's names and settings for the same model, as tables that are read in both directions."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.config import check_sizes, one_line, override
from regard.nn.block import BlockConfig
from regard.registry import models, positions


class Transform(NamedTuple):
    """Functions that convert foreign tensors into ours, and ours into `count` foreign ones."""

    to_ours: Callable[[list[Tensor]], list[Tensor]]
    to_theirs: Callable[[list[Tensor], int], list[Tensor]]


TRANSFORMS = {
    "same": Transform(lambda theirs: theirs, lambda ours, count: ours),
    # one above the other: k and v, or the gate and what it multiplies
    "stack": Transform(lambda theirs: [torch.cat(theirs)], lambda ours, count: list(ours[0].chunk(count))),
    "row": Transform(lambda theirs: [theirs[0][0]], lambda ours, count: [ours[0][None]]),  # 1 V ↔ V
    # 1 1 D each ↔ N D, and 1 1 D ↔ D
    "rows": Transform(
        lambda theirs: [torch.cat([one[0] for one in theirs])],
        lambda ours, count: [row[None] for row in ours[0].chunk(count)],
    ),
    "one-row": Transform(lambda theirs: [theirs[0][None]], lambda ours, count: [ours[0][0]]),  # D ↔ 1 D
    "vector": Transform(lambda theirs: [theirs[0][0, 0]], lambda ours, count: [ours[0][None, None]]),
    "transpose": Transform(lambda theirs: [theirs[0].mT], lambda ours, count: [ours[0].mT]),
    # their q, k and v are one tensor, our q and (k above v) two
    "qkv": Transform(lambda theirs: thirds(theirs[0]), lambda ours, count: [torch.cat(ours)]),
    "qkv-transposed": Transform(lambda theirs: thirds(theirs[0].mT), lambda ours, count: [torch.cat(ours).mT]),
    # values have a bias, keys none
    "values": Transform(
        lambda theirs: [torch.cat([torch.zeros_like(theirs[0]), theirs[0]])], lambda ours, count: [ours[0].chunk(2)[1]]
    ),
    "heads": Transform(lambda theirs: [theirs[0][:, 0, 0]], lambda ours, count: [ours[0][:, None, None]]),  # H 1 1 ↔ H
    "by-head": Transform(lambda theirs: [theirs[0][:, None]], lambda ours, count: [ours[0][:, 0]]),  # H K ↔ H 1 K
    # a convolution of size 1 ↔ a matrix
    "size-1": Transform(lambda theirs: [theirs[0][..., 0]], lambda ours, count: [ours[0][..., None]]),
    # kernels of rows and columns ↔ those of one frame, rows and columns
    "one-frame": Transform(lambda theirs: [theirs[0][:, :, None]], lambda ours, count: [ours[0][:, :, 0]]),
    # two matrices one after the other ↔ their product: weight, bias
    "product": Transform(
        lambda theirs: product(*theirs),
        lambda ours, count: [*ours, torch.eye(len(ours[1])).to(ours[1]), torch.zeros_like(ours[1])],
    ),
    # a length for each place of a kernel and its direction ↔ the kernel
    "weight-norm": Transform(
        lambda theirs: [theirs[0] * theirs[1] / theirs[1].norm(dim=(0, 1), keepdim=True)],
        lambda ours, count: [ours[0].norm(dim=(0, 1), keepdim=True), ours[0]],
    ),
    # their first two rows stand for no position
    "behind-two": Transform(
        lambda theirs: [theirs[0][2:]], lambda ours, count: [torch.cat([torch.zeros_like(ours[0][:2]), ours[0]])]
    ),
}


def thirds(qkv: Tensor) -> list[Tensor]:
    return list(qkv.tensor_split([len(qkv) // 3]))


def product(first: Tensor, bias: Tensor, second: Tensor, more: Tensor) -> list[Tensor]:
    weight, exact = second.double(), bias.double()
    return [(weight @ first.double()).to(first), (weight @ exact + more.double()).to(bias)]


@cache
def pattern(template: str) -> re.Pattern[str]:
    """Compile a tensor name with `{}` as wildcards into a regular expression."""
    return re.compile(re.escape(template).replace(r"\{\}", r"([^.]+)"))


def several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Pair:
    """Tensor names of ours and the corresponding foreign ones. Each `{}` in ours matches one part of a dotted name and
    fills the next `{}` of theirs."""

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    transform: str = "same"
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values that fields of our config must have for this pair to apply."""
    unwritten: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Values of fields with which it is only read, because their class for this task lacks the part."""

    def match(self, name: str) -> tuple[int, list[str], list[str]] | None:
        """The index of our tensor `name` in this pair, and the names of ours and theirs for that match."""
        for index, template in enumerate(several(self.ours)):
            if holes := pattern(template).fullmatch(name):
                fill = [[one.format(*holes.groups()) for one in several(side)] for side in (self.ours, self.theirs)]
                return index, fill[0], fill[1]
        return None


def holds(config: Any, wanted: Mapping[str, tuple[Any, ...]]) -> bool:
    """Whether every field of a config has one of the wanted values."""
    return all(getattr(config, name) in values for name, values in wanted.items())


def attention(ours: str, theirs: str, names: str) -> tuple[Pair, ...]:
    """Return the pairs of an attention layer, from the foreign names of query, key, value and output."""
    query, key, value, out = (f"{theirs}{name}.{{}}" for name in names.split())
    return (
        Pair(ours + ".query.{}", query),
        Pair(ours + ".key_value.{}", (key, value), "stack"),
        Pair(ours + ".out.{}", out),
    )


def block(ours: str, theirs: str, *, layers: str, hidden: str, norms: str) -> tuple[Pair, ...]:
    """Return the pairs of a block, from the foreign names of its attention `layers`, of the matrices to and from the
    `hidden` units (a gate is above what it multiplies), and of the norms of both parts."""
    *up, down = (f"{theirs}{name}.{{}}" for name in hidden.split())
    first, second = (f"{theirs}{name}.{{}}" for name in norms.split())
    return (
        *attention(ours + "attention", theirs, layers),
        Pair(ours + "feedforward.up.{}", tuple(up), "stack"),
        Pair(ours + "feedforward.down.{}", down),
        Pair(ours + "norms.attention.{}", first),
        Pair(ours + "norms.feedforward.{}", second),
    )


class Field(NamedTuple):
    """The foreign name of one of our config fields, its default where config.json omits it, and the foreign words for
    our values. A dot in the name leads into a nested object of config.json."""

    name: str
    default: Any
    values: Mapping[Any, Any] | None = None


ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "silu": "silu", "relu2": "relu2",
    "quick_gelu": "quick-gelu", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh",
    "swish": "silu",
}  # fmt: skip
"""Foreign names of activations mapped to ours; of several for one of ours, the first is written."""
GATES = {"silu": "swiglu", "gelu": "geglu", "gelu_new": "geglu-tanh", "gelu_pytorch_tanh": "geglu-tanh"}

RENAMED = {
    "LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias",
    "decoder.decoder_encoder.layer.": "decoder.decoder_layers.",
}  # fmt: skip
"""Names in the first checkpoints, which were converted from TensorFlow, and in some releases of MAE."""


EVERYWHERE = {"qkv": "three", "residual": True}
"""Fields of blocks with the only values that published models have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Map:
    """The mapping between one foreign `model_type` and a family of ours: tensor names and config fields."""

    kind: str
    """Their `model_type`."""
    family: str
    """The name of our corresponding family."""
    pairs: tuple[Pair, ...]
    """Pairs of tensor names; the first one that matches is used."""
    prefix: str = ""
    """A prefix that the names of a model saved without a head may lack."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Tensors that may be stored redundantly, by the name of the tensor that they duplicate."""
    renamed: Callable[[str], str] = lambda name: name
    """Alternative tensor names of other releases, mapped to the names in the table."""
    ignored: tuple[str, ...] = ()
    """Patterns of their names that are ignored: computed tables, leftovers."""
    fields: Mapping[str, Field]
    """Fields of our config that correspond to one field of theirs."""
    fixed: Mapping[str, Any]
    """Values of our fields that every such model has; a position scheme is given without its settings."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Foreign settings that would change the output, each with the only value that can be read and that is written."""
    pad: int | None = None
    """The only padding id that such a model can have, if its positions are counted from it."""
    beside: tuple[str, ...] = ()
    """Names of optional files with more settings, beside config.json."""
    read: Callable[[Mapping[str, Any], Mapping[str, Tensor]], Mapping[str, Any]] = lambda theirs, tensors: {}
    """Function that returns further fields of our config, from theirs and from the tensors; ValueError for unsupported
    values."""
    write: Callable[[Any], Mapping[str, Any]] = lambda ours: {}
    """Function that returns further fields of their config, from ours."""
    marked: Callable[[dict[str, Any], Mapping[str, int]], dict[str, Any]] = lambda theirs, ids: theirs | dict(ids)
    """Function that returns their config.json with the ids of the special tokens; ValueError for an id with another
    meaning there."""
    check: Callable[[Any], Iterable[str]] = lambda ours: ()
    """Function that lists further fields of our config that they cannot express."""
    reword: Callable[[Any, Tensors], tuple[Any, Tensors]] = lambda ours, tensors: (ours, tensors)
    """Function for writing that returns an equivalent config and tensors of ours that they can express."""

    def read_config(self, theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
        """Their config.json, and their tensors, as our config."""
        for name, needed in self.only.items():
            if theirs.get(name) not in (None, needed):
                raise ValueError(f"{name}={one_line(repr(theirs[name]), 80)} cannot be read here; only {needed!r} can")
        if self.pad is not None and theirs.get("pad_token_id", self.pad) != self.pad:
            raise ValueError(f"pad_token_id={theirs['pad_token_id']} cannot be read here; only {self.pad} can")
        ours = dict(self.fixed)
        for own, (name, default, values) in self.fields.items():
            *parts, last = name.split(".")
            inner: Any = theirs
            for part in parts:
                inner = inner.get(part) or {}
            value = default if inner.get(last) is None else inner[last]
            if values is not None and value not in list(values):  # which may be asked for anything
                raise ValueError(f"{name}={one_line(repr(value), 80)} is not known; known: {', '.join(values)}")
            ours[own] = value if values is None else values[value]
        ours |= self.read(theirs, tensors)
        try:
            check_sizes(ours, sum(tensor.numel() for tensor in tensors.values()))
            return override(models[self.family].config_class(), ours)
        except ValueError as error:  # speaks of our fields: say which of theirs those are
            named = [own for own in self.fields if re.search(rf"\b{own}\b", str(error))]
            words = ", ".join(f"{own} is {self.fields[own].name}" for own in named if own != self.fields[own].name)
            raise ValueError(f"{error} ({words} there)" if words else str(error)) from None

    def write_config(self, ours: Any) -> dict[str, Any]:
        """Return our config in the foreign format; it must have no `misfits`."""
        theirs: dict[str, Any] = {"model_type": self.kind}
        for own, (name, _, values) in self.fields.items():
            value = getattr(ours, own)
            *parts, last = name.split(".")
            inner = theirs
            for part in parts:
                inner = inner.setdefault(part, {})
            inner[last] = value if values is None else next(word for word in values if values[word] == value)
        return theirs | dict(self.only) | dict(self.write(ours))

    def misfits(self, ours: Any) -> list[str]:
        """List the fields of our config that they cannot express, each with the value that it would need."""
        heads = getattr(ours, "heads", None)  # stages have several numbers of them
        same = {"kv_heads": heads, "head_dim": ours.dim / heads if isinstance(heads, int) else None, "final_norm": None}
        problems = []
        common = EVERYWHERE if isinstance(ours, BlockConfig) else {}
        for name, needed in {**self.fixed, **common}.items():
            got = getattr(ours, name)
            plain = got.partition(":")[0] if name == "position" else got
            if plain != needed and not (name in same and got == same[name]):
                value = repr(got) if len(repr(got)) < 60 else repr(got)[:40] + "…'"
                problems.append(f"{name}={value} would have to be {needed!r}")
        for name, (_, _, values) in self.fields.items():
            if values is not None and getattr(ours, name) not in values.values():
                known = ", ".join(dict.fromkeys(values.values()))
                problems.append(f"{name}={getattr(ours, name)!r} would have to be one of {known}")
        return [*problems, *self.check(ours)]

    def tidy(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return their tensors under the names that the table uses."""
        renamed: dict[str, Tensor] = {}
        for name, tensor in theirs.items():
            for old, new in RENAMED.items():
                name = name.replace(old, new)
            name = self.renamed(name)
            lacks = self.prefix + name in self.copies or (not self.reads(name) and self.reads(self.prefix + name))
            renamed[self.prefix + name if lacks else name] = tensor
        for copy, original in self.copies.items():
            if copy in renamed and not self.reads(copy):
                renamed.setdefault(original, renamed[copy])
        return renamed

    def reads(self, name: str) -> bool:
        """Whether some model may have a tensor of its own under this name."""
        templates = (template for pair in self.pairs for template in several(pair.theirs))
        return any(pattern(template).fullmatch(name) for template in templates)

    def to_ours(self, config: Any, wanted: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of our model by name, converted from theirs (after `tidy`)."""
        left = {name for name in theirs if not any(fnmatchcase(name, ignored) for ignored in self.ignored)}
        ours = {}
        for name, tensor in wanted.items():
            pair, index, _, sources = self.find(name, config)
            if missing := [source for source in sources if source not in theirs]:
                raise ValueError(
                    f"no tensor {missing[0]!r}, which config.json asks for; the two files belong to different models"
                )
            try:
                ours[name] = TRANSFORMS[pair.transform].to_ours([theirs[source] for source in sources])[index]
                fits = ours[name].shape == tensor.shape
            except (RuntimeError, IndexError):  # shapes that cannot even be joined or cut
                fits = False
            if not fits:
                shapes = " and ".join(str(tuple(theirs[source].shape)) for source in sources)
                raise ValueError(
                    f"{' and '.join(sources)} has shape {shapes}, which does not give our {name} of "
                    f"{tuple(tensor.shape)}, as config.json asks; the two files belong to different models"
                )
            left -= set(sources)
        for copy in left & self.copies.keys():
            original = self.copies[copy]
            if not torch.equal(theirs[copy], theirs[original]):
                raise ValueError(f"{copy} differs from {original}; only models that use one for both can be read")
            left.remove(copy)
        if left:
            shown = ", ".join(sorted(left)[:5]) + (", …" if len(left) > 5 else "")
            cause = "config.json does not ask for them, or they are parts that are not known here"
            raise ValueError(f"{len(left)} unexpected tensors: {shown}; {cause}")
        return ours

    def to_theirs(self, config: Any, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theirs: dict[str, Tensor] = {}
        for name in ours:
            pair, index, parts, targets = self.find(name, config)
            written = not pair.unwritten or not holds(config, pair.unwritten)
            if index == 0 and written:  # several of ours are written with the first of them
                tensors = TRANSFORMS[pair.transform].to_theirs([ours[part] for part in parts], len(targets))
                theirs |= dict(zip(targets, tensors, strict=True))
        return theirs

    def find(self, name: str, config: Any) -> tuple[Pair, int, list[str], list[str]]:
        """Return the pair that contains our tensor `name`, its index there, and all names of ours and theirs in it."""
        for pair in self.pairs:
            if holds(config, pair.when) and (hit := pair.match(name)):
                return pair, *hit
        raise AssertionError(f"the map of {self.kind} has no name for {name!r}")


def built_as(theirs: Mapping[str, Any], known: Iterable[str]) -> str:
    """Return the class that `architectures` names, by default the first of those known."""
    known = list(known)
    built = (theirs.get("architectures") or known)[0]
    if built not in known:
        raise ValueError(f"architectures={built!r} is not known; known: {', '.join(known)}")
    return built


MOST_LABELS = 1 << 17
"""Most labels of a foreign config.json: they are named before the weights, which may hold fewer, are looked at."""


def read_labels(theirs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels by their numbers."""
    names, number = theirs.get("id2label"), theirs.get("num_labels", 2)
    if (number := len(names) if names else number) > MOST_LABELS:
        raise ValueError(f"num_labels={number} is too large, at most {MOST_LABELS:,} can be read")
    names = names or {i: f"LABEL_{i}" for i in range(number)}
    return tuple(label for _, label in sorted(names.items(), key=lambda item: int(item[0])))


def write_labels(ours: Any, built: str) -> dict[str, Any]:
    """Return the fields for the class in `architectures` and for the labels."""
    numbered = dict(enumerate(ours.labels))
    labels = {"id2label": numbered, "label2id": {label: i for i, label in numbered.items()}} if numbered else {}
    return {"architectures": [built], **labels}


def tied(tensors: Mapping[str, Tensor], copy: str, original: str) -> bool:
    """Whether the tensor `copy` is missing or equal to its original; their config.json does not always say so."""
    return copy not in tensors or (original in tensors and torch.equal(tensors[copy], tensors[original]))


def settings_of(position: str) -> dict[str, Any]:
    """Return all settings of a position scheme by name, defaults included."""
    known = inspect.signature(positions[position]).parameters.items()
    return {
        key: parameter.default for key, parameter in known if parameter.default is not parameter.empty
    } | positions.settings(position)


def with_settings(position: str, **settings: Any) -> str:
    """Return the position scheme's name with the settings that differ from the defaults."""
    default = settings_of(position)
    text = ",".join(f"{key}={value}" for key, value in settings.items() if value != default[key])
    return f"{position}:{text}" if text else position
