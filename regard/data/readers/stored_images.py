"""Many image files as one array of bytes: in memory, in a file that is read batch by batch, or decoded on access.

Threads decode, since Pillow releases the interpreter's lock. A file of decoded images lies in the cache folder
(REGARD_CACHE, or ~/.cache/regard) and is found again by the names, sizes and times of the images: by a resumed run, an
evaluation, or another run.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.cache import cache_folder, clear
from regard.data.notices import notify
from regard.data.readers.image_lists import ImageFile
from regard.data.readers.preprocessing import Preprocessing
from regard.files import sync

CHUNK = 256
"""Images that are decoded before they are written."""
NONE = np.empty(0, dtype=np.uint8)
"""No images: an empty part of an array would hold the whole of it."""
DAMAGED = 0.1
"""Largest share of files that may be skipped; with more, something else is wrong."""
SPARE = 0.5
"""Largest share of the free space of the disk that decoded images may take."""


@dataclass(frozen=True, eq=False)
class DiskImages:
    """Images of one size on disk, indexed like an array of bytes (number, rows, columns, channels)."""

    read: Callable[[np.ndarray], np.ndarray]
    """The images of these numbers."""
    numbers: np.ndarray
    size: tuple[int, int, int]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the array that all images together would be."""
        return len(self.numbers), *self.size

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> np.ndarray:
        numbers = self.numbers[index]
        return self.read(numbers) if np.ndim(numbers) else self.read(numbers[None])[0]

    def take(self, index: Any) -> "DiskImages":
        """The images that a NumPy index selects; they stay on disk."""
        return DiskImages(self.read, self.numbers[index], self.size)


Pixels = np.ndarray | DiskImages
"""Images as bytes (number, rows, columns, channels), in memory or on disk."""


def chosen(pixels: Pixels, index: Any) -> Pixels:
    """The images that a NumPy index selects: a copy in memory, or those on disk."""
    return pixels.take(index) if isinstance(pixels, DiskImages) else pixels[index]


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Images of a list of files, and which of the files they are: damaged ones are skipped."""

    pixels: Pixels
    kept: np.ndarray
    """Indices of the files."""
    ratios: np.ndarray
    """Columns of each original by its rows."""


def decode_files(
    files: Sequence[ImageFile], preprocessing: Preprocessing, source: str, *, memory: float = 1.0,
    strict: bool = False, reduced: bool = False,
) -> Decoded:  # fmt: skip
    """The images of a list, in memory if they take at most so many GiB, else on disk; with `reduced`, a JPEG is decoded
    at the least scale that has enough pixels."""
    assert preprocessing.target is not None
    size = (*preprocessing.target, preprocessing.channels)
    needed, decoder = len(files) * int(np.prod(size)), Decoder(files, preprocessing, reduced)
    if needed <= memory * 2**30:
        pixels, parts, filled = np.empty((len(files), *size), dtype=np.uint8), list[Decoded](), 0
        for part in decoder.all(source, strict):
            pixels[filled : filled + len(part.kept)] = part.pixels[:]
            filled += len(part.kept)
            parts.append(replace(part, pixels=NONE))
        return Decoded(pixels[:filled], *(np.concatenate(rows) for rows in indices_of(parts)))
    folder = cache_folder()
    path = folder / f"{fingerprint(files, preprocessing, reduced)}.images"
    if not is_complete(path):
        folder.mkdir(parents=True, exist_ok=True)
        clear(folder)
        if needed > SPARE * shutil.disk_usage(folder).free:
            notify(f"{source}: {len(files):,} images are decoded anew in every epoch: {folder} has no room for them")
            indices = indices_of([replace(part, pixels=NONE) for part in decoder.all(source, strict)])
            kept, ratios = (np.concatenate(rows) for rows in indices)
            return Decoded(DiskImages(decoder, kept, size), kept, ratios)
        write_decoded(path, decoder.all(source, strict))
        notify(
            f"{source}: {needed / 2**30:.1f} GiB of decoded images lie in {path}, more than --data.memory {memory:g}"
        )
    else:
        missing = np.setdiff1d(np.arange(len(files)), read_index(path)[0])
        if strict and len(missing):
            files[int(missing[0])].read()  # raises its error
        skipped_notice(source, len(missing), "")
    path.touch()
    kept, ratios = read_index(path)
    return Decoded(DiskImages(ImageReader(path, size), np.arange(len(kept)), size), kept, ratios)


class Decoder:
    """Decodes image files by threads; called with numbers, it returns these images as bytes."""

    def __init__(self, files: Sequence[ImageFile], preprocessing: Preprocessing, reduced: bool) -> None:
        self.files, self.preprocessing, self.reduced = files, preprocessing, reduced
        assert preprocessing.target is not None
        self.size = (*preprocessing.target, preprocessing.channels)

    def decode(self, number: int) -> tuple[np.ndarray, float] | ValueError:
        """Decode an image; return its pixels and its width divided by its height, or the error of a damaged file."""
        file = self.files[number]
        try:
            image = file.read(self.preprocessing.target if self.reduced else None)
            return self.preprocessing.fit(image), image.size[0] / image.size[1]
        except ValueError as error:
            if not file.path.is_file():  # which is no damage, but a mistake in a table
                raise
            return error

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        """Images decoded now; the error of a file that was damaged in the meantime."""
        out = np.empty((len(numbers), *self.size), dtype=np.uint8)
        with ThreadPoolExecutor(workers()) as pool:
            for row, result in zip(out, pool.map(self.decode, numbers.tolist()), strict=True):
                if isinstance(result, ValueError):
                    raise result
                row[:] = result[0]
        return out

    def all(self, source: str, strict: bool) -> Iterator[Decoded]:
        """All images, chunk by chunk; damaged files are skipped and counted."""
        first: ValueError | None = None
        skipped, started, count = 0, time.monotonic(), len(self.files)
        with ThreadPoolExecutor(workers()) as pool:
            for begin in range(0, count, CHUNK):
                numbers = range(begin, min(begin + CHUNK, count))
                results = list(pool.map(self.decode, numbers))
                errors = [result for result in results if isinstance(result, ValueError)]
                first, skipped = first or next(iter(errors), None), skipped + len(errors)
                if first is not None and (strict or skipped > max(1, DAMAGED * count)):
                    raise first
                good = [(n, r) for n, r in zip(numbers, results, strict=True) if not isinstance(r, ValueError)]
                pixels = np.stack([r[0] for _, r in good]) if good else np.empty((0, *self.size), dtype=np.uint8)
                yield Decoded(pixels, np.array([n for n, _ in good], dtype=np.int64), np.array([r[1] for _, r in good]))
                if (seconds := time.monotonic() - started) > 2:
                    left = seconds / (numbers[-1] + 1) * (count - numbers[-1] - 1)
                    notify(f"{source}: read {numbers[-1] + 1:,} of {count:,} images, {left:.0f} s left", passing=True)
        skipped_notice(source, skipped, str(first))


def skipped_notice(source: str, count: int, first: str) -> None:
    """Say in one line how many damaged files were skipped."""
    if count:
        files = "1 damaged file is" if count == 1 else f"{count:,} damaged files are"
        notify(f"{source}: {files} skipped{f' ({first})' if first else ''}; --data.strict stops instead")


class ImageReader:
    """Reads images from a file of bytes, by their numbers; little of it is ever in memory."""

    def __init__(self, path: Path, size: tuple[int, int, int]) -> None:
        self.path, self.size = path, size

    def __call__(self, numbers: np.ndarray) -> np.ndarray:
        out = np.empty((len(numbers), *self.size), dtype=np.uint8)
        length = int(np.prod(self.size))
        with self.path.open("rb", buffering=0) as file:
            for i in np.argsort(numbers, kind="stable"):  # forwards through the file
                file.seek(int(numbers[i]) * length)
                if file.readinto(out[i].reshape(-1).data) != length:
                    raise ValueError(f"{self.path} is cut short; delete it, it is made again from the images")
        return out


def workers() -> int:
    """Threads that decode: as many as compute."""
    return max(1, torch.get_num_threads())


def fingerprint(files: Sequence[ImageFile], preprocessing: Preprocessing, reduced: bool) -> str:
    """A name for these files, as they are now, decoded in this way."""
    digest = hashlib.sha256(f"{preprocessing} {reduced}".encode())
    for file in files:
        try:
            stat = file.path.stat()
        except OSError:
            file.read()  # raises an error that names it
            raise
        digest.update(
            f"{file.path.absolute()}\0{getattr(file, 'member', '')}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode()
        )
    return digest.hexdigest()[:32]


def is_complete(path: Path) -> bool:
    """Whether a file of decoded images and its index are there; the index is written last."""
    return path.is_file() and path.with_suffix(".npz").is_file()


def write_decoded(path: Path, parts: Iterator[Decoded]) -> None:
    """Write decoded images and their index; after a crash at any moment both are complete or not found."""
    draft = path.with_suffix(f".draft-{os.getpid()}")
    written: list[Decoded] = []
    try:
        with draft.open("wb") as file:
            for part in parts:
                file.write(np.ascontiguousarray(part.pixels[:]).data)
                written.append(replace(part, pixels=NONE))
        sync(draft)
        draft.replace(path)
        with draft.open("wb") as file:
            kept, ratios = (np.concatenate(rows) for rows in indices_of(written))
            np.savez(file, kept=kept, ratios=ratios)
        sync(draft)
        draft.replace(path.with_suffix(".npz"))
    except OSError as error:
        raise OSError(
            f"could not write {path}: {error.strerror or error}; free some space, or set REGARD_CACHE"
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def indices_of(parts: Sequence[Decoded]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The indices of the files that each part holds, and their ratios."""
    return [part.kept for part in parts], [part.ratios for part in parts]


def read_index(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Which files a file of decoded images holds, and their ratios."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
        return stored["kept"], stored["ratios"]
