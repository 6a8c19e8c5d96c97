"""Folders with parts for training, validation and test: sub-folders, files, or a dataset that was saved so."""

from collections.abc import Collection
from pathlib import Path

from regard.data.readers.hub_sets import HUB
from regard.data.readers.packed import plain_name
from regard.data.readers.tables import is_table, saved_set

PARTS = {
    "train": ("train", "training"),
    "valid": ("valid", "val", "validation", "dev", "eval"),
    "test": ("test", "testing"),
}
"""The names that each part goes by."""
WORDS = (".conll", ".bio", ".iob", ".iob2", ".txt", ".ft")


def find_parts(source: str, *, is_file: bool = False) -> dict[str, str]:
    """The path of each part of a folder; {"train": source} where it is no folder of parts.

    With `is_file`, parts are files (train.csv, dev.csv) or the parts of a saved dataset; otherwise folders.
    """
    folder = Path(source)
    if source.startswith(HUB) or not folder.is_dir():
        return {"train": source}
    inside = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    parts: dict[str, str] = {}
    for part, names in PARTS.items():
        wanted = [path for path in inside if is_part(path, names, is_file)]
        if len(wanted) > 1:
            shown = ", ".join(path.name for path in wanted)
            raise ValueError(
                f"{folder} has {shown}: which one is for {part}? Name the files: --data.{part} {wanted[0]}"
            )
        if wanted:
            parts[part] = str(wanted[0])
    if "train" in parts:
        return parts
    if is_file and not saved_set(folder):
        raise ValueError(f"{folder}: is a directory without a train file (train.csv, train.jsonl, …); name the file")
    return {"train": source}


def is_part(path: Path, names: Collection[str], is_file: bool) -> bool:
    """Whether a path is a part by its name: a folder or, with `is_file`, a file or a saved dataset."""
    name = plain_name(path).stem.lower() if path.is_file() else path.name.lower()
    if name not in names:
        return False
    if path.is_dir():
        return bool(saved_set(path)) if is_file else any(inner.is_dir() for inner in path.iterdir())
    return is_file and (is_table(path) or plain_name(path).suffix.lower() in WORDS)
