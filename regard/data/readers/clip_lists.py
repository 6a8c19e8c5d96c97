"""Lists of clips with their class: a folder of classes, or a table. Nothing is decoded yet."""

import os
from dataclasses import dataclass
from pathlib import Path

from regard.config import one_line
from regard.data.readers.clips import SUFFIXES, Clip, frame_files, open_clip
from regard.data.readers.columns import Known, cell_of, choose_fields, named_rows
from regard.data.readers.parts import find_parts
from regard.data.readers.tables import read_table

KNOWN: Known = {
    "path": ("path", "video", "clip", "file", "file_name", "filename", "video_path", "video_name", "name"),
    "label": ("label", "class", "category", "target", "action", "activity"),
}
"""Names of the columns of paths and labels."""
KINDS = "a folder with a sub-folder a class, or a table of path and label"


@dataclass(frozen=True, slots=True)
class ClipFile:
    """A video file, or a folder of frames, its class, and the line of the table that names it, for errors."""

    path: Path
    label: str = ""
    where: str = ""

    def open(self) -> Clip:
        """The clip; an error names the line, too."""
        try:
            return open_clip(self.path)
        except ValueError as error:
            raise ValueError(f"{self.where}{error}") from None


def list_clips(source: str | Path, labelled: bool = True) -> list[ClipFile]:
    """The clips of a source: of a folder with a sub-folder for each class, or of a table. Without labels, all clips
    below a folder."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}; give {KINDS}")
    if path.is_file():
        return list_table(path, labelled)
    path = Path(find_parts(str(path))["train"])
    if not labelled:
        files = [ClipFile(each) for each in clips_below(path)]
        if not files:
            raise ValueError(f"{path} holds no clips ({', '.join(SUFFIXES)}) and no folders of frames; fill it")
        return files
    classes = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and not folder.name.startswith(".")]
    files = [ClipFile(each, folder.name) for folder in classes for each in clips_below(folder)]
    if not files:
        raise ValueError(f"{path} has no sub-folders with clips; put those of each class into a folder with its name")
    return files


def clips_below(folder: Path) -> list[Path]:
    """The video files, and the folders of frames, below a folder at any depth, without hidden ones."""
    found: list[Path] = []
    for each in sorted(folder.iterdir()):
        if each.name.startswith("."):
            continue
        if each.is_dir():
            found += [each] if frame_files(each) else clips_below(each)
        elif each.suffix.lower() in SUFFIXES:
            found.append(each)
    return found


def list_table(path: Path, labelled: bool) -> list[ClipFile]:
    """The clips of a table's rows; paths are relative to the table, or to its folder clips or videos."""
    table = read_table(path, [name for names in KNOWN.values() for name in names])
    known = KNOWN if labelled else {"path": KNOWN["path"]}
    files = []
    for number, row in named_rows(table, choose_fields(table, known, (), {}), {}):
        where = f"{path}, {table.unit} {number}: "
        for column in known:
            if not cell_of(row.get(column)).strip():
                raise ValueError(f"{where}the {column} is empty; fill it, or leave out the line")
        label = cell_of(row.get("label")).strip() if labelled else ""
        files.append(ClipFile(find(path.parent, cell_of(row.get("path")).strip(), where), label, where))
    if not files:
        raise ValueError(f"{path}: not one clip; a header alone is no data")
    return files


def find(folder: Path, name: str, where: str) -> Path:
    """The file, or folder of frames, that a table names: beside it, or in its folder clips or videos, with its suffix
    or without."""
    for place in (folder, folder / "clips", folder / "videos"):
        for suffix in ("", *(SUFFIXES if Path(name).suffix.lower() not in SUFFIXES else ())):
            if os.path.exists(path := place / (name + suffix)):
                return path
    raise ValueError(f"{where}no such clip: {one_line(folder / name, 300)}; paths are relative to the table")
