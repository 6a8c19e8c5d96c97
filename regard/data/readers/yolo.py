"""Boxes in the format of YOLO: a .txt beside each image, or in labels/ for images/, and the names of the classes."""

import os
import re
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image, UnidentifiedImageError

from regard.config import one_line
from regard.data.readers.annotations import AnnotatedImage, Box
from regard.data.readers.image_files import FORMATS, MOST_BYTES, list_images
from regard.data.readers.text_files import as_text, read_lines
from regard.files import check_regular, read_bytes

CONFIGS = ("data.yaml", "data.yml", "dataset.yaml")
CLASSES = ("classes.txt", "obj.names", "labels/classes.txt")
PARTS = {"train": ("train",), "valid": ("val", "valid"), "test": ("test",)}


def yolo_parts(source: str) -> dict[str, str]:
    """The sources of train, valid and test: FILE#part for what data.yaml names, or the folder as a whole."""
    config = find_config(Path(source))
    settings = {} if config is None else read_settings(config)
    if config is not None:
        keys_of = {part: key for part, keys in PARTS.items() for key in keys if settings.get(key)}
        if "train" not in keys_of:
            raise ValueError(f"{config} names no folder of images for training; add a line such as train: images/train")
        return {part: f"{config}#{keys_of[part]}" for part in PARTS if part in keys_of}
    root = Path(source)
    for inner in ("images", ""):
        folders = [(part, root / inner / key) for part, keys in PARTS.items() for key in keys]
        parts = {part: str(folder) for part, folder in folders if folder.is_dir()}
        if "train" in parts:
            return parts
    return {"train": source}


def find_config(source: Path) -> Path | None:
    """The data.yaml itself, or the one in a folder."""
    if source.suffix.lower() in (".yaml", ".yml"):
        if not source.is_file():
            raise ValueError(f"no such file: {source}; give a data.yaml, or the folder of images and labels")
        return source
    return next((source / name for name in CONFIGS if (source / name).is_file()), None)


def list_yolo(source: str, images: Path | None = None) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """All images of a source with their objects, and the names of the classes in their order."""
    file, _, part = source.partition("#")
    config = find_config(Path(file))
    if config is not None:
        settings = read_settings(config)
        names = class_names(settings, config)
        folders = [locate(config, settings, folder) for folder in as_list(settings.get(part or "train"))]
    else:
        folders = [images or Path(file)]
        if not folders[0].is_dir():
            raise ValueError(f"no such folder: {folders[0]}; give a data.yaml, or the folder of images and labels")
        names = listed_names(Path(file))
    paths = [path for folder in folders for path in list_images(folder)]
    annotated = [read_yolo(path, names) for path in paths]
    if not any(image.objects for image in annotated):
        raise ValueError(
            f"{source}: no .txt with boxes beside its {len(paths):,} images, or in labels/ for images/; add them"
        )
    return annotated, names


def listed_names(folder: Path) -> tuple[str, ...]:
    """The names of the classes in classes.txt, in the folder or one above it."""
    for parent in (folder, *list(folder.parents)[:2]):
        for name in CLASSES:
            if (parent / name).is_file():
                return tuple(line.strip() for line in read_lines(parent / name) if line.strip())
    raise ValueError(f"{folder} has neither data.yaml nor classes.txt; write the names of the classes, one a line")


def read_settings(path: Path) -> dict[str, Any]:
    """The keys of a data.yaml: texts, lists ([a, b], or - a), and numbered names (0: a)."""
    settings: dict[str, Any] = {}
    key = ""
    for number, line in enumerate(read_lines(path), 1):
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not line.strip() or line.startswith("---"):
            continue
        item = re.fullmatch(r"\s*-\s+(.*)", line)
        numbered = re.fullmatch(r"\s+(\d+)\s*:\s*(.*)", line)
        top = re.fullmatch(r"([\w.-]+)\s*:\s*(.*)", line)
        if key and (item or numbered):
            if not isinstance(settings[key], list):
                settings[key] = []
            if numbered:
                check_number(int(numbered[1]), len(settings[key]), f"{path}, line {number}")
            settings[key].append(unquoted((item or numbered).groups()[-1]))  # type: ignore[union-attr]
        elif top:
            key, value = top.groups()
            settings[key] = split_list(value, path, number) if value.startswith(("[", "{")) else unquoted(value)
        elif not line.startswith(" "):  # what is nested below other keys does not matter
            raise ValueError(
                f"{path}, line {number}: not a line of a data.yaml: {line.strip()[:40]!r}; write key: value"
            )
    for name in ("path", "nc"):
        if isinstance(settings.get(name), list):
            raise ValueError(f"{path}: {name} is a list; give one value")
    return settings


def split_list(value: str, path: Path, number: int) -> list[str]:
    """The items of [a, b] or {0: a, 1: b}."""
    if value[-1] not in "]}":
        raise ValueError(f"{path}, line {number}: a list over several lines; write its items below each other, as - a")
    items = [item for item in re.findall(r"'[^']*'|\"[^\"]*\"|[^,]+", value[1:-1]) if item.strip()]
    if value[0] == "{":
        for index, item in enumerate(items):
            if stated := re.match(r"\s*(\d+)\s*:", item):
                check_number(int(stated[1]), index, f"{path}, line {number}")
        items = [re.sub(r"^\s*\d+\s*:", "", item) for item in items]
    return [unquoted(item) for item in items]


def check_number(stated: int, index: int, where: str) -> None:
    """Raise an error if a class's number is not its index in the list: boxes would get another class's name."""
    if stated != index:
        raise ValueError(f"{where}: class {stated} stands where class {index} is expected; number them 0, 1, 2, …")


def unquoted(text: str) -> str:
    """A text without the quotes around it."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def as_list(value: Any) -> list[str]:
    """A text or a list of texts as a list."""
    return value if isinstance(value, list) else [value] if value else []


def class_names(settings: dict[str, Any], config: Path) -> tuple[str, ...]:
    """The names of the classes of a data.yaml."""
    names = tuple(as_list(settings.get("names")))
    if not names:
        raise ValueError(f"{config} has no names of classes; add a line such as names: [cat, dog]")
    if settings.get("nc", "").isdecimal() and int(settings["nc"]) != len(names):
        raise ValueError(f"{config}: nc is {settings['nc']}, but there are {len(names)} names; correct one of them")
    return names


def locate(config: Path, settings: dict[str, Any], folder: str) -> Path:
    """A folder of a data.yaml, relative to its `path` or to the file; exporters write ../train for one beside it."""
    roots = [config.parent / settings.get("path", ""), config.parent, Path(settings.get("path") or ".")]
    inside = folder
    while inside.startswith("../"):
        inside = inside[3:]
    tried = [root / name for root in roots for name in (folder, inside)]
    for path in tried:
        if os.path.isdir(path):  # Path.is_dir raises an error for a name that is too long
            return path
    raise ValueError(f"{config}: no such folder: {one_line(tried[0], 300)}; correct it, relative to {config.parent}")


def label_file(image: Path) -> Path:
    """The .txt of an image: in labels/ where the image is in images/, or beside it."""
    parts = list(image.parts)
    for i in range(len(parts) - 2, -1, -1):
        if parts[i].lower() == "images":
            other = Path(*parts[:i], "labels", *parts[i + 1 :]).with_suffix(".txt")
            if os.path.lexists(other):
                return other
            break
    return image.with_suffix(".txt")


def read_yolo(image: Path, names: tuple[str, ...]) -> AnnotatedImage:
    """An image and its objects; one without a .txt has none. A polygon becomes the box around it."""
    path = label_file(image)
    check_regular(image, MOST_BYTES)
    try:
        with Image.open(image, formats=FORMATS) as opened:
            size = opened.size
            if (
                opened.getexif().get(ExifTags.Base.Orientation, 1) >= 5
            ):  # the image is turned by a quarter when it is read
                size = size[::-1]
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise ValueError(f"{image} is no image, or damaged ({error}); leave it out") from None
    objects: list[tuple[str, Box]] = []
    lines = as_text(read_bytes(path, MOST_BYTES), path).split("\n") if os.path.lexists(path) else []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where, words = f"{path}, line {number}", line.split()
        try:
            label, values = int(words[0]), [float(word) for word in words[1:]]
        except ValueError:
            raise ValueError(f"{where}: not numbers: {line[:40]!r}; a box is: class x y width height") from None
        if not 0 <= label < len(names):
            raise ValueError(f"{where}: class {label}, but there are {len(names)} names (0 to {len(names) - 1})")
        if len(values) != 4 and (len(values) < 6 or len(values) % 2):
            raise ValueError(f"{where}: {len(values)} numbers behind the class; a box has x y width height")
        if not all(-0.01 <= value <= 1.01 for value in values):
            raise ValueError(f"{where}: YOLO's numbers are shares of the sides, 0 to 1, got {line[:40]!r}; divide them")
        if len(values) == 4:
            x, y, width, height = values
            sides = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        else:
            sides = (min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2]))
        objects.append((names[label], tuple(side * size[i % 2] for i, side in enumerate(sides))))
    return AnnotatedImage(image, tuple(objects), str(path), None)
