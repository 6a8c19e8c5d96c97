"""Overviews of image files with labels, captions or boxes, shown by `regard data` and before training."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.readers.arrays import has_test, is_arrays, read_arrays
from regard.data.readers.idx import is_idx
from regard.data.readers.image_lists import ImageFile, PackedImage, list_captioned, list_labelled
from regard.data.readers.shards import is_shards
from regard.data.sets.overview import SHOWN, Overview, counted, label_notes, shared_note, shortened, unseen_note


def format_of(source: str) -> str:
    """The format of a source of images in words."""
    path = Path(source)
    if is_arrays(source):
        return "IDX" if is_idx(path) else "arrays"
    if is_shards(path):
        return "tar files"
    return "a folder for each class" if path.is_dir() else f"a table, {path.suffix}"


def name_of(file: ImageFile) -> str:
    """The path of an image; of one in a tar file, with its name there."""
    return file.where.removesuffix(": ") if isinstance(file, PackedImage) else str(file.path)


def label_overviews(data: Any) -> Iterator[Overview]:
    """Yield an overview of the training images, and of those for validation and testing. Image files are listed, not
    decoded."""
    parts: dict[str, str] = dict(data.parts)
    if "test" not in parts and has_test(parts["train"]):
        parts["test"] = parts["train"]
    train: tuple[Mapping[str, int], list[Any]] | None = None
    for part, source in parts.items():
        paths: list[Path] = []
        if is_arrays(source):
            _, indices, names = read_arrays(Path(source), part)
            labels, shown = counted(names[i] for i in indices.tolist()), []
        else:
            files = list_labelled(source)
            labels = counted(file.label for file in files)
            if len(parts) > 1 and not is_shards(Path(source)):
                paths = [file.path.resolve() for file in files]
            some = files[:: max(1, len(files) // SHOWN)][:SHOWN]
            shown = [f"{name_of(file)} → {file.label}" for file in some]
        count = sum(labels.values())
        notes = label_notes(labels, count, "images") if train is None else unseen_note(train[0], labels, part)
        if train is None:
            train = labels, paths
        else:
            notes += shared_note(train[1], paths, part)
            shown = []
        yield Overview(
            source=source, part=part, count=count, unit="images", about=format_of(source), labels=labels,
            examples=shown, notes=notes,
        )  # fmt: skip


def caption_overviews(data: Any) -> Iterator[Overview]:
    """An overview of each part of images with captions."""
    train: list[Any] | None = None
    for part, source in {"train": data.images, "valid": data.valid, "test": data.test}.items():
        if source is None:
            continue
        files, captions = list_captioned(source)
        paths = [] if is_shards(Path(source)) else [file.path.resolve() for file in files]
        total = sum(map(len, captions))
        notes = [] if train is None else shared_note(train, paths, part)
        pairs = list(zip(files, captions, strict=True))[:SHOWN] if train is None else []
        train = paths if train is None else train
        yield Overview(
            source=source, part=part, count=len(files), unit="images", about=f"{total:,} captions",
            examples=[f"{name_of(file)} → {shortened(texts[0])}" for file, texts in pairs], notes=notes,
        )  # fmt: skip


def box_overviews(data: Any) -> Iterator[Overview]:
    """An overview of each part of images with boxes."""
    train: Mapping[str, int] | None = None
    for part, source in data.parts.items():
        files, _ = data.annotated(source)
        labels = counted(label for file in files for label, _ in file.objects)
        empty = sum(not file.objects for file in files)
        notes = [f"{empty:,} images have no object"] if empty else []
        if train is None:
            notes += [note for note in label_notes(labels, sum(labels.values()), "objects") if len(labels) > 1]
        else:
            notes += unseen_note(train, labels, part)
        first = [file for file in files if file.objects][:SHOWN] if train is None else []
        train = labels if train is None else train
        shown = []
        for file in first:
            label, box = file.objects[0]
            more = f" and {len(file.objects) - 1} more" if len(file.objects) > 1 else ""
            shown.append(f"{file.path} → {label} at {', '.join(f'{side:.0f}' for side in box)}{more}")
        about = f"{data.layout}, {sum(labels.values()):,} boxes"
        yield Overview(
            source=source, part=part, count=len(files), unit="images", about=about, labels=labels,
            examples=shown, notes=notes,
        )  # fmt: skip
