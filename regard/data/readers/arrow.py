"""Tables of Apache Arrow: parquet, feather and arrow files, with the names of classes that Hugging Face stores."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.readers.packed import MOST_BYTES
from regard.files import check_regular, missing

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather")
Names = dict[str, tuple[str, ...]]
MAGIC = b"ARROW1\0\0"
"""The first bytes of an Arrow file; behind them it has the layout of an Arrow stream."""
DICTIONARY, BATCH = 2, 3
"""Types of Arrow messages that hold values."""
CELL = 64
"""Bytes that a value of a row takes beside its characters, about."""
ROWS = 1024
"""Rows that are unpacked before their size is checked, at most."""


def read_arrow(paths: list[Path]) -> tuple[list[dict[str, Any]], Names]:
    """The rows of one or more files of a table, and the class names of columns that hold class numbers.

    What the files declare to hold is checked first, over all of them, and what was unpacked after every few rows.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(
            f"{paths[0]}: parquet and arrow files need an extra: pip install 'regard[tables]' (or save it as .jsonl)"
        ) from None
    rows: list[dict[str, Any]] = []
    names: Names = {}
    declared = unpacked = 0
    path = paths[0]
    try:
        for path in paths:
            check_regular(path)
            declared += declared_bytes(path)
            check_size(path, declared)
        for path in paths:
            metadata: Any = None
            for batch in batches_of(path, max(1, min(ROWS, MOST_BYTES // max(1, declared)))):
                batch.validate(full=True)
                unpacked += batch.nbytes + CELL * batch.num_rows * (1 + batch.num_columns)
                check_size(path, unpacked)
                metadata = batch.schema.metadata
                rows += batch.to_pylist()
            names |= class_names(metadata or {})
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; {missing(path)}") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} cannot be read as {path.suffix} ({reason}); write it again") from None
    return rows, names


def is_parquet(path: Path) -> bool:
    """Whether a file is parquet, by its suffix; the others are feather, or arrow as a file or a stream."""
    return path.suffix.lower() in (".parquet", ".pq")


def declared_bytes(path: Path) -> int:
    """The memory that the rows of a file will take by its metadata, before anything is unpacked."""
    import pyarrow as pa

    if is_parquet(path):
        import pyarrow.parquet as pq

        about = pq.read_metadata(path)
        groups = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        return groups + CELL * about.num_rows * (1 + about.num_columns)
    with open_messages(path) as source:
        reader = pa.ipc.MessageReader.open_stream(source)
        return sum(unpacked_bytes(message.metadata.to_pybytes(), message.body) for message in reader)


def batches_of(path: Path, rows: int) -> Iterator[Any]:
    """The rows of a file in parts of so many; columns with a dictionary are expanded."""
    import pyarrow as pa

    if is_parquet(path):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from map(expanded, file.iter_batches(rows))
        return
    with open_messages(path) as source:
        for batch in pa.ipc.open_stream(source):
            for first in range(0, batch.num_rows, rows):
                yield expanded(batch.slice(first, rows))


def open_messages(path: Path) -> Any:
    """Open an Arrow file at its first message, which follows the magic bytes or, in a stream, is at the beginning."""
    import pyarrow as pa

    source = pa.memory_map(str(path))
    begin = source.read(len(MAGIC))
    if begin.startswith(b"FEA1"):
        raise pa.ArrowInvalid("feather of version 1")
    source.seek(len(MAGIC) if begin == MAGIC else 0)
    return source


def expanded(batch: Any) -> Any:
    """Return a batch with dictionary-encoded columns decoded, so that its size is what its rows take in memory."""
    import pyarrow as pa

    columns = [column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch]
    for name, column in zip(batch.schema.names, columns, strict=True):
        if repeats(column.type):
            raise pa.ArrowInvalid(f"the column {name!r} is {column.type}, which is not read")
    return pa.record_batch(columns, names=batch.schema.names, metadata=batch.schema.metadata)


def repeats(kind: Any) -> bool:
    """Whether a type stores repeated values once, so that its rows can take more memory than its buffers."""
    import pyarrow as pa

    tests = (pa.types.is_dictionary, pa.types.is_run_end_encoded, pa.types.is_list_view, pa.types.is_large_list_view,
             pa.types.is_string_view, pa.types.is_binary_view)  # fmt: skip
    return any(test(kind) for test in tests) or any(repeats(kind.field(i).type) for i in range(kind.num_fields))


def unpacked_bytes(metadata: bytes, body: Any) -> int:
    """The bytes that the buffers of a message of arrow unpack to, by the lengths in front of them.

    The metadata are a flatbuffer, https://github.com/apache/arrow/blob/main/format/Message.fbs: a table begins with the
    distance to the list of its fields' places.
    """

    def field(table: int, number: int) -> int:
        """Return the offset of a field of a flatbuffer table; 0 where the field is absent."""
        places = table - struct.unpack_from("<i", metadata, table)[0]
        inside = 4 + 2 * number < struct.unpack_from("<H", metadata, places)[0]
        place = struct.unpack_from("<H", metadata, places + 4 + 2 * number)[0] if inside else 0
        return table + place if place else 0

    def target(place: int) -> int:
        return place + struct.unpack_from("<I", metadata, place)[0]

    message = target(0)
    kind = struct.unpack_from("<B", metadata, field(message, 1))[0] if field(message, 1) else 0
    if kind not in (DICTIONARY, BATCH) or body is None:
        return 0
    batch = target(field(message, 2))
    batch = target(field(batch, 1)) if kind == DICTIONARY else batch
    length = struct.unpack_from("<q", metadata, field(batch, 0))[0] if field(batch, 0) else 0
    size = CELL * max(0, length)
    if not field(batch, 3):  # no compression
        return size + body.size
    buffers, view = target(field(batch, 2)), memoryview(body)
    for number in range(struct.unpack_from("<I", metadata, buffers)[0]):
        start, stored = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * number)
        if stored:
            unpacked = struct.unpack_from("<q", view, start)[0]
            size += stored if unpacked < 0 else unpacked  # -1: stored as it is
    return size


def check_size(path: Path, size: int) -> None:
    """Raise an error where a table would take too much memory."""
    if size > MOST_BYTES:
        raise ValueError(
            f"{path}: its rows take {size / 2**30:.1f} GiB or more, at most {MOST_BYTES >> 30} are read; split it"
        )


def class_names(metadata: dict[bytes, bytes]) -> Names:
    """The names of classes in the features that `datasets` stores in the schema of a table."""
    try:
        return names_in(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def names_in(features: Any) -> Names:
    """The names of the classes of each column, from the features of a dataset."""
    names: Names = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        while isinstance(feature, dict) and "names" not in feature and isinstance(feature.get("feature"), dict):
            feature = feature["feature"]  # a sequence of classes
        if isinstance(feature, dict) and isinstance(feature.get("names"), list):
            names[column] = tuple(map(str, feature["names"]))
    return names
