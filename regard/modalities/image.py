"""Images: read by a preprocessing, which is saved as `preprocessor_config.json`."""

from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from regard.data.readers.image_files import SUFFIXES, as_images, read_image
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


IMAGE = register_modality("image")(
    Modality(
        name="image", suffixes=SUFFIXES, types=(Image.Image, np.ndarray, Tensor, bytes, BytesIO), file=PREPROCESSOR,
        load=load_preprocessing, save=lambda preprocessing, path: save_preprocessing(path, preprocessing), read=read,
        unit="images", field="image", accept="image/*",
    )
)  # fmt: skip
