"""Pictures as arrays: the parts of an .npz, as bytes with the channels last."""

import zipfile
from pathlib import Path

import numpy as np

SETS = {"train": (("x", "y"), ("x_train", "y_train")), "test": (("x_test", "y_test"),)}
"""What arrays in an .npz may be called."""


def is_arrays(source: str) -> bool:
    return Path(source).suffix.lower() == ".npz"


def read_arrays(
    path: Path, part: str, *, labelled: bool = True
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]] | None:
    """Pictures, labels and names of an .npz, as bytes with the channels last; None without this part."""
    if not path.is_file():
        raise ValueError(f"no such file: {path}; give an .npz of x and y")
    try:
        with np.load(path, allow_pickle=False) as stored:
            names = next((pair for pair in SETS[part] if pair[0] in stored.files), None)
            if names is None and part == "test":
                return None
            if names is not None and not labelled:
                x = as_bytes(stored[names[0]])
                return x, np.zeros(len(x), dtype=np.int64), ("",)
            if names is None or names[1] not in stored.files:
                wanted = "arrays x and y" if labelled else "array x"
                raise ValueError(f"no {wanted}, only {', '.join(stored.files) or 'nothing'}; save them by these names")
            x, y = (stored[name] for name in names)
            told = tuple(map(str, stored["labels"])) if "labels" in stored.files else ()
        return as_bytes(x), *as_classes(y, told, len(x))
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz ({error}); save it again with numpy.savez") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def as_bytes(x: np.ndarray) -> np.ndarray:
    """Arrays N Y X, N Y X C or N C Y X, of bytes, of numbers from 0 to 255 or of fractions from 0 to 1."""
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3):
        x = np.moveaxis(x, 1, -1)
    if x.ndim != 4 or x.shape[-1] not in (1, 3) or not x.size:
        raise ValueError(f"x has shape {x.shape}; pictures are (number, rows, columns) or (…, 1 or 3 channels)")
    if x.dtype == np.uint8:
        return x
    if not (np.issubdtype(x.dtype, np.number) and np.isfinite(x).all() and x.min() >= 0 and x.max() <= 255):
        raise ValueError("x holds other numbers than 0 … 255 or fractions 0 … 1; scale it")
    whole = np.issubdtype(x.dtype, np.integer) or x.max() > 1
    return (x if whole else x * 255).round().astype(np.uint8)


def as_classes(y: np.ndarray, told: tuple[str, ...], count: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of classes and their names, of labels that are whole numbers or words."""
    y = y.reshape(len(y), -1)[:, 0] if y.ndim and y.size == len(y) else y
    if y.ndim != 1 or len(y) != count or y.dtype.kind not in "iuU":
        raise ValueError(
            f"y has shape {y.shape} of {y.dtype}; give one whole number or word for each of {count} pictures"
        )
    if told and y.dtype.kind != "U":
        if not 0 <= y.min() <= y.max() < len(told):
            raise ValueError(f"y goes from {y.min()} to {y.max()}, but there are {len(told)} labels")
        return y.astype(np.int64), told
    values, places = np.unique(y, return_inverse=True)
    return places.astype(np.int64), tuple(map(str, values.tolist()))
