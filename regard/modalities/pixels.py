"""Images pixel by pixel: each pixel is a token of a palette, which is saved as `pixels.json`."""

from dataclasses import replace

from regard.modalities.image import IMAGE
from regard.registry import register_modality
from regard.tokens.pixel_tokenizer import PIXELS, PixelTokenizer

PIXEL = register_modality("pixels")(
    replace(
        IMAGE, name="pixels", file=PIXELS, load=lambda path, config: PixelTokenizer.load(path),
        save=lambda pixels, path: pixels.save(path),
    )
)  # fmt: skip
