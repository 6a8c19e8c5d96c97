"""A single text as a model reads it: its tokens, and which of them each one looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.inside.capture import look
from regard.inside.heads import Shown, show_heads


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, or a pair, as a model takes it."""

    inputs: dict[str, Tensor]
    """What `features` of the model takes: a batch of one."""
    labels: list[str]
    """A readable name of each token."""
    spans: list[tuple[int, int] | None]
    """Where each token stands in its text; None for special tokens, and for those of a second text."""


def read(loaded: Any, text: str, second: str | None = None, **how: Any) -> Reading:
    """A text as the loaded model reads it: framed for an encoder, begun as it was trained to begin for a writer.

    `parse_special` makes names of special tokens in the text such tokens.
    """
    model, tokenizer = loaded.model, loaded.tokenizer
    if hasattr(model, "encode"):
        raise ValueError(f"{type(model).__name__} reads one text and writes another; use a gpt or a bert")
    if hasattr(model, "step") and second is not None:
        raise ValueError(f"{type(model).__name__} reads one text; leave out the second")
    framed = tokenizer.frame([text], None if second is None else [second], **how)[0]
    places = zip(framed.offsets, framed.side, strict=True)
    if hasattr(model, "step"):  # what it was trained to begin with comes first, and nothing stands behind the text
        ids = [*loaded.front, *tokenizer.encode(text)]
        if not ids:
            raise ValueError("the text is empty; give it some words")
        check_length(model, len(ids))
        spans = [*[None] * len(loaded.front), *(span for span, side in places if side is not None)]
        return Reading({"ids": torch.tensor([ids])}, tokenizer.pieces(ids), spans)
    check_length(model, len(framed))
    inputs = {"ids": torch.tensor([framed.ids]), "lengths": torch.tensor([len(framed)])}
    inputs |= {"types": torch.tensor([framed.types])} if model.config.types > 1 else {}
    return Reading(inputs, tokenizer.pieces(framed.ids), [span if side == 0 else None for span, side in places])


def check_length(model: nn.Module, count: int) -> None:
    """An error if a text has more tokens than a model was made for, even where its positions would go on."""
    limit = getattr(model.config, "max_len", None)
    if limit is not None and count > limit:
        raise ValueError(f"the text has {count:,} tokens, the model's context is {limit:,}; give it a shorter one")


def show_text(loaded: Any, text: str, *, view: str = "heads", second: str | None = None) -> Shown:
    """Where each token of a text (or of a pair of texts, for an encoder) looks; `lines`: in the last layer."""
    one = read(loaded, text, second)
    return show_heads(weights_in(loaded.model, one.inputs, view), one.labels, one.labels, view)


@torch.no_grad()
def weights_in(model: nn.Module, inputs: dict[str, Tensor], view: str) -> dict[str, Float[Tensor, "H T T"]]:
    """What a view needs of every layer, or of the last."""
    with look(model, layers=-1 if view == "lines" else None) as seen:
        model.features(**inputs)  # type: ignore[operator]
    return {name: seen.attention[name][0] for name in seen.names}


def draw_text_attention(
    model: nn.Module,
    ids: Int[Tensor, "1 T"],
    labels: Sequence[str],
    path: str | Path | None,
    *,
    view: str = "heads",
    types: Int[Tensor, "1 T"] | None = None,
) -> Any:
    """Every layer and head of an encoder or a decoder at work on one text; `lines`: the last layer's, token to token.

    A row is a token that looks, a column one that is seen. `types` are the segments of a pair.
    """
    inputs = {"ids": ids} if hasattr(model, "step") else {"ids": ids, "lengths": torch.tensor([ids.shape[1]])}
    inputs |= {} if types is None else {"types": types}
    _, draw = show_heads(weights_in(model, inputs, view), labels, labels, view)
    return draw(path)
