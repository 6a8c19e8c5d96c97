"""Token sequences and images as the page takes them."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from regard.tasks.prepared import Prepared, TokenSequence
from regard.tokens.trace import trace

MOST_TOKENS = 1024
"""The most tokens of a text, since attention weights grow with their square."""
MOST_LETTERS = 160
"""The most characters of a text whose merges are shown: every step stores the whole text."""
SMALLEST = 384
"""Smallest side of a shown image in pixels; browsers blur enlarged images."""


def image_uri(pixels: np.ndarray) -> str:
    """An image as a data: URI."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    times = max(1, SMALLEST // max(image.size))
    file = io.BytesIO()
    image.resize([side * times for side in image.size], Image.Resampling.NEAREST).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def sequence_data(prepared: Prepared, sequence: TokenSequence, task: Any) -> dict[str, Any]:
    """Return a sequence of tokens, or the grid of an image, as data; raise an error if there are too many tokens."""
    data: dict[str, Any] = {"name": sequence.name, "title": sequence.title}
    data |= {} if sequence.seconds is None else {"seconds": sequence.seconds}
    if sequence.grid is not None:
        assert prepared.image is not None
        data |= {"grid": list(sequence.grid.grid), "cell": sequence.grid.cell,
                 "front": sequence.tokens[: sequence.prefix], "size": list(prepared.image.shape[:2])}  # fmt: skip
        return data | ({} if sequence.ids is None else {"ids": sequence.ids})
    if len(sequence) > MOST_TOKENS:
        raise ValueError(
            f"the {sequence.name} has {len(sequence):,} tokens, the page shows up to {MOST_TOKENS:,}; give it a part"
        )
    merged = merges(task.tokenizer, sequence.text) if sequence.text else None
    data |= {"tokens": sequence.tokens, "ids": sequence.ids, "merges": merged, "segments": sequence.segments}
    return data | ({"front": sequence.prefix} if sequence is not prepared.sequences[0] and sequence.prefix else {})


def merges(tokenizer: Any, text: str) -> list[dict[str, Any]] | None:
    """The merges of pairs into tokens, step by step; None where tokens are made otherwise, or the text is too long."""
    if len(text) > MOST_LETTERS:
        return None
    try:
        traced = trace(text, tokenizer)
    except ValueError:
        return None
    steps = [{"merge": "", "rank": None, "symbols": list(traced.initial)}]
    return steps + [
        {"merge": f"{one.pair[0]} + {one.pair[1]} → {one.symbol}", "rank": one.rank, "symbols": list(one.symbols)}
        for one in traced.steps
    ]
