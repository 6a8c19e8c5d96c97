"""What a model has for examples: vectors of their tokens behind one of its blocks, and one for each of them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.sets.batches import pad
from regard.data.sets.collection import Examples, find_examples
from regard.models import CLIP, DETR, MAE, Captioner
from regard.nn.convolution import Eye
from regard.nn.recurrent import Recurrent
from regard.nn.reversible import Streams
from regard.tasks import ImageEncoder, PixelModel, Translator
from regard.tasks.engine_task import EngineTask
from regard.tasks.image_text_matcher import is_image_input
from regard.tasks.text_encoder import TextEncoder, text_inputs

BATCH = 32
"""Examples that a model reads at once."""


def examples_for(loaded: Any, source: str | Path | None) -> Examples:
    """The examples of a file or folder, as they suit a model."""
    if isinstance(loaded, PixelModel):
        raise ValueError("a model that paints pixel by pixel reads neither texts nor pictures; choose another one")
    return find_examples(source, sees=isinstance(loaded, ImageEncoder), reads=reads_texts(loaded))


def single(loaded: Any, item: str) -> Examples:
    """One example from a command line: a text, or the name of an image file for a model that sees."""
    if not item.strip():
        raise ValueError("an example to start from is empty; give a text, or the path of a picture")
    pictures = isinstance(loaded, ImageEncoder) and (is_image_input(item) or not reads_texts(loaded))
    return Examples([Path(item) if pictures else item], [item], [], pictures)


def reads_texts(loaded: Any) -> bool:
    """Of a model with a tokenizer: a captioner only writes them."""
    return hasattr(loaded, "tokenizer") and not isinstance(loaded.model, Captioner)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One example behind a block: a vector for each token or place, what each of them is, and the grid of places."""

    vectors: Float[Tensor, "T D"]
    pieces: list[str]
    grid: tuple[int, int] | None = None


def blocks_of(loaded: Any, pictures: bool) -> list[nn.Module]:
    """The blocks that read examples in the order of their work; one that is shared is there as often as it works."""
    model = loaded.model
    if isinstance(model, CLIP):
        model = model.vision if pictures else model.text
    elif isinstance(model, DETR) or isinstance(loaded, Translator):
        model = model.encoder
    elif isinstance(model, MAE | Captioner):
        model = model.vit if isinstance(model, MAE) else model.eye
    named = model.named_modules(remove_duplicate=False)
    found = [part for path, part in named if re.search(r"(^|\.)blocks\.\d+$", path)]
    return found or [part for part in model.modules() if isinstance(part, Recurrent | Eye)]


def block_at(blocks: Sequence[nn.Module], layer: int | None) -> int:
    """The number of a block, counted from 0, or from the last with −1."""
    last = len(blocks) - 1
    layer = -1 if layer is None else layer
    if not -len(blocks) <= layer <= last:
        raise ValueError(f"no block {layer}: the model reads with {len(blocks)}, 0 to {last} (-1: the last)")
    return layer % len(blocks)


@contextmanager
def behind(blocks: Sequence[nn.Module], layer: int, then: Callable[[Any], Any]) -> Iterator[None]:
    """Calls `then` with what leaves a block, and passes on what it returns instead, if that is not None."""
    turns = cycle(i for i, block in enumerate(blocks) if block is blocks[layer])

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        return then(output) if next(turns) == layer else None

    handle = blocks[layer].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def opened(output: Any) -> Tensor:
    """The vectors in what a block gives: B T D, or maps B D Y X."""
    return output.join() if isinstance(output, Streams) else output[0] if isinstance(output, tuple) else output


def moved(output: Any, by: Float[Tensor, "D"]) -> Any:
    """The same output with a vector added at every place."""
    if isinstance(output, Streams):
        return Streams(output.a + by, output.b + by, output.tape)
    if isinstance(output, tuple):
        return (moved(output[0], by), *output[1:])
    return output + (by[:, None, None] if output.dim() == 4 else by)


def token_states(loaded: Any, examples: Examples, layer: int) -> Iterator[Tokens]:
    """The vectors of each example behind a block, in order; what stands in front of all texts or places is left out."""
    blocks, kept = blocks_of(loaded, examples.pictures), list[Tensor]()
    read = read_pictures if examples.pictures else read_texts
    for first in range(0, len(examples), BATCH):
        with torch.no_grad(), behind(blocks, layer, lambda output: kept.append(opened(output))):
            found = list(read(loaded, examples.items[first : first + BATCH], kept.pop))
        yield from found


def read_pictures(loaded: Any, pictures: Sequence[Any], state: Callable[[], Tensor]) -> Iterator[Tokens]:
    pixels = loaded.pixels(pictures)

    def run(batch: Tensor) -> Tensor:
        loaded.model.embed(batch)
        return state()

    for numbers, found in zip(pixels, loaded.outputs(run, pixels), strict=True):
        if found.dim() == 3:
            grid, vectors = (found.shape[1], found.shape[2]), found.flatten(1).T
        else:
            front = front_of(loaded.model)
            vectors = found[front:]
            grid = shaped(len(vectors), numbers.shape[1] / numbers.shape[2])
        yield Tokens(vectors, [f"{i // grid[1]},{i % grid[1]}" for i in range(len(vectors))], grid)


def front_of(model: Any) -> int:
    """Tokens in front of a picture's places."""
    vit = model.vision if isinstance(model, CLIP) else model.vit if isinstance(model, MAE) else model
    return getattr(vit.config, "first", 0)


def shaped(count: int, ratio: float) -> tuple[int, int]:
    """Rows and columns of so many places, as near as can be to a ratio of rows to columns."""
    fits = [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]
    return min(fits, key=lambda grid: abs(np.log(grid[0] / grid[1] / ratio)))


def read_texts(loaded: Any, texts: Sequence[str], state: Callable[[], Tensor]) -> Iterator[Tokens]:
    model, tokenizer, front = loaded.model, loaded.tokenizer, 0
    most = model.config.max_len
    if isinstance(loaded, TextEncoder):
        framed = loaded.frame(texts)
        rows = [one.ids for one in framed]
        model.features(**text_inputs(framed, tokenizer, model.config))
    elif isinstance(loaded, ImageEncoder):
        rows = [one.ids for one in tokenizer.frame(texts, max_len=most)]
        model.embed_text(pad(rows, tokenizer.pad or 0), torch.tensor([len(row) for row in rows]))
    elif isinstance(loaded, Translator):
        rows = [ids[:most] for ids in loaded.encode(texts, sum(map(len, texts)) + len(texts) + 8)]
        first = torch.tensor([loaded.start]).expand(len(rows), -1)
        lengths = torch.tensor([len(row) for row in rows])
        model.prefill(first, model.new_cache(len(loaded.start)), source=pad(rows, 0), lengths=lengths)
    else:
        front = len(loaded.front)
        rows = [[*loaded.front, *ids][:most] for ids in tokenizer.encode_batch(list(texts))]
        sizes = [len(row) for row in rows]
        if front in sizes:  # what others read is framed, or ended
            empty = texts[sizes.index(front)]
            raise ValueError(f"the example {empty!r} has no tokens; leave it out, or give it some words")
        model.features(pad(rows, 0))
    for row, vectors in zip(rows, state(), strict=True):
        yield Tokens(vectors[front : len(row)], tokenizer.pieces(row[front:]))


def vectors_of(loaded: Any, examples: Examples, layer: int | None) -> Float[Tensor, "N D"]:
    """One vector for each example: the model's own where it has one, or the mean over tokens behind a block."""
    if layer is None and has_own(loaded):
        embed = loaded.embed_texts if isinstance(loaded.model, CLIP) and not examples.pictures else loaded.embed
        parts = (examples.items[first : first + BATCH] for first in range(0, len(examples), BATCH))
        return torch.cat([embed(part) for part in parts]).float()
    place = block_at(blocks_of(loaded, examples.pictures), layer)
    return torch.stack([one.vectors.float().mean(0) for one in token_states(loaded, examples, place)])


def has_own(loaded: Any) -> bool:
    """Whether a model was made to give one vector; one that writes is asked where a vector can be put back."""
    return hasattr(loaded, "embed") and not isinstance(loaded, EngineTask)
