"""IDX files, the format of MNIST and its successors: arrays of bytes behind a short header, packed or not."""

import struct
from pathlib import Path

import numpy as np

from regard.data.readers.packed import PACKED, plain_name
from regard.data.readers.text_files import read_bytes

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The types of values by the third byte of a file."""
IDX_SETS = {("x", "y"): ("images", "labels"), ("x_test", "y_test"): ("test images", "test labels")}
"""The arrays of an .npz, and the files that stand for them."""
TESTS = ("t10k", "test")


def is_idx(path: Path) -> bool:
    """Whether a path is an IDX file, or a folder with IDX files of images."""
    if path.is_dir():
        return any(is_images(file) for file in path.iterdir())
    return is_named_idx(path)


def is_named_idx(path: Path) -> bool:
    """Whether a file is of IDX by its name: x.idx, train-images-idx3-ubyte, train-images.idx3-ubyte.gz."""
    name = plain_name(path).name.lower()
    return name.endswith((".idx", "-ubyte", ".idx1", ".idx3"))


def is_images(path: Path) -> bool:
    """Whether a file holds images by its name."""
    return is_named_idx(path) and "image" in path.name.lower() and path.is_file()


def is_test(path: Path) -> bool:
    """Whether a file is of the test set by its name."""
    return path.name.lower().startswith(TESTS)


def idx_file(path: Path, kind: str) -> Path | None:
    """The file of a folder, or beside a file, that holds images or labels for training, or those for the test."""
    test, word = kind.startswith("test "), kind.removeprefix("test ")
    if path.is_file():
        if test:
            return None
        return path if word == "images" else labels_beside(path)
    files = [file for file in sorted(path.iterdir()) if is_images(file) and is_test(file) == test]
    whole = [file for file in files if file.suffix.lower() not in PACKED] or files
    if len(whole) > 1:
        raise ValueError(f"{path} has {', '.join(file.name for file in whole[:3])}: name the file of the images itself")
    if not whole:
        return None
    return whole[0] if word == "images" else labels_beside(whole[0])


def labels_beside(images: Path) -> Path | None:
    """The file with the labels of a file of images, packed or not."""
    name = plain_name(images).name
    for ours, theirs in (("images", "labels"), ("image", "label")):
        if ours in name:
            other = name.replace(ours, theirs).replace("idx3", "idx1")
            candidates = [images.with_name(other + suffix) for suffix in ("", *PACKED)]
            return next((path for path in candidates if path.is_file()), None)
    return None


def read_idx(path: Path) -> np.ndarray:
    """Read the array of an IDX file."""
    raw = read_bytes(path, folder="its files", empty="images")
    dimensions = raw[3] if len(raw) > 4 and raw[:2] == b"\0\0" and raw[2] in TYPES else 0
    if not 1 <= dimensions <= 4 or len(raw) < 4 + 4 * dimensions:
        raise ValueError(f"{path} is no IDX file; give one such as train-images-idx3-ubyte.gz, or fetch it again")
    shape, kind = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions]), np.dtype(TYPES[raw[2]])
    count, body = int(np.prod(shape, dtype=object)), len(raw) - 4 - 4 * dimensions
    if count * kind.itemsize != body:
        raise ValueError(f"{path}: {shape} takes {count * kind.itemsize:,} bytes, but it has {body:,}; fetch it again")
    return np.frombuffer(raw, kind, offset=4 + 4 * dimensions).reshape(shape).astype(kind.newbyteorder("="))
