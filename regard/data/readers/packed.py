"""Files packed by gzip, bzip2, xz or Zstandard: unpacked in memory up to a limit, and written."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 31
"""Most bytes that a packed file may hold."""
HARMLESS = 1 << 26
"""Bytes up to which the ratio does not matter."""
MOST_RATIO = 300
"""Most bytes for each packed byte; texts and images stay below 100, files made to exhaust the memory reach 1000."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
CUT_SHORT = (OSError, EOFError, lzma.LZMAError, zlib.error)


def plain_name(path: str | Path) -> Path:
    """The path without the suffix of a packed file: train.csv for train.csv.gz."""
    path = Path(path)
    return path.with_suffix("") if path.suffix.lower() in PACKED else path


def kind_of(path: str | Path) -> str:
    """The suffix of the file inside, in lower case: ".csv" for train.CSV.gz."""
    return plain_name(path).suffix.lower()


def most_unpacked(size: int) -> int:
    """Most bytes that a packed file of this size may hold; a file that is not compressed holds its own size."""
    return max(size, min(MOST_BYTES, max(HARMLESS, MOST_RATIO * size)))


def unpack(raw: bytes, path: Path) -> bytes:
    """The bytes of a file as they were before it was packed; files with other suffixes are returned as they are."""
    suffix = path.suffix.lower()
    if suffix not in PACKED:
        return raw
    limit = most_unpacked(len(raw))
    try:
        with open_packed(suffix, io.BytesIO(raw), path) as file:
            content = file.read(limit + 1)
    except CUT_SHORT as error:
        raise ValueError(f"{path} is cut short or not packed as {suffix} ({error}); fetch it again") from None
    if len(content) > limit:
        raise ValueError(
            f"{path}: {len(raw):,} bytes unpack to more than {limit:,}; if that is right, unpack it yourself and name "
            f"{plain_name(path).name}"
        )
    return content


def open_packed(suffix: str, file: io.BytesIO, path: Path) -> Any:
    """A packed file opened for reading."""
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=file)
    if suffix == ".bz2":
        return bz2.BZ2File(file)
    if suffix == ".xz":
        return lzma.LZMAFile(file)
    zstandard = zstandard_for(path)

    class Damaged(io.BufferedReader):
        """A reader that reports damaged files as other packers do."""

        def read(self, size: int | None = -1) -> bytes:
            try:
                return super().read(size)
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None

    return Damaged(zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file, read_across_frames=True))


@contextmanager
def create(path: Path) -> Iterator[Any]:
    """Context manager: a new file of bytes, packed as its suffix says; the same content always has the same bytes."""
    suffix = path.suffix.lower()
    with path.open("wb") as file:
        packers: dict[str, Callable[[], Any]] = {
            ".gz": lambda: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
            ".bz2": lambda: bz2.BZ2File(file, "wb"),
            ".xz": lambda: lzma.LZMAFile(file, "wb"),
            ".zst": lambda: zstandard_for(path).ZstdCompressor().stream_writer(file, closefd=False),
        }
        with packers.get(suffix, lambda: nullcontext(file))() as packed:
            yield packed


def check_packer(path: Path) -> None:
    """Raise an error if the library that packs such a file is missing: better before the work than after it."""
    if path.suffix.lower() == ".zst":
        zstandard_for(path)


def zstandard_for(path: Path) -> Any:
    """The library for .zst files."""
    try:
        import zstandard
    except ImportError:
        raise ImportError(f"{path}: .zst files need an extra: pip install 'regard[tables]'") from None
    return zstandard
