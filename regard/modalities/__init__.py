"""The modalities of model inputs, one record each. Importing this package registers them."""

from regard.modalities import image, pixels, text  # noqa: F401
from regard.modalities.base import Modality

__all__ = ["Modality"]
