"""Images as arrays: the parts of an .npz or of IDX files, as bytes with the channels last."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.readers.idx import IDX_SETS, idx_file, is_idx, read_idx
from regard.data.readers.image_files import FRACTIONS
from regard.data.readers.packed import most_unpacked
from regard.files import check_regular

TRAIN, TEST = (("x", "y"), ("x_train", "y_train")), (("x_test", "y_test"),)
SETS = {"train": TRAIN, "valid": TEST + TRAIN, "test": TEST + TRAIN}
"""Names of the arrays of each part; a file that is named for validation or test may be a training set."""


def is_arrays(source: str) -> bool:
    """Whether a source is an .npz file, or a file or folder of IDX."""
    return Path(source).suffix.lower() == ".npz" or is_idx(Path(source))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The arrays of an .npz, decoded on access, or of IDX files; errors name the file."""
    if is_idx(path):
        yield IdxArrays(path)
        return
    try:
        check_packed_size(path)
        with np.load(path, allow_pickle=False) as stored:
            yield stored
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; give an .npz of x and y") from None
    except (OSError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:  # also: encrypted
        raise ValueError(f"{path} cannot be read as .npz ({error}); save it again with numpy.savez") from None
    except ValueError as error:
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def check_packed_size(path: Path) -> None:
    """Raise an error if the arrays of an .npz are far larger than the file, or than what fits into memory."""
    size = check_regular(path)
    if not zipfile.is_zipfile(path):
        raise zipfile.BadZipFile("not a zip file, or cut short")
    with zipfile.ZipFile(path) as whole:
        unpacked = sum(member.file_size for member in whole.infolist())
    if unpacked > (limit := most_unpacked(size)):
        fact = f"{size:,} bytes unpack to {unpacked:,}, at most {limit:,} are read"
        raise ValueError(f"{path}: {fact}; if that is right, save it with numpy.savez, which does not compress")


class IdxArrays:
    """The IDX files of a folder by the names that the arrays of an .npz have; a single file is x, its labels y."""

    def __init__(self, path: Path) -> None:
        self.paths = {}
        for names, stems in IDX_SETS.items():
            for name, stem in zip(names, stems, strict=True):
                file = idx_file(path, stem)
                if file is not None:
                    self.paths[name] = file
        self.files = list(self.paths)

    def __getitem__(self, name: str) -> np.ndarray:
        return read_idx(self.paths[name])


def has_test(source: str) -> bool:
    """Whether a source is an .npz, or a folder of IDX files, with a test set of its own."""
    if not is_arrays(source):
        return False
    with opened(Path(source)) as stored:
        return TEST[0][0] in stored.files


def read_arrays(path: Path, part: str, *, labelled: bool = True) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The images of a part of an .npz (bytes, channels last), their classes, and the names of the classes."""
    with opened(path) as stored:
        x, y = names_in(stored.files, part, labelled)
        pixels = as_bytes(stored[x])
        if not labelled:
            return pixels, np.zeros(len(pixels), dtype=np.int64), ("",)
        return pixels, *as_classes(stored[y], stored_names(stored), len(pixels))


def read_classes(path: Path) -> tuple[str, ...]:
    """The names of the classes for training."""
    with opened(path) as stored:
        y = stored[names_in(stored.files, "train", True)[1]]
        return as_classes(y, stored_names(stored), y.size)[1]


def count_arrays(path: Path) -> int:
    """The number of images for training."""
    with opened(path) as stored:
        return stored[names_in(stored.files, "train", True)[1]].size


def names_in(files: list[str], part: str, labelled: bool) -> tuple[str, str]:
    """The names of the arrays x and y of a part."""
    names = next((pair for pair in SETS[part] if pair[0] in files), None)
    if names is None or labelled and names[1] not in files:
        wanted = "arrays x and y" if labelled else "array x"
        raise ValueError(f"no {wanted}, only {', '.join(files) or 'nothing'}; save them by these names")
    return names


def stored_names(stored: Any) -> tuple[str, ...]:
    """The names of the classes, if the file has them."""
    return tuple(map(str, np.ravel(stored["labels"]))) if "labels" in stored.files else ()


def as_bytes(x: Any) -> np.ndarray:
    """Arrays N Y X, N Y X C or N C Y X as bytes N Y X C; values are 0 to 255 or, where none is larger, 0 to 1."""
    if not isinstance(x, np.ndarray):
        raise ValueError("x is no array")
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3):
        x = np.moveaxis(x, 1, -1)
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or not x.size:
        raise ValueError(f"x has shape {x.shape}; images are (number, rows, columns) or (…, 1 or 3 channels)")
    if x.dtype.kind not in "biuf" or not (x.min() >= 0 and x.max() <= 255):  # nor nan
        raise ValueError("x holds other numbers than 0 … 255 or fractions 0 … 1; scale it")
    if x.dtype.kind != "f":
        x = x.astype(np.uint8, copy=False)
        return x * np.uint8(255) if x.max() <= 1 else x
    return (x.clip(0, 1) * 255 if x.max() < FRACTIONS else x).round().astype(np.uint8)


def as_classes(y: np.ndarray, names: tuple[str, ...], count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class indices and the names of the classes, from labels that are whole numbers or words."""
    y = y.reshape(len(y), -1)[:, 0] if y.ndim and y.size == len(y) else y
    if y.ndim != 1 or len(y) != count or y.dtype.kind not in "iuU":
        raise ValueError(
            f"y has shape {y.shape} of {y.dtype}; give one whole number or word for each of {count} images"
        )
    if names and y.dtype.kind != "U":
        if not 0 <= y.min() <= y.max() < len(names):
            raise ValueError(f"y goes from {y.min()} to {y.max()}, but there are {len(names)} labels")
        return y.astype(np.int64), names
    values, indices = np.unique(y, return_inverse=True)
    return indices.astype(np.int64), tuple(map(str, values.tolist()))
