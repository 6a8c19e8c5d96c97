"""Attention weights of any model, captured while it runs: `with look(model) as seen: model(...)`.

The model keeps its fast kernels and its answer. A hook gets each kernel's q, k and v, and calls the same kernel once
more, for the weights, only where they are wanted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import nearest
from regard.nn.attention import Attention
from regard.nn.embeddings import Embedding
from regard.nn.kernels import Kernel
from regard.nn.masks import Mask
from regard.nn.reversible import recomputes
from regard.nn.weights import behind_kernels, find_kernels, weights_of

KINDS = {
    "self": ("encoder", "decoder"),
    "encoder": ("encoder",),  # self-attention that sees both sides
    "decoder": ("decoder",),  # self-attention that hides the future, or of what looks at another sequence too
    "cross": ("cross", "recurrent"),
    "recurrent": ("recurrent",),  # a recurrent decoder that looks back at its source
}

Layers = int | str | Iterable[int | str]
Keep = Callable[[str, str, nn.Module, dict[str, Any]], None]


@contextmanager
def look(model: Any, *, layers: Layers | None = None, heads: int | Iterable[int] | None = None) -> Iterator["Seen"]:
    """Capture attention weights of everything that `model` does inside the block; its output stays bit for bit.

    `model`: what `regard.load` returned, whose tokens then label the weights, or any module.
    `layers`: indices in the model's list of attention layers, their names, patterns of names ("decoder.*") or kinds
    ("self", "encoder", "decoder", "cross", "recurrent"). `heads`: head numbers. Default: everything.
    """
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise ValueError(f"look watches what regard.load returns, or an nn.Module; got a {type(model).__name__}")
    chosen = None if heads is None else (heads,) if isinstance(heads, int) else tuple(heads)
    tokenizer = None if module is model else getattr(model, "tokenizer", None)
    seen = Seen(list(find_kernels(module)), chosen, tokenizer)
    read: list[Tensor] = []  # the ids that were embedded last, which the layers after them read

    def embedded(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("ids", args[0] if args else None)
        read[:] = [ids.detach().cpu()] if isinstance(ids, Tensor) else []

    def keep(name: str, kind: str, kernel: nn.Module, given: dict[str, Any]) -> None:
        call = Call(kind, weights_of(kernel, **given, heads=chosen), given["k"])
        call.ids = read[0] if read and read[0].shape == (len(call.weights), call.weights.shape[2]) else None
        seen.calls.setdefault(name, []).append(call)

    with ExitStack() as hooks:
        for layer in module.modules() if tokenizer is not None else ():
            if isinstance(layer, Embedding):
                hooks.enter_context(layer.register_forward_pre_hook(embedded, with_kwargs=True))
        hooks.enter_context(watch(module, keep, layers=layers, heads=chosen))
        yield seen


@contextmanager
def watch(
    model: nn.Module, keep: Keep, *, layers: Layers | None = None, heads: tuple[int, ...] | None = None
) -> Iterator[None]:
    """Call `keep` after each call of a kernel, with the layer's name and kind, the kernel and the call's arguments.

    The hooks return nothing, so that PyTorch leaves inputs and outputs alone.
    """
    kernels = find_kernels(model)
    names, kinds = choose(layers, list(kernels))
    for name in names:
        check_heads(name, kernels[name], heads)
    watched = {kernels[name] for name in (kernels if kinds else names)}
    wanted = {name: set(KINDS) if name in names else kinds for name in kernels if kernels[name] in watched}
    crosses: dict[Kernel, bool] = {}

    def before_attention(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        inputs = dict(zip(("x", "context"), args, strict=False)) | kwargs
        context, cache = inputs.get("context"), inputs.get("cache")
        other = context is not None and context is not inputs["x"]
        crosses[layer.kernel] = other or cache is not None and cache.fixed

    def after_kernel(name: str, kernel: Kernel, given: dict[str, Any], output: Any) -> None:
        if recomputes():
            return
        beside = f"{name.rpartition('.')[0]}.cross" in kernels
        kind = kind_of(crosses.get(kernel), beside, given.get("mask"))
        if any(kind in KINDS[group] for group in wanted[name]):
            check_heads(name, kernel, heads)  # of a layer that was asked for by kind it is known only now
            keep(name, kind, kernel, given)

    with ExitStack() as hooks:
        for kernel in watched:
            if (owner := owner_of(model, kernel)) is not None:
                hooks.enter_context(owner.register_forward_pre_hook(before_attention, with_kwargs=True))
        hooks.enter_context(behind_kernels({name: kernels[name] for name in wanted}, after_kernel))
        yield


def kind_of(cross: bool | None, beside: bool, mask: Mask | None) -> str:
    """The kind of an attention call; `cross` is None where no `Attention` makes it, `beside` cross-attention it is a
    decoder's."""
    if cross is None:
        return "recurrent"
    if cross:
        return "cross"
    return "decoder" if beside or (mask is not None and mask.hides_future) else "encoder"


def owner_of(model: nn.Module, kernel: Kernel) -> Attention | None:
    """The attention layer that calls the kernel; a recurrent decoder calls its own."""
    return next((m for m in model.modules() if isinstance(m, Attention) and kernel in m.children()), None)


def choose(layers: Layers | None, names: list[str]) -> tuple[list[str], set[str]]:
    """Return the names of the selected layers, and the selected kinds, which are only known when a layer is called."""
    if layers is None:
        return names, set()
    chosen: list[str] = []
    kinds: set[str] = set()
    for layer in [layers] if isinstance(layers, int | str) else layers:
        if isinstance(layer, str) and layer in KINDS and layer not in names:
            kinds.add(layer)
        else:
            chosen += matching(layer, names)
    return list(dict.fromkeys(chosen)), kinds


def matching(layer: int | str, names: list[str]) -> list[str]:
    """The names that an index in the list, a name or a pattern stands for; at least one."""
    if isinstance(layer, int):
        if not -len(names) <= layer < len(names):
            raise ValueError(f"no attention layer {layer}: the model has {len(names)}, 0 to {len(names) - 1}")
        return [names[layer]]
    matches = [name for name in names if name == layer or fnmatchcase(name, layer)]
    if not matches:
        raise ValueError(f"no attention layer {layer!r}; {nearest(layer, [*names, *KINDS])}")
    return matches


def check_heads(name: str, kernel: Any, heads: tuple[int, ...] | None) -> None:
    wrong = [head for head in heads or () if not 0 <= head < kernel.heads]
    if wrong:
        raise ValueError(f"{name} has no head {wrong[0]}: it has {kernel.heads}, 0 to {kernel.heads - 1}")


class Call:
    """The weights of one kernel call, and some of its keys, from which a continuation of it is recognised."""

    def __init__(self, kind: str, weights: Float[Tensor, "B H T S"], keys: Float[Tensor, "B G N K"]) -> None:
        self.kind, self.weights = kind, weights
        self.ids: Int[Tensor, "B T"] | None = None
        """The tokens of the queries, where they are known."""
        self.keys = keys.detach()[:, 0, :, 0].cpu().clone()  # B N
        self.source = keys.detach() if kind in KINDS["cross"] else None  # held, so that nobody else gets its memory

    def continued_by(self, later: "Call") -> bool:
        """Return whether another call continues this one: self-attention with new keys for its new queries, cross-
        attention with the same key tensor."""
        if self.source is not None and later.source is not None:
            if self.source.untyped_storage().data_ptr() != later.source.untyped_storage().data_ptr():
                return False
        old, grown = self.keys.shape[1], later.weights.shape[2] if later.source is None else 0
        return later.keys.shape[1] == old + grown and torch.equal(later.keys[:, :old], self.keys)


class Seen:
    """Captured weights: `attention["decoder.blocks.0.cross"]` B H T S, `attention[layer, head]` B T S, `of(kind)`."""

    def __init__(self, layers: list[str], heads: tuple[int, ...] | None, tokenizer: Any = None) -> None:
        self.layers, self.heads, self.tokenizer = layers, heads, tokenizer
        self.calls: dict[str, list[Call]] = {}
        self.attention = Weights(self)

    def __repr__(self) -> str:
        every = {name: self.passes(name) for name in self.names}
        parts = (f"{n}: {tuple(p[0].shape) if len(p) == 1 else f'{len(p)} passes'}" for n, p in every.items())
        return f"Seen({', '.join(parts) or 'nothing yet'})"

    @property
    def names(self) -> list[str]:
        """Names of the layers captured so far, in the model's order."""
        return [name for name in self.layers if name in self.calls]

    def of(self, kind: str) -> list[Float[Tensor, "B H T S"]]:
        """The weights of all layers of a kind, by layer: self, encoder, decoder, cross or recurrent."""
        return [self.attention[name] for name in self.names_of(kind)]

    def names_of(self, kind: str) -> list[str]:
        """Return the names of the captured layers of a kind."""
        if kind not in KINDS:
            raise ValueError(f"unknown kind of attention {kind!r}; {nearest(kind, KINDS)}")
        return [name for name in self.names if self.kind_of(name) in KINDS[kind]]

    def kind_of(self, name: str) -> str:
        """The kind of attention that a layer was called for: encoder, decoder, cross or recurrent."""
        return self.calls[name][0].kind

    def passes(self, layer: int | str) -> list[Float[Tensor, "B H T S"]]:
        """The weights of each pass through a layer: a whole forward, or a prefill joined with the steps after it."""
        return [join_queries([call.weights for call in group]) for group in self.grouped(layer)]

    def grouped(self, layer: int | str) -> list[list[Call]]:
        """The calls of each pass through a layer."""
        groups: list[list[Call]] = []
        for call in self.calls[self.resolve(layer)]:
            if groups and groups[-1][-1].continued_by(call):
                groups[-1].append(call)
            else:
                groups.append([call])
        return groups

    @property
    def tokens(self) -> list[str]:
        """The tokens that the first layer attends to: those of the source, or of the whole text."""
        return self.tokens_of(self.names[0])[1] or [] if self.names else []

    def tokens_of(self, layer: int | str, row: int = 0) -> tuple[list[str] | None, list[str] | None]:
        """The tokens of a layer's queries and of its keys in the last pass; None where they are no tokens of a text, or
        where `look` got a module, which has no tokenizer."""
        name = self.resolve(layer)
        group = self.grouped(name)[-1]
        parts = [call.ids for call in group if call.ids is not None]
        queries = torch.cat(parts, dim=1) if len(parts) == len(group) else None
        count, keys = group[-1].weights.shape[3], queries
        if group[-1].kind in KINDS["cross"]:
            sources = [call.ids for calls in self.calls.values() for call in calls if call.kind == "encoder"]
            keys = next((ids for ids in reversed(sources) if ids is not None and ids.shape[1] == count), None)
        elif keys is not None and keys.shape[1] != count:
            keys = None
        known = (None if ids is None else ids[min(row, len(ids) - 1)].tolist() for ids in (queries, keys))
        first, second = (None if ids is None else self.tokenizer.pieces(ids) for ids in known)
        return first, second

    def resolve(self, layer: int | str) -> str:
        """The name of a layer that was seen."""
        name = matching(layer, self.layers)[0]
        if name not in self.calls:
            raise ValueError(f"{name} was not seen: ask for it in look(model, layers=…) and run the model in the block")
        return name

    def clear(self) -> None:
        """Forget the captured weights, for the next input."""
        self.calls.clear()

    def plot(self, path: str | Path | None = None, *, kind: str | None = None, row: int = 0, **labels: Any) -> Any:
        """Draw a grid of heads by layers for one row of the batch; `kind` selects one kind of attention. Tokens, where
        they are known, are written beside the weights, unless there are `source_labels` and `target_labels`."""
        from regard.inside.draw.matrices import draw_heads

        kind = kind or ("cross" if self.names_of("cross") else "self")
        maps = {name: self.attention[name][row] for name in self.names_of(kind)}
        if (
            not labels.keys() & {"source_labels", "target_labels"}
            and len({each.shape[1:] for each in maps.values()}) == 1
        ):
            queries, keys = self.tokens_of(next(iter(maps)), row)
            labels |= {"source_labels": keys, "target_labels": queries} if queries and keys else {}
        return draw_heads(maps, path=path, numbers=self.heads, **labels)

    def _repr_html_(self) -> str:
        from regard.inside.capture.notebook import page_of_weights
        from regard.inside.draw.document import framed

        return framed(page_of_weights(self)) if self.names else "<em>nothing seen yet</em>"


class Weights(Mapping[Any, Tensor]):
    """Weights by name, by index in the model's list of attention layers, or by layer and head."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def __getitem__(self, key: int | str | tuple[int | str, int]) -> Float[Tensor, "..."]:
        layer, head = key if isinstance(key, tuple) else (key, None)
        passes = self.seen.passes(layer)
        if len(passes) > 1:
            raise ValueError(
                f"{self.seen.resolve(layer)} was run {len(passes)} times; look at one input (and one beam) "
                "at a time, call seen.clear() between inputs, or take them apart with seen.passes(layer)"
            )
        return passes[0] if head is None else passes[0][:, self.index(head, passes[0].shape[1])]

    def index(self, head: int, count: int) -> int:
        """The index of a head among those that were kept."""
        known = list(self.seen.heads) if self.seen.heads is not None else list(range(count))
        if head not in known:
            raise ValueError(f"head {head} was not seen; seen: {', '.join(map(str, known))}")
        return known.index(head)

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen.names)

    def __len__(self) -> int:
        return len(self.seen.names)


def join_queries(parts: list[Float[Tensor, "B H _ _"]]) -> Float[Tensor, "B H T S"]:
    """Concatenate weights along the queries; keys that an earlier part did not have yet are zeros."""
    width = max(part.shape[3] for part in parts)
    return torch.cat([F.pad(part, (0, width - part.shape[3])) for part in parts], dim=2)


@torch.no_grad()
def cross_attention(
    model: nn.Module, inputs: Mapping[str, Tensor], *, layer: int | None = None, head: int | None = None
) -> Float[Tensor, "B T S"]:
    """The mean cross-attention of all layers and heads, or of one; `inputs` are those of the model's `features`.

    Row t is what the model attended to while it read target[t], that is, while it wrote target[t + 1].
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with look(model, layers="cross", heads=head) as seen:
            model.features(**inputs)  # type: ignore[operator]
    finally:
        for module, mode in modes:
            module.training = mode
    maps = seen.of("cross")
    if not maps:
        raise ValueError(f"{type(model).__name__} has no attention from target to source; look(model) shows its own")
    if layer is not None and not -len(maps) <= layer < len(maps):
        raise ValueError(f"no cross-attention layer {layer}: the model has {len(maps)}, 0 to {len(maps) - 1}")
    return torch.stack(maps if layer is None else [maps[layer]]).mean(dim=(0, 2))
