"""A single text as a model reads it: its tokens, and which of them each one looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.inside.canvas import check_suffix
from regard.inside.capture import look
from regard.inside.views import draw_heads, draw_lines

View = Literal["heads", "lines"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One text, or a pair, as a model takes it."""

    inputs: dict[str, Tensor]
    """What `features` of the model takes: a batch of one."""
    labels: list[str]
    """A readable name of each token."""
    spans: list[tuple[int, int] | None]
    """Where each token stands in its text; None for special tokens, and for those of a second text."""


def read(loaded: Any, text: str, second: str | None = None) -> Reading:
    """A text as the loaded model reads it: framed for an encoder, begun as it was trained to begin for a writer."""
    model, tokenizer = loaded.model, loaded.tokenizer
    if hasattr(model, "encode"):
        raise ValueError(f"{type(model).__name__} reads one text and writes another; give it both, as for a translator")
    writes = hasattr(model, "step")
    if writes and second is not None:
        raise ValueError(f"{type(model).__name__} reads one text; leave out the second")
    framed = tokenizer.frame([text], None if second is None else [second])[0]
    spans = [span if side == 0 else None for span, side in zip(framed.offsets, framed.side, strict=True)]
    ids = framed.ids
    if writes:  # what stands before a text when it is to be continued, and nothing behind it
        own = [span for span, side in zip(spans, framed.side, strict=True) if side is not None]
        ids = loaded.encode(text)
        spans = [*[None] * (len(ids) - len(own)), *own]
    elif len(ids) > model.config.max_len:
        raise ValueError(
            f"the text has {len(ids):,} tokens, the model's context is {model.config.max_len:,}; shorten it"
        )
    inputs = {"ids": torch.tensor([ids])}
    if not writes:
        inputs |= {"lengths": torch.tensor([len(ids)])}
        inputs |= {"types": torch.tensor([framed.types])} if model.config.types > 1 else {}
    return Reading(inputs, tokenizer.pieces(ids), spans)


def draw_text(loaded: Any, text: str, path: str | Path, *, view: View = "heads", second: str | None = None) -> None:
    """Where each token of a text (or of a pair of texts, for an encoder) looks, as `draw_text_attention` shows it."""
    check_suffix(path)
    reading = read(loaded, text, second)
    types = reading.inputs.get("types")
    draw_text_attention(loaded.model, reading.inputs["ids"], reading.labels, path, view=view, types=types)


@torch.no_grad()
def draw_text_attention(
    model: nn.Module,
    ids: Int[Tensor, "1 T"],
    labels: Sequence[str],
    path: str | Path | None,
    *,
    view: View = "heads",
    types: Int[Tensor, "1 T"] | None = None,
) -> Any:
    """Every layer and head of an encoder or a decoder at work on one text; `lines`: the last layer's, token to token.

    A row is a token that looks, a column one that is seen. `types` are the segments of a pair.
    """
    inputs = {"ids": ids} if hasattr(model, "step") else {"ids": ids, "lengths": torch.tensor([ids.shape[1]])}
    inputs |= {} if types is None else {"types": types}
    with look(model, layers=-1 if view == "lines" else None) as seen:
        model.features(**inputs)  # type: ignore[operator]
    maps = {name: seen.attention[name][0] for name in seen.names}
    if view == "lines":
        return draw_lines(maps[seen.names[0]], labels, labels, path, title="the last layer, a colour for each head")
    return draw_heads(maps, labels, labels, path)
