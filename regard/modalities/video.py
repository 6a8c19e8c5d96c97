"""Video: clips, read by the preprocessing of their frames, which is saved as `preprocessor_config.json`."""

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.data.generated.clips import KINDS
from regard.data.generated.clips import clip as generated
from regard.data.readers.clips import SUFFIXES, Clip, from_frames, open_clip
from regard.hub.clip_preprocessor import load_clip_preprocessing, save_clip_preprocessing
from regard.hub.preprocessor import PREPROCESSOR
from regard.modalities.base import Modality
from regard.registry import register_modality

MOST_WRITTEN = 64
"""Frames of a clip that is sent or saved, at most."""


def read(item: Any) -> Clip:
    """A clip, from one, a video file, its bytes, a folder of frames, an array (frames, rows, columns, channels), a
    tensor with the channels before rows, or a list of Pillow's images; their numbers are bytes."""
    if isinstance(item, Clip):
        return item
    if isinstance(item, Tensor):
        item = item.movedim(1, -1).cpu().numpy() if item.dim() == 4 else item.cpu().numpy()
    if isinstance(item, list | tuple):
        item = np.stack([np.asarray(image.convert("RGB")) for image in item]) if item else np.empty(0)
    return from_frames(item) if isinstance(item, np.ndarray) else open_clip(item)


def claimed(data: bytes) -> int:
    """The number of pixels of a frame that a file claims to have; 0 for one that `read` refuses."""
    try:
        rows, columns = open_clip(data).size
    except ValueError:
        return 0
    return rows * columns


def gif(item: Any) -> bytes:
    """A clip in any form as the bytes of an animated GIF, with evenly spread frames where it has many."""
    clip = read(item)
    numbers = range(len(clip)) if len(clip) <= MOST_WRITTEN else clip.sample(MOST_WRITTEN)
    images = [image if image.mode == "L" else image.quantize(256) for image in clip.frames(list(numbers))]
    milliseconds = max(20, round(1000 * clip.seconds / len(images)))
    file = BytesIO()
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0, optimize=False)
    return file.getvalue()


def write(item: Any, folder: Path) -> Path:
    """Save a clip in any form as an animated GIF in a folder."""
    (folder / "clip.gif").write_bytes(gif(item))
    return folder / "clip.gif"


def examples_for(path: Path, config: Any) -> list[tuple[str, Any]]:
    """A few generated clips."""
    drawn = [generated("motion", "test", number) for number in range(len(KINDS["motion"][1]))]
    return [(each.label, each.frames) for each in drawn]


VIDEO = register_modality("video")(
    Modality(
        name="video", suffixes=SUFFIXES, types=(Clip, np.ndarray, Tensor, list, tuple, bytes), file=PREPROCESSOR,
        load=load_clip_preprocessing, save=lambda preprocessing, path: save_clip_preprocessing(path, preprocessing),
        read=read, pixels=claimed, unit="clips", field="video", item="clip", accept="video/*,.gif,.mkv", write=write,
        send=lambda item: "data:image/gif;base64," + base64.b64encode(gif(item)).decode(), examples=examples_for,
    )
)  # fmt: skip
