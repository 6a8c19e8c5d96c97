"""The checksums of a run's data, in data.json: by them it is noticed that a file is no longer what was learned."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.config import read_json, reading
from regard.files import write_text

CHECKSUMS = "data.json"


def save_checksums(data: Any, run: Path) -> None:
    """Store the checksums of the files that a data config names."""
    write_text(run / CHECKSUMS, json.dumps(data.checksums(), indent=2, ensure_ascii=False) + "\n")


def changed_sources(data: Any, run: Path) -> list[str]:
    """The files and folders that a data config names, that the run was trained on, and that have changed since; runs of
    older versions stored no checksums."""
    if not (run / CHECKSUMS).is_file():
        return []
    with reading(run / CHECKSUMS):
        before = {resolved(source): value for source, value in read_json(run / CHECKSUMS).items()}
    with suppress(ImportError):  # a data set of the Hub, without what reads it
        return [source for source, now in data.checksums().items() if before.get(resolved(source), now) != now]
    return []


def resolved(source: str) -> str:
    """The absolute path of a file or folder."""
    return str(Path(source).resolve())
