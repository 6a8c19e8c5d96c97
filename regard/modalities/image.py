"""Images: read by a preprocessing, which is saved as `preprocessor_config.json`."""

from regard.data.readers.image_files import SUFFIXES, read_data_uri, read_image
from regard.hub.preprocessor import PREPROCESSOR, load_preprocessing, save_preprocessing
from regard.modalities.base import Modality
from regard.registry import register_modality

IMAGE = register_modality("image")(
    Modality(
        name="image", suffixes=SUFFIXES, file=PREPROCESSOR, load=load_preprocessing, read=read_image,
        save=lambda preprocessing, path: save_preprocessing(path, preprocessing), receive=read_data_uri, unit="images",
        field="image", widget="image",
    )
)  # fmt: skip
