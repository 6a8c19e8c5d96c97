"""Where a captioner looked for each word: arrays, how much of it lay on what the word names, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.generated.scenes import COLOURS, SHAPES, Scene
from regard.data.readers.image_files import read_image
from regard.data.sets.batches import pad
from regard.inside.canvas import check_suffix
from regard.inside.capture import crossing
from regard.inside.pictures import as_rgb, grid_of_pictures, overlay
from regard.tasks.image_captioner import Caption, ImageCaptioner
from regard.tasks.image_encoder import ImageInput

BATCH = 64
LARGEST = 512
"""Pixels of a drawn picture's longer side."""
ROW = 7
"""Pictures side by side."""


def word_maps(
    loaded: ImageCaptioner, pixels: Sequence[np.ndarray], captions: Sequence[Sequence[int]]
) -> list[tuple[list[str], np.ndarray]]:
    """The words of each caption, and where the model looked for each: weights (words, rows, columns) that sum to 1.

    Pictures are as the model reads them, captions are tokens. Of several layers and heads it is the mean; of a word of
    several pieces, too.
    """
    found: list[tuple[list[str], np.ndarray]] = []
    start, like = loaded.generation["decoder_start"], next(loaded.model.parameters())
    for first in range(0, len(pixels), BATCH):
        part = slice(first, first + BATCH)
        target = pad([[start, *ids] for ids in captions[part]], 0)
        batch = torch.from_numpy(np.stack(pixels[part])).to(like)
        weights = crossing(loaded.model, dict(pixels=batch, target=target)).numpy()
        side = loaded.model.config.cell_side
        grid = [-(-length // side) for length in batch.shape[2:]]
        for ids, one in zip(captions[part], weights, strict=True):
            words, groups = words_of(loaded.tokenizer.pieces(list(ids)))
            maps = [one[group].mean(0).reshape(grid) for group in groups]
            found.append((words, np.stack(maps) if maps else np.zeros((0, *grid), np.float32)))
    return found


def words_of(pieces: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Pieces joined to words, and the places of each one's pieces; marks such as commas stand alone."""
    words: list[str] = []
    groups: list[list[int]] = []
    for place, piece in enumerate(pieces):
        begins = not words or piece.startswith("·") or not piece[:1].isalnum() or not words[-1][-1:].isalnum()
        if begins:
            words.append(piece.removeprefix("·"))
            groups.append([place])
        else:
            words[-1] += piece
            groups[-1].append(place)
    return words, groups


def gains(words: Sequence[str], maps: np.ndarray, scene: Scene, side: int) -> list[float]:
    """For each colour and shape word, how many times the object's share of the picture it got of the attention.

    Things are named from left to right, so the k-th colour and the k-th shape belong to the k-th thing. A place's
    weight is spread evenly over its `side` × `side` pixels.
    """
    found = []
    size = scene.pixels.shape[:2]
    for known in (COLOURS, SHAPES):
        places = [i for i, word in enumerate(words) if word in known]
        for i, mask in zip(places, scene.masks, strict=False):
            spread = maps[i].repeat(side, 0).repeat(side, 1)[: size[0], : size[1]]
            found.append(float((spread * mask).sum() / spread.sum() / mask.mean()))
    return found


def draw_words(
    loaded: ImageCaptioner, picture: ImageInput, path: str | Path | None = None, caption: Caption | None = None
) -> Any:
    """The picture and, for each word of its caption, where the model looked when it wrote it."""
    if path is not None:
        check_suffix(path)
    pixels = loaded.pixels([picture])
    caption = caption or loaded.caption_pixels(pixels)[0][0]
    image = read_image(picture).convert("RGB")
    image.thumbnail((LARGEST, LARGEST))
    shown = np.asarray(image)
    ((words, maps),) = word_maps(loaded, pixels, [caption.ids])
    side = loaded.model.config.cell_side
    top = float(maps.max()) if len(maps) else None
    cell = (side * shown.shape[0] / pixels[0].shape[1], side * shown.shape[1] / pixels[0].shape[2])
    drawn = [as_rgb(shown), *(overlay(shown, one, top=top, cell=cell, smooth=True) for one in maps)]
    labels = ["", *words]
    rows = range(0, len(drawn), ROW)
    return grid_of_pictures(
        [drawn[i : i + ROW] for i in rows], [labels[i : i + ROW] for i in rows], path, title=caption.text, top=top
    )
