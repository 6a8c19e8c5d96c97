"""A generative model of pixels: the upper part of an image in, the whole image out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack, cast

import numpy as np
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.unlabelled_images import PixelsConfig
from regard.decode.requests import Request
from regard.decode.sample import Sampling, SamplingOptions, sampling_of
from regard.hub.checkpoint import LayoutError
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Verb, register_task
from regard.tasks.engine_task import EngineTask
from regard.tasks.image_encoder import ImageInput, at_most, images_of, opened
from regard.tasks.metrics import pixel_scores
from regard.tasks.prepared_image import read_colours
from regard.tasks.single import is_single
from regard.tokens.pixel_tokenizer import PixelTokenizer


@register_task("generate-pixels")
class PixelModel(EngineTask):
    """Generates images pixel by pixel."""

    inputs: ClassVar[tuple[str, ...]] = ("pixels",)
    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="complete", does="completes images", ability=None,
            options=(
                Option(name="rows", kind=int, help="Rows that are kept; none: half of them."),
                Option(name="count", kind=int, default=1, limits=(1, 1024), help="Completions of each image."),
                Option(name="temperature", kind=float, default=1.0, help="Of sampling; 0 takes the best colours."),
                Option(name="seed", kind=int, default=0, help="Of sampling."),
            ),
        ),
    )  # fmt: skip

    data: ClassVar[tuple[type, ...]] = (PixelsConfig,)

    def __init__(self, model: Any, pixels: PixelTokenizer) -> None:
        self.model, self.pixels = model.eval(), pixels

    def arrays(self, images: Sequence[ImageInput]) -> np.ndarray:
        """Images as uint8 arrays (number, rows, columns, channels) of the model's size."""
        fitted = [self.preprocessing.fit(image) for image in opened(images)]
        return np.stack(fitted) if fitted else np.empty((0, *self.shape), np.uint8)

    read = read_colours

    def complete(
        self,
        images: ImageInput | Sequence[ImageInput],
        *,
        rows: int | None = None,
        count: int = 1,
        sampling: Sampling | None = None,
        **sampled: Unpack[SamplingOptions],
    ) -> np.ndarray:
        """Each image's first `rows` (none: half of them) continued `count` times, sampled as `sampling`, or
        `temperature` and the like, say, or with the most probable colours: uint8 (image, count, rows, columns,
        channels), without the first axis for a single image."""
        if is_single(images):
            return self.complete([cast(ImageInput, images)], rows=rows, count=count, sampling=sampling, **sampled)[0]
        size, sampling = self.pixels, sampling_of(sampling, sampled)
        rows = size.rows // 2 if rows is None else rows
        if not 0 <= rows < size.rows:
            raise ValueError(f"rows={rows} leaves nothing to generate; the images have {size.rows}, keep fewer")
        several = cast(Sequence[ImageInput], images)
        ids = size.encode(images if isinstance(images, np.ndarray) else self.arrays(several))
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

    def completions(
        self, images: Sequence[ImageInput], *, rows: int | None = None, count: int = 1, temperature: float = 1.0,
        seed: int = 0,
    ) -> list[list[np.ndarray]]:  # fmt: skip
        """For each image a row for `sheet`: its kept part, the completions, the image; without images, new ones."""
        sampling = Sampling(temperature=temperature, seed=seed) if temperature else None
        if not images:
            if rows:
                raise ValueError("--rows are kept of an IMAGE; give one, or leave out --rows")
            return [list(self.paint(count, sampling=sampling))]
        arrays = self.arrays(images)
        kept = self.pixels.rows // 2 if rows is None else rows
        completed = self.complete(arrays, rows=kept, count=count, sampling=sampling)
        fronts = np.where(np.arange(arrays.shape[1])[:, None, None] < kept, arrays, np.uint8(BLANK))
        return [[front, *several, whole] for front, several, whole in zip(fronts, completed, arrays, strict=True)]

    def paint(
        self, count: int = 1, *, sampling: Sampling | None = None, **sampled: Unpack[SamplingOptions]
    ) -> np.ndarray:
        """Generate whole images from the start token: uint8 (count, rows, columns, channels)."""
        return self.complete(np.zeros((1, *self.shape), np.uint8), rows=0, count=count, sampling=sampling, **sampled)[0]

    @property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing that gives an image the model's size."""
        return Preprocessing(channels=self.pixels.channels, size=(self.pixels.rows, self.pixels.columns))

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Bits per dimension, next to each pixel's histogram over the training images."""
        whole = images_of(replace(test, limit=None), self.preprocessing, part="test")
        images = at_most(whole, test.limit)
        scores = pixel_scores(self.model, self.pixels, images, test.own.split(self.preprocessing)[0])
        summary = (
            f"bits per dimension {scores['bits_per_dimension']:.3f}   ({HISTOGRAM} "
            f"{scores['histograms']:.3f}; {scores['examples']:,} held-out images)"
        )
        baselines = {HISTOGRAM: {"bits_per_dimension": scores["histograms"]}}
        return Scored(
            scores=scores, outputs=[], summary=summary, lower=True, baselines=baselines, total=len(whole), unit="images"
        )

    def samples(self, test: EvalSet, run: Path) -> Samples:
        arrays = images_of(replace(test, limit=6), self.preprocessing).pixels
        rows = [[*several, whole] for several, whole in
                zip(self.complete(arrays, count=4, sampling=Sampling()), arrays, strict=True)]  # fmt: skip
        commands = [f"regard complete {run} image.png --count 4 --out done.png"]
        if test.data.embedded:
            commands.append(f"regard train {test.recipe} --model lstm --out runs/pixel-lstm")
        examples = [Example(inputs=(array,)) for array in arrays]
        return Samples(commands=commands, images={"done.png": sheet(rows)}, examples=examples)

    def export(self, out: Path) -> None:
        raise LayoutError("a model of pixels has no layout that other projects read")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.pixels.rows, self.pixels.columns, self.pixels.channels


HISTOGRAM = "each pixel's own histogram"
"""The name of the baseline."""
BLANK = 90
"""The grey value of masked patches, and of rows that are not kept."""
GAP, SIDE = 4, 96
"""Pixels between the images of a sheet, and the side that small ones are enlarged to."""


def sheet(rows: Sequence[Sequence[np.ndarray]]) -> Image.Image:
    """Rows of images on one sheet, small ones enlarged without smoothing."""
    height, width = rows[0][0].shape[:2]
    times = max(1, SIDE // max(height, width))
    height, width = height * times + GAP, width * times + GAP
    whole = Image.new("RGB", (width * max(map(len, rows)) + GAP, height * len(rows) + GAP), (120, 130, 150))
    for i, row in enumerate(rows):
        for j, array in enumerate(row):
            plain = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
            large = plain.resize((width - GAP, height - GAP), Image.Resampling.NEAREST)
            whole.paste(large.convert("RGB"), (j * width + GAP, i * height + GAP))
    return whole
