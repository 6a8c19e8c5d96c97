"""The cells of an image that each word of its caption attended to, and how much of that lay on the named object."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from regard.data.generated.scenes import COLOURS, SHAPES, Scene
from regard.data.readers.image_files import read_image
from regard.data.sets.batches import pad
from regard.inside.capture.image import image_cells
from regard.inside.capture.weights import cross_attention
from regard.inside.draw.canvas import Figure, Target, check_suffix
from regard.inside.draw.overlays import as_rgb, grid_of_images, overlay
from regard.inside.views.base import Shown, View, register_view
from regard.inside.views.image import header, lines_of, render_size, strongest
from regard.models import parts
from regard.tasks.prepared import Prepared

BATCH = 64
LARGEST = 512
"""Pixels of a drawn image's longer side."""
ROW = 7
"""Number of images in a row."""


def word_maps(
    task: Any, pixels: Sequence[np.ndarray], captions: Sequence[Sequence[int]]
) -> list[tuple[list[str], np.ndarray]]:
    """The words of each caption, and the weights (words, rows, columns) of the image's cells for each, which sum to 1.

    Images are numbers as the model reads them, captions are token ids. It is the mean of all layers and heads, and of
    the tokens of a word.
    """
    results: list[tuple[list[str], np.ndarray]] = []
    start, like = task.generation["decoder_start"], next(task.model.parameters())
    for first in range(0, len(pixels), BATCH):
        part = slice(first, first + BATCH)
        target = pad([[start, *ids] for ids in captions[part]], 0)
        batch = torch.from_numpy(np.stack(pixels[part])).to(like)
        weights = cross_attention(task.model, dict(pixels=batch, target=target)).numpy()
        grid = parts.patch_grid(task.model, (batch.shape[2], batch.shape[3])).grid
        for ids, one in zip(captions[part], weights, strict=True):
            words, groups = words_of(task.tokenizer.pieces(list(ids)))
            maps = [one[group].mean(0).reshape(grid) for group in groups]
            results.append((words, np.stack(maps) if maps else np.zeros((0, *grid), np.float32)))
    return results


def words_of(pieces: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Tokens joined to words, and the positions of each word's tokens; punctuation stands alone."""
    words: list[str] = []
    groups: list[list[int]] = []
    for position, piece in enumerate(pieces):
        begins = not words or piece.startswith("·") or not piece[:1].isalnum() or not words[-1][-1:].isalnum()
        if begins:
            words.append(piece.removeprefix("·"))
            groups.append([position])
        else:
            words[-1] += piece
            groups[-1].append(position)
    return words, groups


def gains(words: Sequence[str], maps: np.ndarray, scene: Scene, side: int) -> list[float]:
    """For each colour and shape word, its attention on the object, as a multiple of the object's share of the image.

    Objects are named from left to right, so the k-th colour and the k-th shape belong to the k-th object. A cell's
    weight is spread evenly over its `side` × `side` pixels.
    """
    results = []
    size = scene.pixels.shape[:2]
    for known in (COLOURS, SHAPES):
        positions = [i for i, word in enumerate(words) if word in known]
        for i, mask in zip(positions, scene.masks, strict=False):
            spread = maps[i].repeat(side, 0).repeat(side, 1)[: size[0], : size[1]]
            results.append(float((spread * mask).sum() / spread.sum() / mask.mean()))
    return results


def show_words(prepared: Prepared) -> Shown:
    """Show the caption of an image, and the cells that each of its words attended to."""
    (image, cells), generation = image_cells(prepared), prepared.generation
    assert generation is not None
    ids = prepared.request["target"]
    weights = cross_attention(prepared.model, prepared.inputs)[0].numpy()
    words, groups = words_of(prepared.names(ids))
    maps = np.array([weights[group].mean(0).reshape(cells.grid) for group in groups]).reshape(-1, *cells.grid)
    caption = generation.decode(list(ids)).strip()
    rows = [{"word": word} | strongest(one) for word, one in zip(words, maps, strict=True)]
    data = header(prepared) | {"caption": caption, "words": rows}

    def draw(path: Target) -> Figure:
        original = read_image(prepared.original).convert("RGB")
        original.thumbnail((LARGEST, LARGEST))
        shown = np.asarray(original)
        top = float(maps.max()) if len(maps) else None
        cell = (cells.cell * shown.shape[0] / image.shape[0], cells.cell * shown.shape[1] / image.shape[1])
        drawn = [as_rgb(shown), *(overlay(shown, one, top=top, cell=cell, smooth=True) for one in maps)]
        return grid_of_images(lines_of(drawn, ROW), lines_of(["", *words], ROW), path, title=caption, top=top)

    return data, draw


def draw_words(task: Any, image: Any, path: Target = None, caption: Any = None) -> Figure:
    """Draw an image and, for each word of its caption, where the model attended to when it wrote it."""
    check_suffix(path)
    return show_words(task.read(image, target=None if caption is None else caption.ids))[1](path)


def render_words(data: Mapping[str, Any]) -> str:
    """A line for each word of a caption."""
    lines = [render_size(data), "strongest  weight  word" if data["words"] else "no words"]
    for one in data["words"]:
        lines.append(f"{'{},{}'.format(*one['strongest']):>9}  {one['weight']:6.3f}  {one['word']}")
    return "\n".join(lines)


register_view(View(name="words", show=show_words, render=render_words), False)
