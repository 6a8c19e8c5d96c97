"""The inputs of a user's module: described from its example, or guessed from its signature and sizes."""

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.exam.subject import Inputs, Padding, Subject, is_content, is_tokens
from regard.doctor.verdicts import in_one_line

ROWS = 3
SIZES = ("vocab_size", "n_vocab", "num_tokens", "n_tokens", "ntoken")
PADS = ("pad_token_id", "pad_id", "pad_idx", "padding_idx")
SIDES = ("image_size", "img_size", "image", "resolution")
SECOND = ("decoder_input_ids", "tgt", "target", "trg", "dec", "y")
"""Names of a second sequence, the one that a decoder generates."""
CURE = "let make_model return (module, example inputs)"


def first_call(subject: Subject) -> str:
    """Sets the inputs of a subject to the first guess that its forward accepts; returns a line that describes it."""
    parameters = named(subject.model)
    names = list(parameters)
    if not names:
        raise ValueError(f"{subject.name}: forward names no arguments; {CURE}")
    needed = [name for name, p in parameters.items() if p.default is p.empty] or names[:1]
    more = [[], [name for name in names if name in SECOND], [name for name in names if is_image(name)]]
    first = ""
    for sample, extra in itertools.product(guesses(subject.model, needed[0]), more):
        wanted = list(dict.fromkeys(needed + extra))
        subject.inputs = {name: sample(name) for name in wanted}
        try:
            find_vocabs(subject)
            sample.vocabs, sample.pad = subject.vocabs, subject.pad  # now from all tokens
            subject.inputs = {name: sample(name) for name in wanted}
            out = subject.answer()
            if only_last(out, sample.length) and (targets := [name for name in names if name in ("targets", "labels")]):
                subject.inputs[targets[0]], subject.vocabs[targets[0]] = sample(wanted[0]), sample.vocabs[wanted[0]]
                subject.answer()
            return f"{describe(subject)} (guessed; otherwise {CURE})"
        except Exception as error:  # a user's forward may raise anything on a wrong guess
            first = first or f": {in_one_line(error)}"
    raise ValueError(f"{subject.name}: no way was found to call forward({', '.join(names)}){first}; {CURE}")


def named(model: nn.Module) -> dict[str, inspect.Parameter]:
    """The named arguments of a model's forward."""
    parameters = inspect.signature(model.forward).parameters
    return {name: p for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def only_last(out: Tensor, length: int) -> bool:
    """Whether an output is of the last position only, as of models that return all logits only when given targets."""
    return out.dim() == 3 and out.shape[1] == 1 and length > 1


class Sample:
    """A sampler of random values for an argument, by its name."""

    def __init__(self, kind: str, shape: tuple[int, ...], length: int = 0, vocab: int = 2, pad: int | None = None):
        self.kind, self.shape, self.length, self.vocab, self.pad = kind, shape, length, vocab, pad
        self.vocabs: dict[str, int] = {}

    def __call__(self, name: str) -> Any:
        low, length = name.lower(), self.length - 3 if name in SECOND else self.length
        if is_image(name):
            return torch.randn(ROWS, *(self.shape if self.kind == "pixels" else (3, 32, 32)))
        if "len" in low:
            return torch.full((ROWS,), length)
        if "mask" in low:
            return torch.full((ROWS, length), not hides(name))
        if "type" in low or "segment" in low:
            return torch.zeros(ROWS, length, dtype=torch.long)
        if "position" in low:
            return torch.arange(length).expand(ROWS, length)
        if self.kind == "tokens":
            tokens = torch.randperm(self.vocabs.get(name, self.vocab))  # each once, if there are as many
            tokens = tokens[tokens != (-1 if self.pad is None else self.pad)]
            return tokens.repeat(-(-ROWS * length // len(tokens)))[: ROWS * length].view(ROWS, length)
        return torch.randn(ROWS, *self.shape) if self.kind == "pixels" else torch.randn(ROWS, length, *self.shape)


def guesses(model: nn.Module, first: str) -> Iterator[Sample]:
    """Samplers of inputs that the model may take, the most probable first."""
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    vocab, lengths = setting(model, SIZES) or min(tables, default=None), (16, 8, 5)
    stem = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    sides = dict.fromkeys([setting(model, SIDES), 32, 28, 64, 224, 16]) if stem else ()
    pixels = [Sample("pixels", (stem.in_channels, side, side)) for side in sides if stem and side]
    if is_image(first) or not tables:
        yield from pixels
    if vocab is not None:
        yield from (Sample("tokens", (), length, vocab, setting(model, PADS)) for length in lengths)
    widths = (getattr(module, "in_features", getattr(module, "embed_dim", None)) for module in model.modules())
    width = setting(model, ("d_model", "dim", "hidden_size")) or next((w for w in widths if isinstance(w, int)), None)
    if width is not None:
        yield from (Sample("vectors", (width,), length) for length in lengths)
    yield from pixels


def setting(model: nn.Module, names: tuple[str, ...]) -> int | None:
    """A whole number that the model or its config has under one of these names."""
    for holder in (getattr(model, "config", None), getattr(model, "cfg", None), getattr(model, "args", None), model):
        for name in names:
            value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def is_image(name: str) -> bool:
    """Whether an argument of that name takes images."""
    return any(part in name.lower() for part in ("pixel", "image", "img"))


def hides(name: str) -> bool:
    """Whether True in a mask of that name means padding, as in PyTorch's own modules."""
    return "pad" in name.lower()


def find_vocabs(subject: Subject) -> None:
    """Set the vocabulary size of each input of token ids, from the embedding that reads it (runs the model)."""
    tokens = {name: value for name, value in subject.inputs.items() if is_tokens(name, value)}
    tables: dict[str, nn.Embedding] = {}

    def keep(module: nn.Embedding, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        looked_up = next(iter((*args, *kwargs.values())))
        for name, ids in tokens.items():
            if looked_up.shape == ids.shape and looked_up.equal(ids):
                tables.setdefault(name, module)

    embeddings = [module for module in subject.model.modules() if isinstance(module, nn.Embedding)]
    handles = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in embeddings]
    try:
        out = subject.answer()
    finally:
        for handle in handles:
            handle.remove()
    for name, ids in tokens.items():
        known = tables[name].num_embeddings if name in tables else setting(subject.model, SIZES)
        subject.vocabs[name] = known or max(int(ids.max()) + 1, out.shape[-1])
        if subject.pad is None and name in tables:
            subject.pad = tables[name].padding_idx


def describe(subject: Subject) -> str:
    """The names, shapes and contents of the inputs, in a line."""
    shown = []
    for name, value in subject.inputs.items():
        if not isinstance(value, Tensor):
            continue
        kind = f"tokens below {subject.vocabs.get(name)}" if is_tokens(name, value) else "numbers"
        kind = "pixels" if value.dim() == 4 else kind if is_content(name, value) else ""
        shown.append(f"{name} {'×'.join(map(str, value.shape))} {kind}".rstrip())
    return ", ".join(shown)


# ---- what the inputs are --------------------------------------------------------------------------------------


def find_sequence(subject: Subject) -> str:
    """The input whose positions are the second axis of the output, and that the output depends on; else empty."""
    out = subject.answer()
    names = [n for n in subject.content() if is_tokens(n, subject.inputs[n]) or subject.inputs[n].dim() == 3]
    for name in sorted(reversed(names), key=lambda name: not name.startswith(SECOND)):
        value = subject.inputs[name]
        if out.dim() > 2 and out.shape[:2] == value.shape[:2]:
            other = subject.varied(name, torch.ones(value.shape[:2], dtype=torch.bool))
            if not out.isfinite().all() or subject.moved(subject.answer(**{name: other}), out, 1).any():
                return name
    return ""


def is_decoder(subject: Subject) -> bool:
    """Whether the output is of a second sequence's tokens: then the model must be causal."""
    others = [name for name in subject.content() if name != subject.sequence and subject.inputs[name].dim() < 4]
    return bool(others) and subject.sequence in SECOND


def find_padding(subject: Subject) -> tuple[Padding | None, Inputs]:
    """Return how padding is passed to the model, by an input or an omitted argument, and the inputs without padding."""
    tokens = [name for name, value in subject.inputs.items() if is_content(name, value) and value.dim() < 4]
    left_out = [] if subject.positional else [name for name in named(subject.model) if name not in subject.inputs]
    likely = sorted([*subject.inputs, *left_out], key=lambda name: "len" not in name.lower())
    for name in [name for name in likely if "len" in name.lower() or "mask" in name.lower()]:
        for sequence in tokens:
            if sequence in SECOND and len(tokens) > 1:
                continue
            padding = padding_by(subject, name, sequence)
            if padding is not None:
                full = torch.ones(subject.inputs[sequence].shape[:2], dtype=torch.bool)
                inputs = subject.inputs | with_real(subject, padding, full)
                if runs(subject, inputs):
                    return padding, inputs
    readers = [name for name in tokens if is_tokens(name, subject.inputs[name])]
    if subject.pad is None or not readers:
        return None, subject.inputs
    first, ids = readers[0], subject.inputs[readers[0]]
    return Padding("token", first, first, hidden=subject.pad), subject.inputs | {
        first: subject.varied(first, ids == subject.pad)
    }


def padding_by(subject: Subject, name: str, sequence: str) -> Padding | None:
    """The padding of a sequence as an argument may specify it, None if it cannot."""
    shape, example = subject.inputs[sequence].shape[:2], subject.inputs.get(name)
    if "len" in name.lower():
        fits = example is None or (isinstance(example, Tensor) and example.shape == shape[:1])
        return Padding("lengths", sequence, name) if fits else None
    if example is None:
        sure = hides(name) or "attention_mask" in name or "valid" in name
        return Padding("mask", sequence, name, not hides(name), hides(name), sure)
    if not isinstance(example, Tensor) or example.shape != shape:
        return None
    values = example.unique().tolist()
    if len(values) == 2:  # rows begin with real tokens
        real = example[0, 0].item()
        return Padding("mask", sequence, name, real, values[0] if values[1] == real else values[1])
    boolean = (not hides(name), hides(name)) if example.dtype == torch.bool else (1, 0)
    return Padding("mask", sequence, name, *boolean, sure=hides(name) or "attention_mask" in name)


def with_real(subject: Subject, padding: Padding, real: Tensor) -> Inputs:
    """Return the input that specifies which tokens are not padding."""
    if padding.kind == "lengths":
        return {padding.argument: real.sum(1)}
    if padding.kind == "token":
        ids = subject.inputs[padding.sequence]
        return {padding.argument: torch.where(real, ids, torch.full_like(ids, padding.hidden))}
    mask = torch.where(real, torch.tensor(padding.real), torch.tensor(padding.hidden))
    example = subject.inputs.get(padding.argument)
    return {padding.argument: mask if example is None else mask.to(example.dtype)}


def runs(subject: Subject, inputs: Inputs) -> bool:
    """Whether the model accepts certain inputs."""
    try:
        subject.answer(**inputs)
    except Exception:  # it was only a guess
        return False
    return True
