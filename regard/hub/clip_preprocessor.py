"""The preprocessing of clips beside a model: `preprocessor_config.json` of a video processor, in and out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import parse, read_json, reading
from regard.data.readers.clip_preprocessing import ClipPreprocessing
from regard.data.readers.preprocessing import Preprocessing
from regard.hub.files import write_json
from regard.hub.preprocessor import PREPROCESSOR, PROCESSOR, image_fields, read_preprocessing
from regard.nn.patches import sides

NEWER = "video_preprocessor_config.json"
"""The file of newer releases."""


def load_clip_preprocessing(directory: str | Path, config: Any) -> ClipPreprocessing:
    """The preprocessing beside a model with this config; without a file, that of frames of the model's own size."""
    folder = Path(directory)
    for path in (folder / PREPROCESSOR, folder / NEWER, folder / PROCESSOR):
        fields = read_json(path) if path.is_file() else None
        if path.name == PROCESSOR and isinstance(fields, dict):
            fields = fields.get("video_processor") or fields.get("image_processor")
        if fields is not None:
            with reading(path):
                return read_clip_preprocessing(fields, config)
    middle = (0.5,) * config.channels
    image = Preprocessing(channels=config.channels, size=sides(config.image), mean=middle, std=middle)
    return ClipPreprocessing(image=image, frames=config.frames)


def read_clip_preprocessing(fields: Any, config: Any) -> ClipPreprocessing:
    """Their fields as a preprocessing of ours; ValueError for what we cannot express."""
    if not isinstance(fields, dict):
        raise ValueError(f"the preprocessing {fields!r} is no object {{…}}; write it again")
    named = str(fields.get("video_processor_type") or fields.get("image_processor_type") or "VideoMAE")
    kind = named.removesuffix("VideoProcessor").removesuffix("ImageProcessor").removesuffix("Fast")
    image = read_preprocessing(fields | {"image_processor_type": f"{kind}ImageProcessor"}, config.channels)
    if kind == "Vivit" and parse(fields.get("offset", True), bool, "offset"):  # scaled, and 1 less
        mean = tuple(1 + value for value in image.mean) or (1.0,) * config.channels
        image = replace(image, mean=mean, std=image.std or (1.0,) * config.channels)
    frames = fields.get("num_frames")  # of the model, where a file does not say it
    frames = config.frames if frames is None else parse(frames, int, "num_frames")
    rate = fields.get("fps")
    return ClipPreprocessing(image=image, frames=frames, rate=None if rate is None else parse(rate, float, "fps"))


def save_clip_preprocessing(directory: str | Path, preprocessing: ClipPreprocessing) -> None:
    """Write a preprocessing so that other projects read the same."""
    fields = image_fields(preprocessing.image) | {"image_processor_type": "VideoMAEImageProcessor"}
    fields |= {"num_frames": preprocessing.frames}
    if preprocessing.rate is not None:
        fields["fps"] = preprocessing.rate
    write_json(Path(directory) / PREPROCESSOR, fields)
