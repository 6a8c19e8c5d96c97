"""Images pixel by pixel: each pixel is a token of a palette, which is saved as `pixels.json`."""

from regard.data.readers.image_files import SUFFIXES, read_data_uri, read_image
from regard.modalities.base import Modality
from regard.registry import register_modality
from regard.tokens.pixel_tokenizer import PIXELS, PixelTokenizer

PIXEL = register_modality("pixels")(
    Modality(
        name="pixels", suffixes=SUFFIXES, file=PIXELS, load=lambda path, config: PixelTokenizer.load(path),
        save=lambda pixels, path: pixels.save(path), read=read_image, receive=read_data_uri, unit="images",
        field="image", widget="image",
    )
)  # fmt: skip
