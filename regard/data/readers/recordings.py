"""Lists of audio files with what was said in them, or with their class: tables, LibriSpeech's and Common Voice's
folders, a folder of classes. Nothing is decoded yet."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.config import one_line
from regard.data.readers.audio_files import SUFFIXES, Recording, open_audio
from regard.data.readers.columns import Known, cell_of, choose_fields, named_rows
from regard.data.readers.parts import find_parts
from regard.data.readers.tables import is_table, read_table
from regard.data.readers.text_files import as_text, read_bytes

PATHS = ("path", "audio", "file", "file_name", "filename", "audio_path", "audio_filepath", "wav", "recording", "clip")
KNOWN: dict[str, Known] = {
    "text": {"path": PATHS, "text": ("text", "sentence", "transcript", "transcription", "words", "target")},
    "label": {"path": PATHS, "label": ("label", "class", "category", "target", "emotion", "command")},
}
"""Names of the columns of paths, and of texts or labels."""


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """An audio file, what was said in it or its class, and the line of the list that names it, for errors."""

    path: Path
    text: str
    where: str = ""

    def open(self) -> Recording:
        """The recording; an error names the line, too."""
        try:
            return open_audio(self.path)
        except ValueError as error:
            raise ValueError(f"{self.where}{error}") from None


def list_spoken(source: str | Path) -> list[RecordedFile]:
    """The audio files of a source with their transcripts: a table of path and text, a folder with such a table
    (train.tsv, metadata.csv), LibriSpeech's *.trans.txt, or a .txt beside each file."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}; give a table of path and text, or a folder with one")
    if path.is_file():
        return list_table(path, "text")
    table = table_in(path)
    files = list_table(table, "text") if table else [*librispeech(path)] or [*with_texts(path)]
    if not files:
        raise ValueError(
            f"{path} holds no list of what was said: a table of path and text (train.tsv, metadata.csv), LibriSpeech's "
            "*.trans.txt, or a .txt beside each audio file; add one"
        )
    return files


def list_sounds(source: str | Path) -> list[RecordedFile]:
    """The audio files of a source with their classes: a folder with a sub-folder for each class, or a table."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}; give a folder with a sub-folder a class, or a table")
    if path.is_file():
        return list_table(path, "label")
    path = Path(find_parts(str(path))["train"])
    classes = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not folder.name.startswith(".")]
    files = [RecordedFile(file, folder.name) for folder in classes for file in audio_files(folder)]
    if not files:
        table = table_in(path)
        if table is not None:
            return list_table(table, "label")
        raise ValueError(f"{path} has no sub-folders with audio files; put those of each class into a folder")
    return files


def table_in(folder: Path) -> Path | None:
    """The table of a folder that names its training files: train.tsv, or the only one there."""
    tables = [path for path in sorted(folder.iterdir()) if path.is_file() and is_table(path)]
    named = [path for path in tables if path.stem.lower() in ("train", "training", "metadata")]
    return named[0] if named else tables[0] if len(tables) == 1 else None


def list_table(path: Path, column: str) -> list[RecordedFile]:
    """The audio files of a table's rows; paths are relative to the table, or to its folder clips or wavs."""
    table = read_table(path, [name for names in KNOWN[column].values() for name in names])
    if table.cells and table.separator == "|":  # LJ Speech: id|text|normalised text
        rows = [(number, {"path": cells[0], column: cells[-1]}) for number, cells in table.cells]
    else:
        chosen = choose_fields(table, KNOWN[column], (), {})
        rows = list(named_rows(table, chosen, {}))
    files = []
    for number, row in rows:
        where = f"{path}, {table.unit} {number}: "
        name = cell_of(row.get("path")).strip()
        if not name:
            raise ValueError(f"{where}the path is empty; fill it, or leave out the line")
        if column == "label" and not cell_of(row.get(column)).strip():
            raise ValueError(f"{where}the label is empty; fill it, or leave out the line")
        files.append(RecordedFile(find(path.parent, name, where), cell_of(row.get(column)).strip(), where))
    if not files:
        raise ValueError(f"{path}: not one recording; a header alone is no data")
    return files


def find(folder: Path, name: str, where: str) -> Path:
    """The file that a table names: beside it, or in its folder clips or wavs, with its suffix or without."""
    for place in (folder, folder / "clips", folder / "wavs"):
        for suffix in ("", *(SUFFIXES if Path(name).suffix.lower() not in SUFFIXES else ())):
            if os.path.isfile(path := place / (name + suffix)):  # Path.is_file raises an error for a name too long
                return path
    raise ValueError(f"{where}no such audio file: {one_line(folder / name, 300)}; paths are relative to the table")


def librispeech(folder: Path) -> Iterator[RecordedFile]:
    """The files that *.trans.txt name, each line an identifier and its words."""
    for listed in sorted(folder.rglob("*.trans.txt")):
        lines = as_text(read_bytes(listed, folder="a file", empty="a transcript a line"), listed).splitlines()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, _, text = line.partition(" ")
            where = f"{listed}, line {number}: "
            yield RecordedFile(find(listed.parent, name, where), text.strip(), where)


def with_texts(folder: Path) -> Iterator[RecordedFile]:
    """Audio files with a .txt of the same name beside them."""
    for path in audio_files(folder):
        beside = path.with_suffix(".txt")
        if beside.is_file():
            content = as_text(
                read_bytes(beside, folder="a file", empty="what was said") if beside.stat().st_size else b"", beside
            )
            yield RecordedFile(path, " ".join(content.split()), f"{beside}: ")


def audio_files(folder: Path) -> list[Path]:
    """The audio files of a folder at any depth, without hidden ones."""
    return sorted(
        path for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )  # fmt: skip
