"""Captions in the format of COCO: one .json with images and annotations."""

import json
from collections.abc import Iterator
from pathlib import Path

from regard.data.readers.packed import kind_of
from regard.data.readers.text_files import as_text, read_bytes


def holds_captions(path: Path) -> bool:
    """Whether a file is a .json with images and captions of them."""
    if kind_of(path) != ".json" or not path.is_file():
        return False
    begin = as_text(read_bytes(path, folder="a file", empty="captions"), path)
    return begin.lstrip().startswith("{") and all(f'"{key}"' in begin for key in ("images", "annotations", "caption"))


def read_captions(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Number, file name and caption of each annotation."""
    try:
        stored = json.loads(as_text(read_bytes(path, folder="a file", empty="captions"), path))
        names = {record["id"]: str(record["file_name"]) for record in stored["images"]}
        for number, record in enumerate(stored["annotations"], 1):
            yield number, names[record["image_id"]], [str(record["caption"]).strip()]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not as in COCO ({error}); images have id and file_name, annotations image_id and caption"
        ) from None
