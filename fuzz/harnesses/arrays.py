"""Images as arrays: .npz, and IDX files (first byte "i"), packed or not."""

import gzip
import struct
from io import BytesIO

import numpy as np

from fuzz.scratch import put
from regard.data.readers.arrays import count_arrays, read_arrays, read_classes

READS = ("regard.data.readers.arrays", "regard.data.readers.idx", "regard.data.readers.packed")


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes as an IDX file."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def seeds() -> list[bytes]:
    """Return small arrays of images and classes in each layout."""
    pixels, classes = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5), np.array([0, 1, 0])
    out = []
    for save in (np.savez, np.savez_compressed):
        file = BytesIO()
        save(file, x=pixels, y=classes, names=np.array(["a", "b"]))
        out.append(b"n" + file.getvalue())
    file = BytesIO()
    np.savez(file, x_train=pixels[..., None] / 255, y_train=classes, x_test=pixels[..., None] / 255, y_test=classes)
    return [*out, b"n" + file.getvalue(), b"i" + idx(pixels), b"i" + gzip.compress(idx(pixels), mtime=0)]


def run(data: bytes) -> None:
    """Read images, classes and their count."""
    if data[:1] == b"i":
        put("idx/train-labels-idx1-ubyte", idx(np.array([0, 1, 0], dtype=np.uint8)))
        suffix = ".gz" if data[1:3] == b"\x1f\x8b" else ""
        for other in ("", ".gz"):
            (put(f"idx/train-images-idx3-ubyte{other}", b"")).unlink()
        path = put(f"idx/train-images-idx3-ubyte{suffix}", data[1:]).parent
    else:
        path = put("images.npz", data[1:])
    read_arrays(path, "train")
    read_classes(path)
    count_arrays(path)
