"""Boxes around objects from files in the formats of COCO and Pascal VOC. Errors name the file and the annotation."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import Image

from regard.config import one_line
from regard.data.readers.image_files import read_image
from regard.data.readers.text_files import as_text, read_bytes, read_lines
from regard.files import check_regular

Box = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """An image file, its objects (label; left, top, right, bottom in pixels), and the place that errors name."""

    path: Path
    objects: tuple[tuple[str, Box], ...]
    where: str
    size: tuple[int, int] | None = None
    """Columns and rows of the image that the boxes were drawn on, if they are recorded."""
    crowds: tuple[tuple[str, Box], ...] = ()
    """Boxes around many objects at once: training ignores them, and detections inside them are no false positives."""

    def read(self) -> Image.Image:
        """The decoded image; an error if it has another size than the one that the boxes were drawn on."""
        try:
            image = read_image(self.path)
        except ValueError as error:
            raise ValueError(f"{self.where}: {error}") from None
        if self.size is not None and image.size != self.size:
            recorded, actual = (f"{columns} × {rows}" for columns, rows in (self.size, image.size))
            raise ValueError(
                f"{self.where}: its boxes are for an image of {recorded} pixels, but {self.path} has {actual}; take "
                "the image that they were drawn on, or correct boxes and size"
            )
        return image


def find_image(name: str, folders: Collection[Path], where: str) -> Path:
    """The path of an image in the first of these folders that holds it; an error if it is no regular file, or if an
    absolute name or `..` leads out of all of them: annotations may be a stranger's, and the other files are yours."""
    paths = [folder / name for folder in folders]
    strays = Path(name).is_absolute() or ".." in Path(name).parts
    for path in paths:
        if os.path.lexists(path):
            if strays and not any(Path(os.path.abspath(path)).is_relative_to(folder.absolute()) for folder in folders):
                fact = f"{one_line(path, 200)} is outside of the folders of this data"
                raise ValueError(f"{where}: {fact}; name the folder of the images: --data.images FOLDER")
            check_regular(path)
            return path
    raise ValueError(f"{where}: no such image: {paths[0]}; name the folder of the images: --data.images FOLDER")


def as_box(values: Any, where: str) -> Box:
    """Four finite numbers as a box."""
    good = isinstance(values, (list, tuple)) and len(values) == 4
    if not good or not all(isinstance(value, (int, float)) and abs(value) <= sys.float_info.max for value in values):
        raise ValueError(f"{where}: a box is four numbers, got {str(values)[:80]}; correct it or leave it out")
    return tuple(map(float, values))


def as_size(columns: Any, rows: Any) -> tuple[int, int] | None:
    """Columns and rows as whole numbers, or None where they are no positive numbers."""
    try:
        return (int(columns), int(rows)) if int(columns) > 0 and int(rows) > 0 else None
    except (TypeError, ValueError, OverflowError):  # of int(inf)
        return None


# ---- COCO: one .json for all images -----------------------------------------------------------------------------


def list_coco(source: Path, images: Path | None = None) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """All images of a file, and the names of its categories in the order of their ids."""
    path = one_json(source)
    stored = read_coco(path)
    names: dict[Any, str] = {}
    for record in stored["categories"]:
        number, name = (value_of(record, key, path, "category") for key in ("id", "name"))
        if number in names:
            raise ValueError(f"{path}, category {number}: the id occurs twice; give each category its own")
        if name in names.values():
            raise ValueError(f"{path}, category {number}: the name {name!r} occurs twice; rename one of them")
        names[number] = str(name)
    objects: dict[Any, list[tuple[str, Box]]] = {}
    crowds: dict[Any, list[tuple[str, Box]]] = defaultdict(list)
    for record in stored["images"]:
        if value_of(record, "id", path, "image") in objects:
            raise ValueError(f"{path}, image {record['id']}: the id occurs twice; give each image its own")
        objects[record["id"]] = []
    for number, record in enumerate(stored["annotations"]):
        where = f"{path}, annotation {record.get('id', number) if isinstance(record, dict) else number}"
        if value_of(record, "image_id", path, "annotation") not in objects:
            raise ValueError(
                f"{where}: image_id {record['image_id']} is none of the images; correct it or leave it out"
            )
        if value_of(record, "category_id", path, "annotation") not in names:
            raise ValueError(
                f"{where}: category_id {record['category_id']} is no category; correct it or add the category"
            )
        left, top, width, height = as_box(record.get("bbox"), where)
        if min(width, height) < 0:
            raise ValueError(f"{where}: the box has size {width} × {height}; COCO's are left, top, width, height")
        boxes = crowds if record.get("iscrowd") else objects
        boxes[record["image_id"]].append((names[record["category_id"]], (left, top, left + width, top + height)))
    near = [path.parent, path.parent / "images", path.parent.parent / "images"]
    near += [path.parent.parent / path.stem.rpartition("_")[2]]  # annotations/instances_val2017.json, val2017/1.jpg
    folders, listed = near if images is None else [images, *near], []
    for record in stored["images"]:
        where = f"{path}, image {record['id']}"
        file = find_image(str(value_of(record, "file_name", path, "image")), folders, where)
        size = as_size(record.get("width"), record.get("height"))
        listed.append(AnnotatedImage(file, tuple(objects[record["id"]]), where, size, tuple(crowds[record["id"]])))
    return listed, tuple(
        names[number] for number in sorted(names, key=lambda number: (isinstance(number, str), number))
    )


def one_json(source: Path) -> Path:
    """The .json file itself, or the only one in a folder."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise ValueError(f"no such file: {source}; give a .json with images, annotations and categories")
    files = sorted([*source.glob("*.json"), *source.glob("annotations/*.json")])
    if len(files) != 1:
        names = ", ".join(path.name for path in files[:5]) or "none"
        raise ValueError(f"{source} should hold one .json of annotations, it has {names}; name the file itself")
    return files[0]


def read_coco(path: Path) -> dict[str, list[Any]]:
    """The lists of images, annotations and categories of a file."""
    text = as_text(read_bytes(path, folder="a .json file", empty="annotations"), path)
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}; write it again or restore it from a copy") from None
    for part in ("images", "annotations", "categories"):
        if not isinstance(stored, dict) or not isinstance(stored.get(part), list):
            raise ValueError(f"{path} has no list {part!r}; COCO's files have images, annotations and categories")
    for part in ("images", "categories"):
        if not stored[part]:
            raise ValueError(f"{path}: the list {part!r} is empty")
    return stored


def value_of(record: Any, key: str, path: Path, what: str) -> Any:
    """A number or text of a JSON object; an error that names the object where it has none."""
    if not isinstance(record, dict) or not isinstance(record.get(key), (int, float, str)):
        named = f" {record['id']}" if isinstance(record, dict) and "id" in record else ""
        raise ValueError(f"{path}, {what}{named}: no {key!r}, got {str(record)[:80]}")
    return record[key]


# ---- VOC: an .xml for each image ----------------------------------------------------------------------------------


def list_voc(source: Path, images: Path | None = None) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """All images of a folder's .xml files, or of those that a list in ImageSets names, and the labels, sorted."""
    listed = None
    if source.suffix == ".txt" and source.is_file():
        listed, source = source, source.parent.parent.parent
    if not source.is_dir():
        raise ValueError(f"no such folder: {source}; give one with an .xml for each image")
    inner = source / "Annotations"
    folder = inner if inner.is_dir() else source
    files = sorted(folder.glob("*.xml"))
    if not files:
        raise ValueError(f"{folder} holds no .xml files; VOC's format has one for each image")
    if listed is not None:
        names_listed = [line.split()[0] for line in read_lines(listed) if line.strip()]
        files = [folder / f"{name}.xml" for name in dict.fromkeys(names_listed)]
        missing = [path for path in files if not path.is_file()]
        if missing:
            raise ValueError(f"{listed}: no such file: {missing[0]}; leave {missing[0].stem} out of the list")
    near = [source / "JPEGImages", source / "images", source, folder]
    annotated = [read_voc(path, near if images is None else [images, *near]) for path in files]
    names = tuple(sorted({label for image in annotated for label, _ in image.objects}))
    if not names:
        raise ValueError(f"{folder}: none of {len(files):,} files names an object")
    return annotated, names


def voc_parts(source: str) -> dict[str, str]:
    """The sources of train, valid and test: the lists in ImageSets/Main, or the folder as a whole."""
    lists = Path(source) / "ImageSets" / "Main"
    names = {"train": ("train", "trainval"), "valid": ("val",), "test": ("test",)}
    if not (lists / "train.txt").is_file():
        names["valid"] = ()  # part of trainval
    candidates = {part: [lists / f"{name}.txt" for name in known] for part, known in names.items()}
    parts = {part: str(path) for part, paths in candidates.items() for path in reversed(paths) if path.is_file()}
    return parts if "train" in parts else {"train": source}


def read_voc(path: Path, folders: list[Path]) -> AnnotatedImage:
    """The image of one .xml; columns and rows are counted from 1 there, and the last ones belong to the box."""
    raw = read_bytes(path, folder="a folder of .xml files", empty="an annotation")
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}, line {error.position[0]}: not valid XML ({error})") from None
    except (LookupError, ValueError) as error:  # an encoding that is not known, or not to the parser
        raise ValueError(f"{path} cannot be read as XML ({error}); save it as UTF-8") from None
    name = (root.findtext("filename") or "").strip()
    if not name:
        raise ValueError(f"{path}: no <filename>; add one with the name of the image")
    objects = []
    for number, element in enumerate(root.iter("object"), 1):
        where, label = f"{path}, object {number}", (element.findtext("name") or "").strip()
        if not label:
            raise ValueError(f"{where}: no <name>; add one with its label")
        texts = [element.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        try:
            left, top, right, bottom = as_box([float(side or "nothing") for side in texts], where)
        except ValueError:
            raise ValueError(f"{where}: <bndbox> needs xmin, ymin, xmax and ymax as numbers, got {texts}") from None
        if right < left or bottom < top:
            raise ValueError(f"{where}: the box ends before it begins, {texts}; put xmin before xmax, ymin before ymax")
        objects.append((label, (left - 1, top - 1, right, bottom)))
    size = as_size(root.findtext("size/width"), root.findtext("size/height"))
    return AnnotatedImage(find_image(name, folders, str(path)), tuple(objects), str(path), size)
