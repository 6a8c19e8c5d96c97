"""The data config that a file or a folder of the user's is for, by what it holds or for a task that is named."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import nearest, override
from regard.data.readers.arrays import is_arrays
from regard.data.readers.coco_captions import holds_captions
from regard.data.readers.columns import cell_of, columns_in, header_like, names_in
from regard.data.readers.examples import KNOWN
from regard.data.readers.hub_sets import HUB
from regard.data.readers.image_files import is_image
from regard.data.readers.image_tables import columns_of, lists_images, open_table
from regard.data.readers.packed import kind_of
from regard.data.readers.parts import find_parts
from regard.data.readers.shards import is_shards
from regard.data.readers.tables import is_table, read_table, saved_set
from regard.data.readers.text_files import as_text, read_bytes
from regard.data.sets.base import Data
from regard.data.sets.boxed_images import BoxesConfig
from regard.data.sets.captioned_images import CaptionsConfig
from regard.data.sets.labelled_images import ImagesConfig
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.overview import SHOWN, shortened
from regard.data.sets.running_text import TextConfig
from regard.data.sets.text_pairs import PairsConfig
from regard.files import missing
from regard.registry import tasks

TEXT_TASKS = ("classify", "tag", "answer", "embed", "instruct")
KINDS = (*TEXT_TASKS, "translate", "text", "images", "caption", "detect")
"""Tasks that data may suit; `images` are labelled ones, `text` is running text. Registered tasks come on top."""
BY_NAMES = (
    ("tag", ("tokens", "ner_tags")), ("tag", ("text", "entities")), ("tag", ("text", "spans")),
    ("answer", ("question", "context")), ("answer", ("question", "passage")),
    ("embed", ("sentence1", "sentence2", "score")), ("embed", ("a", "b", "score")),
    ("instruct", ("prompt",)), ("instruct", ("instruction",)), ("instruct", ("messages",)),
    ("translate", ("translation",)), ("translate", ("source", "target")),
)  # fmt: skip
"""Tasks by the names of columns that only their tables have; otherwise a table is for `classify`."""


def recognise(source: str, task: str | None = None, fields: Mapping[str, Any] | None = None) -> tuple[str, Data]:
    """Return the task that a file or folder suits, and the config that reads it, with `fields` overridden."""
    if task is not None and task not in KINDS and config_of(task) is None:
        known = dict.fromkeys((*KINDS, *(name for name in tasks if config_of(name))))
        raise ValueError(f"unknown task {task!r}; {nearest(task, known)}")
    if not source.startswith(HUB) and not Path(source).exists():
        raise ValueError(f"no such file or folder: {source}; {missing(Path(source))}")
    kind = task or claimed(source) or kind_of_data(source)
    config: Data
    if kind in TEXT_TASKS:
        config = ExamplesConfig(task=kind, train=source)  # type: ignore[arg-type]
    elif kind == "translate":
        config = PairsConfig(pairs=source)
    elif kind == "text":
        config = TextConfig(text=(source,))
    elif kind == "caption":
        config = CaptionsConfig(images=source)
    elif kind == "detect":
        config = override(BoxesConfig(), {boxes_in(source): source}, under="data.")
    elif kind == "images":
        config = ImagesConfig(images=source)
    else:
        own = config_of(kind)
        assert own is not None
        config = override(own(), {own.own[0]: source}, under="data.")
    return kind, override(config, dict(fields or {}), under="data.")


def config_of(task: str) -> type[Data] | None:
    """The data config of a registered task, a plugin's too, that names a file of the user's; None where none does."""
    return next((own for own in (tasks[task].data if task in tasks else ()) if getattr(own, "own", ())), None)


def claimed(source: str) -> str | None:
    """The first registered task with a data config that claims a source for itself."""
    configs = ((name, own) for name in tasks for own in tasks[name].data if issubclass(own, Data))
    return next((name for name, own in configs if own.reads(source)), None)


def kind_of_data(source: str) -> str:
    """Return the task, one of `KINDS`, that a file or folder suits by its format and contents."""
    path, suffix = Path(source), kind_of(source)
    if source.startswith(HUB):
        return table_kind(source)
    if path.is_dir():
        return folder_kind(path)
    if is_arrays(source) or is_shards(path):
        return "images"
    if suffix in (".yaml", ".yml"):
        return "detect"
    if suffix == ".json" and is_coco(path):
        return "caption" if holds_captions(path) else "detect"
    if suffix in (".conll", ".bio", ".iob", ".iob2"):
        return "tag"
    if suffix in (".txt", "", ".ft"):
        text = as_text(read_bytes(path, folder="a file", empty="text"), path)
        if text.startswith("__label__"):
            return "classify"
        return "caption" if lists_images(path) else "text"
    if is_table(path):
        return table_kind(source)
    return "classify"  # whose reader names the formats and the cure


def folder_kind(path: Path) -> str:
    """Return the task that a folder suits by the files in it."""
    if is_arrays(str(path)) or is_shards(path):
        return "images"
    if saved_set(path) or (path / "dataset_dict.json").is_file():
        return table_kind(str(path))
    inside = list(path.iterdir())
    names = {entry.name.lower() for entry in inside}
    if names & {"annotations", "imagesets", "data.yaml", "data.yml", "labels", "classes.txt"}:
        return "detect"
    if any(entry.suffix.lower() == ".xml" for entry in inside):
        return "detect"
    if any(entry.suffix.lower() == ".json" and is_coco(entry) for entry in inside):
        return "detect"
    if any(entry.is_file() and is_table(entry) for entry in inside):
        return kind_of_data(find_parts(str(path), is_file=True)["train"])
    return "images"


def boxes_in(source: str) -> str:
    """The field of the format that boxes are in: coco, voc or yolo."""
    path = Path(source)
    if path.suffix.lower() == ".json":
        return "coco"
    if path.is_file():
        return "voc" if path.suffix.lower() == ".txt" else "yolo"
    annotations = path / "Annotations"
    if any((annotations if annotations.is_dir() else path).glob("*.xml")):
        return "voc"
    return "coco" if [*path.glob("*.json"), *path.glob("annotations/*.json")] else "yolo"


def is_coco(path: Path) -> bool:
    """Whether a .json has COCO's lists."""
    try:
        stored = json.loads(as_text(read_bytes(path, folder="a file", empty="annotations"), path))
    except (ValueError, RecursionError):  # of which the reader of tables says more
        return False
    return isinstance(stored, dict) and "images" in stored and "annotations" in stored


def table_lines(source: str) -> list[str]:
    """Lines that list the columns of a table as they lie in it, each with an example; [] where it is no table."""
    try:
        table = read_table(source) if is_table(source) else None
    except ValueError:  # which the reader of examples has explained already
        return []
    if table is None or not len(table):
        return []
    names = names_in(table)
    rows = [[cell_of(row.get(name)) for name in names] for _, row in table.objects]
    about = table.about
    if table.cells is not None:
        rows = [cells for _, cells in table.cells]
        if header_like(names, rows[1:1000]) is False:
            names, about = [f"column {i}" for i in range(1, len(names) + 1)], f"{about}, without a header"
        else:
            rows, about = rows[1:], f"{about}, with a header"
    lines = [f"read: {source}, {len(rows):,} rows ({about})"]
    for name, column in zip(names, columns_in(rows), strict=False):
        values = list(dict.fromkeys(filter(None, column.cells)))
        empty = f", {column.cells.count(''):,} empty" if "" in column.cells else ""
        shown = ", ".join(map(shortened, values[:SHOWN])) + ", …" * (len(values) > SHOWN)
        lines.append(f"  {name}: {len(values):,} value{'s' * (len(values) != 1)}{empty}: {shown}")
    return lines


def table_kind(source: str) -> str:
    """Return the task that a table suits by the names of its columns."""
    known = [name for fields in KNOWN.values() for aliases in fields.values() for name in aliases]
    table = read_table(source, known)
    cells = [cell for _, row in (table.cells or [])[:2] for cell in row]
    cells += [str(value) for _, row in table.objects[:2] for value in row.values()]
    if any(map(is_image, cells)):
        names = open_table(Path(source)).cells
        header = [cell.strip().lower() for cell in names[0][1]] if names else list(table.objects[0][1])
        return "caption" if columns_of(header, "caption") and not columns_of(header, "label") else "images"
    first = table.cells[0][1] if table.cells else [name for _, row in table.objects[:1] for name in row]
    columns = {str(name).strip().lower() for name in first}
    return next((kind for kind, names_ in BY_NAMES if columns.issuperset(names_)), "classify")
