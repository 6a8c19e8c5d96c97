"""What others drew boxes around: files of COCO's and of VOC's kind, with errors that say where."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import Image

from regard.data.readers.image_files import read_image

Box = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """A picture's file, its things (label; left, top, right, bottom in pixels), and where that was said."""

    path: Path
    things: tuple[tuple[str, Box], ...]
    where: str
    size: tuple[int, int] | None = None
    """Columns and rows of the picture that the boxes were drawn on, if it was said."""
    crowds: tuple[tuple[str, Box], ...] = ()
    """Around many of a kind at once: nothing is learned from them, and what is found in them is no mistake."""

    def read(self) -> Image.Image:
        try:
            image = read_image(self.path)
        except ValueError as error:
            raise ValueError(f"{self.where}: {error}") from None
        if self.size is not None and image.size != self.size:
            drawn, seen = (f"{columns} × {rows}" for columns, rows in (self.size, image.size))
            raise ValueError(
                f"{self.where}: its boxes are for a picture of {drawn} pixels, but {self.path} has {seen}; take the "
                "picture that they were drawn on, or correct boxes and size"
            )
        return image


def find_image(name: str, folders: Iterable[Path], where: str) -> Path:
    """The first of these folders that holds the file."""
    tried = [folder / name for folder in folders]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise ValueError(f"{where}: no such image: {tried[0]}; name the folder of the pictures: --data.images FOLDER")
    return found


def as_box(values: Any, where: str) -> Box:
    """Four finite numbers."""
    good = isinstance(values, (list, tuple)) and len(values) == 4
    if not good or not all(isinstance(one, (int, float)) and abs(one) <= sys.float_info.max for one in values):
        raise ValueError(f"{where}: a box is four numbers, got {str(values)[:80]}; correct it or leave it out")
    return tuple(map(float, values))


def as_size(columns: Any, rows: Any) -> tuple[int, int] | None:
    """Two whole numbers, or nothing if they say nothing."""
    try:
        return (int(columns), int(rows)) if int(columns) > 0 and int(rows) > 0 else None
    except (TypeError, ValueError, OverflowError):  # of int(inf)
        return None


# ---- COCO: one .json for all pictures ---------------------------------------------------------------------------


def list_coco(source: Path, images: Path | None = None) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """All pictures of a file, and the names of its categories in the order of their ids."""
    path = one_json(source)
    stored = read_coco(path)
    names: dict[Any, str] = {}
    for one in stored["categories"]:
        number, name = (known(one, key, path, "category") for key in ("id", "name"))
        if number in names:
            raise ValueError(f"{path}, category {number}: the id occurs twice; give each category its own")
        if name in names.values():
            raise ValueError(f"{path}, category {number}: the name {name!r} occurs twice; rename one of them")
        names[number] = str(name)
    things: dict[Any, list[tuple[str, Box]]] = {}
    crowds: dict[Any, list[tuple[str, Box]]] = defaultdict(list)
    for one in stored["images"]:
        if known(one, "id", path, "image") in things:
            raise ValueError(f"{path}, image {one['id']}: the id occurs twice; give each image its own")
        things[one["id"]] = []
    for number, one in enumerate(stored["annotations"]):
        where = f"{path}, annotation {one.get('id', number) if isinstance(one, dict) else number}"
        if known(one, "image_id", path, "annotation") not in things:
            raise ValueError(f"{where}: image_id {one['image_id']} is none of the images; correct it or leave it out")
        if known(one, "category_id", path, "annotation") not in names:
            raise ValueError(
                f"{where}: category_id {one['category_id']} is none of the categories; correct it or add the category"
            )
        left, top, width, height = as_box(one.get("bbox"), where)
        if min(width, height) < 0:
            raise ValueError(f"{where}: the box has size {width} × {height}; COCO's are left, top, width, height")
        kind = crowds if one.get("iscrowd") else things
        kind[one["image_id"]].append((names[one["category_id"]], (left, top, left + width, top + height)))
    near = [path.parent, path.parent / "images", path.parent.parent / "images"]
    near += [path.parent.parent / path.stem.rpartition("_")[2]]  # annotations/instances_val2017.json, val2017/1.jpg
    folders, found = near if images is None else [images, *near], []
    for one in stored["images"]:
        where = f"{path}, image {one['id']}"
        file = find_image(str(known(one, "file_name", path, "image")), folders, where)
        size = as_size(one.get("width"), one.get("height"))
        found.append(AnnotatedImage(file, tuple(things[one["id"]]), where, size, tuple(crowds[one["id"]])))
    return found, tuple(names[number] for number in sorted(names, key=lambda number: (isinstance(number, str), number)))


def one_json(source: Path) -> Path:
    """The file itself, or the only one in a folder."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise ValueError(f"no such file: {source}; give a .json with images, annotations and categories")
    found = sorted([*source.glob("*.json"), *source.glob("annotations/*.json")])
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:5]) or "none"
        raise ValueError(f"{source} should hold one .json of annotations, it has {names}; name the file itself")
    return found[0]


def read_coco(path: Path) -> dict[str, list[Any]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}; write it again or restore it from a copy") from None
    for part in ("images", "annotations", "categories"):
        if not isinstance(stored, dict) or not isinstance(stored.get(part), list):
            raise ValueError(f"{path} has no list {part!r}; COCO's files have images, annotations and categories")
    for part in ("images", "categories"):
        if not stored[part]:
            raise ValueError(f"{path}: the list {part!r} is empty")
    return stored


def known(one: Any, key: str, path: Path, what: str) -> Any:
    if not isinstance(one, dict) or not isinstance(one.get(key), (int, float, str)):
        named = f" {one['id']}" if isinstance(one, dict) and "id" in one else ""
        raise ValueError(f"{path}, {what}{named}: no {key!r}, got {str(one)[:80]}")
    return one[key]


# ---- VOC: an .xml for each picture --------------------------------------------------------------------------------


def list_voc(source: Path, images: Path | None = None) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """All pictures of a folder's .xml files, and the names in them, sorted."""
    if not source.is_dir():
        raise ValueError(f"no such folder: {source}; give one with an .xml for each picture")
    inner = source / "Annotations"
    folder = inner if inner.is_dir() else source
    files = sorted(folder.glob("*.xml"))
    if not files:
        raise ValueError(f"{folder} holds no .xml files; VOC's kind has one for each picture")
    near = [source / "JPEGImages", source / "images", source, folder]
    found = [read_voc(path, near if images is None else [images, *near]) for path in files]
    names = tuple(sorted({label for one in found for label, _ in one.things}))
    if not names:
        raise ValueError(f"{folder}: none of {len(files):,} files names an object")
    return found, names


def read_voc(path: Path, folders: list[Path]) -> AnnotatedImage:
    """One file; columns and rows are counted from 1 there, and the last ones belong to the box."""
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}, line {error.position[0]}: not valid XML ({error})") from None
    name = (root.findtext("filename") or "").strip()
    if not name:
        raise ValueError(f"{path}: no <filename> of the picture")
    things = []
    for number, one in enumerate(root.iter("object"), 1):
        where, label = f"{path}, object {number}", (one.findtext("name") or "").strip()
        if not label:
            raise ValueError(f"{where}: no <name>")
        told = [one.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        try:
            left, top, right, bottom = as_box([float(side or "nothing") for side in told], where)
        except ValueError:
            raise ValueError(f"{where}: <bndbox> needs xmin, ymin, xmax and ymax as numbers, got {told}") from None
        if right < left or bottom < top:
            raise ValueError(f"{where}: the box ends before it begins: {told}")
        things.append((label, (left - 1, top - 1, right, bottom)))
    size = as_size(root.findtext("size/width"), root.findtext("size/height"))
    return AnnotatedImage(find_image(name, folders, str(path)), tuple(things), str(path), size)
