"""Images pixel by pixel: each pixel is a token of a palette, which is saved as `pixels.json`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.data.readers.preprocessing import Preprocessing
from regard.modalities.image import IMAGE, canvas_of, examples_for
from regard.registry import register_modality
from regard.tokens.pixel_tokenizer import PIXELS, PixelTokenizer


def preprocessing(path: Path, config: Any) -> Preprocessing:
    """The preprocessing that gives an image the size of the pixels beside a model."""
    pixels = PixelTokenizer.load(path)
    return Preprocessing(channels=pixels.channels, size=(pixels.rows, pixels.columns))


PIXEL = register_modality("pixels")(
    replace(
        IMAGE, name="pixels", file=PIXELS, load=lambda path, config: PixelTokenizer.load(path),
        save=lambda pixels, path: pixels.save(path),
        examples=lambda path, config: examples_for(preprocessing(path, config)),
        canvas=lambda path, config: canvas_of(preprocessing(path, config)),
    )
)  # fmt: skip
