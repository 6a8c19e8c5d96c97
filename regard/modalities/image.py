"""Images: read by a preprocessing, which is saved as `preprocessor_config.json`."""

import base64
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from regard.data.generated.scenes import scenes
from regard.data.readers.image_files import SUFFIXES, as_images, pixels_of, read_image
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.labelled_images import digits
from regard.hub.preprocessor import PREPROCESSOR, load_preprocessing, save_preprocessing
from regard.modalities.base import Modality
from regard.registry import register_modality


def read(item: Any) -> Image.Image:
    """An image of Pillow's, from one, a file, its bytes, an array (rows, columns, channels), or a tensor with the
    channels first; their numbers are bytes."""
    if isinstance(item, Tensor):
        item = item.movedim(0, -1).cpu().numpy() if item.dim() == 3 else item.cpu().numpy()
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.ndim not in (2, 3) or item.ndim == 3 and item.shape[-1] not in (1, 3):
            raise ValueError(
                f"an image is an array of bytes, rows × columns or with 1 or 3 channels; got {item.dtype} of shape "
                f"{item.shape}; convert it: (255 * image).astype('uint8')"
            )
        item = as_images([item if item.ndim == 3 else item[:, :, None]])[0]
    return read_image(BytesIO(item) if isinstance(item, bytes) else item)


MOST_DRAWN = 64
"""Rows and columns of the largest images that are drawn by hand: strokes make digits and shapes, not photographs."""
SCENE = 224
"""Rows and columns of a generated scene for models of larger images."""


def send(item: Any) -> str:
    """An image in any form as a data: URI of a PNG file."""
    file = BytesIO()
    read(item).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def write(item: Any, folder: Path) -> Path:
    """Save an image in any form as a PNG file in a folder."""
    read(item).save(folder / "image.png")
    return folder / "image.png"


def canvas_of(preprocessing: Preprocessing) -> tuple[int, int, int] | None:
    """Rows, columns and channels of the images of a preprocessing, if they are small."""
    size = preprocessing.target
    return None if size is None or max(size) > MOST_DRAWN else (*size, preprocessing.channels)


def examples_for(preprocessing: Preprocessing) -> Sequence[tuple[str, np.ndarray]]:
    """A few images for models without examples of their own: scanned digits for small grey images, else scenes."""
    canvas = canvas_of(preprocessing)
    if canvas is not None and canvas[-1] == 1:
        try:
            images = digits("test").take(np.arange(5))
            return [
                (images.names[label], pixels) for label, pixels in zip(images.labels, images.pixels[:], strict=True)
            ]
        except ImportError:  # without scikit-learn, scenes in grey
            pass
    return [(scene.caption, scene.pixels) for scene in scenes("test", 4, size=min(SCENE, max(canvas or (SCENE,))))]


IMAGE = register_modality("image")(
    Modality(
        name="image", suffixes=SUFFIXES, types=(Image.Image, np.ndarray, Tensor, bytes, BytesIO), file=PREPROCESSOR,
        load=load_preprocessing, save=lambda preprocessing, path: save_preprocessing(path, preprocessing), read=read,
        pixels=lambda data: pixels_of(BytesIO(data)), unit="images", field="image", accept="image/*", send=send,
        write=write,
        examples=lambda path, config: examples_for(load_preprocessing(path, config)),
        canvas=lambda path, config: canvas_of(load_preprocessing(path, config)),
    )
)  # fmt: skip
