"""Tables of Apache Arrow: parquet, feather and arrow files, with the names of classes that Hugging Face stores."""

import json
from pathlib import Path
from typing import Any

from regard.data.readers.packed import MOST_BYTES

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather")
Names = dict[str, tuple[str, ...]]


def read_arrow(paths: list[Path]) -> tuple[list[dict[str, Any]], Names]:
    """The rows of one or more files of a table, and the names of the classes of columns that hold their numbers."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(
            f"{paths[0]}: parquet and arrow files need an extra: pip install 'regard[tables]' (or save it as .jsonl)"
        ) from None
    rows: list[dict[str, Any]] = []
    names: Names = {}
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such file; check the path")
        try:
            table = read_one(path)
            names |= class_names(table.schema.metadata or {})
            rows += table.to_pylist()
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:120]
            raise ValueError(f"{path} cannot be read as {path.suffix} ({reason}); write it again") from None
    return rows, names


def read_one(path: Path) -> Any:
    """The table of one file; .arrow is a file or, as `datasets` writes it, a stream."""
    import pyarrow as pa

    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            check_size(path, sum(file.metadata.row_group(group).total_byte_size for group in groups))
            return file.read()
    with pa.memory_map(str(path)) as source:
        begin = source.read(6)
        if begin.startswith(b"FEA1"):
            raise pa.ArrowInvalid("feather of version 1")
        source.seek(0)
        reader = pa.ipc.open_file if begin == b"ARROW1" else pa.ipc.open_stream
        table = reader(source).read_all()
        check_size(path, table.nbytes)
        return table


def check_size(path: Path, size: int) -> None:
    """Raise an error where a table would take too much memory."""
    if size > MOST_BYTES:
        raise ValueError(f"{path} unpacks to {size / 2**30:.1f} GiB, at most {MOST_BYTES >> 30} are read; split it")


def class_names(metadata: dict[bytes, bytes]) -> Names:
    """The names of classes in the features that `datasets` stores in the schema of a table."""
    try:
        return names_in(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError):
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
