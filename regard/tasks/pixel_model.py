"""A trained model of pixels: the upper part of a picture in, the whole picture out."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from regard.data.readers.images import Preparation
from regard.decode.requests import Request
from regard.decode.sample import Sampling
from regard.tasks.engine_task import EngineTask
from regard.tasks.image_encoder import Picture, opened
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_image import read_colours
from regard.tokens.pixels import Pixels


class PixelModel(EngineTask):
    """What `regard.load` returns for a model that paints pixel by pixel."""

    inputs: ClassVar[tuple[str, ...]] = ("pixels",)

    def __init__(self, model: Any, pixels: Pixels) -> None:
        self.model, self.pixels = model.eval(), pixels

    def fit(self, pictures: Sequence[Picture]) -> np.ndarray:
        """Image files, or images of Pillow's, as bytes of the model's size."""
        found = [self.preparation.fit(image) for image in opened(pictures)]
        return np.stack(found) if found else np.empty((0, *self.shape), np.uint8)

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_colours(self, *inputs, **options)

    def complete(
        self,
        pictures: Sequence[Picture] | np.ndarray,
        *,
        rows: int | None = None,
        count: int = 1,
        sampling: Sampling | None = None,
    ) -> np.ndarray:
        """Each picture's first `rows` (none: half of them) continued `count` times, drawn as `sampling` says or with
        the likeliest colours: bytes (picture, count, rows, columns, channels)."""
        size = self.pixels
        rows = size.rows // 2 if rows is None else rows
        if not 0 <= rows < size.rows:
            raise ValueError(f"rows={rows} leaves nothing to paint; the pictures have {size.rows}, keep fewer")
        ids = size.encode(pictures if isinstance(pictures, np.ndarray) else self.fit(pictures))
        kept = np.repeat(ids[:, : rows * size.columns], count, axis=0).tolist()
        requests = [
            Request(
                prompt=[size.start, *front], max_len=len(size) - len(front), forbidden=(size.start,),
                sampling=sampling, row=number,
            )
            for number, front in enumerate(kept)
        ]  # fmt: skip
        written = [ticket.ids for ticket in self.engine.serve(requests)]
        whole = np.array([[*front, *new] for front, new in zip(kept, written, strict=True)], dtype=np.int64)
        return size.decode(whole.reshape(-1, len(size))).reshape(len(ids), count, *self.shape)

    def paint(self, count: int = 1, *, sampling: Sampling | None = None) -> np.ndarray:
        """Whole pictures out of nothing: bytes (count, rows, columns, channels)."""
        return self.complete(np.zeros((1, *self.shape), np.uint8), rows=0, count=count, sampling=sampling)[0]

    @property
    def preparation(self) -> Preparation:
        """How a picture gets the model's size."""
        return Preparation(channels=self.pixels.channels, size=(self.pixels.rows, self.pixels.columns))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.pixels.rows, self.pixels.columns, self.pixels.channels


GAP, SIDE = 4, 96
"""Pixels between pictures of a sheet, and the side that small ones are enlarged to."""


def sheet(rows: Sequence[Sequence[np.ndarray]]) -> Image.Image:
    """Pictures beside and below each other, whole pixels enlarged."""
    height, width = rows[0][0].shape[:2]
    times = max(1, SIDE // max(height, width))
    height, width = height * times + GAP, width * times + GAP
    whole = Image.new("RGB", (width * max(map(len, rows)) + GAP, height * len(rows) + GAP), (120, 130, 150))
    for i, row in enumerate(rows):
        for j, one in enumerate(row):
            plain = Image.fromarray(one[..., 0] if one.shape[-1] == 1 else one)
            large = plain.resize((width - GAP, height - GAP), Image.Resampling.NEAREST)
            whole.paste(large.convert("RGB"), (j * width + GAP, i * height + GAP))
    return whole
