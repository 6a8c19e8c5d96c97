"""The modalities of model inputs, one record each. Importing this package registers them."""

from regard.modalities import audio, graph, image, pixels, series, text, video  # noqa: F401
from regard.modalities.base import Modality, modality_of, names_file

__all__ = ["Modality", "modality_of", "names_file"]
