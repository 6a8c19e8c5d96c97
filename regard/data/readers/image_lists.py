"""Image files of a folder, a table or tar files, with labels or captions; nothing is decoded yet."""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from regard.data.readers.coco_captions import holds_captions, read_captions
from regard.data.readers.image_files import is_image, list_images, read_image
from regard.data.readers.image_tables import TABLES, is_image_table, read_table
from regard.data.readers.parts import find_parts
from regard.data.readers.shards import Member, is_shards, list_members


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image file, its label, and the line of the table that names it, as errors begin with it."""

    path: Path
    label: str = ""
    where: str = ""

    def read(self, least: tuple[int, int] | None = None) -> Image.Image:
        """The decoded image; with `least`, a JPEG at a reduced scale with at least so many rows and columns."""
        try:
            return read_image(self.path, least)
        except ValueError as error:
            raise ValueError(f"{self.where}{error}") from None


@dataclass(frozen=True, slots=True)
class PackedImage(ImageFile):
    """An image inside of a tar file; `path` is that of the tar file."""

    member: Member | None = None

    def read(self, least: tuple[int, int] | None = None) -> Image.Image:
        """The decoded image, always at its full size."""
        assert self.member is not None
        try:
            return read_image(self.member.read())
        except ValueError as error:
            raise ValueError(f"{self.where}{error}") from None


def list_folder(folder: Path) -> list[ImageFile]:
    """The images of a folder with a sub-folder for each class; files with other suffixes are passed over."""
    inside = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    classes = [path for path in inside if path.is_dir()]
    if not classes:
        raise ValueError(f"{folder} has no folders; put the images of each class into a folder with its name")
    files = {path: list_images(path) for path in classes}
    if not any(file.parent == path for path in classes for file in files[path]):
        parts = ", ".join(path.name for path in classes[:3])
        raise ValueError(
            f"the folders of {folder} ({parts}) hold folders, no images; name the one for training: "
            f"--data.images {classes[0]}, and others as --data.valid and --data.test"
        )
    if loose := [path.name for path in inside if path not in classes and is_image(path.name)]:
        count = "an image lies" if len(loose) == 1 else f"{len(loose):,} images lie"
        raise ValueError(f"{folder}: {count} beside its folders ({loose[0]}); put each into the folder of its class")
    return [ImageFile(file, path.name) for path in classes for file in files[path]]


def list_table(table: Path, column: str = "label") -> list[ImageFile]:
    """The images of a table's rows, with their labels or, for column "", without; paths are relative to the table."""
    if not is_image_table(table) or not table.exists():
        kinds = f"a folder with a folder a class, a table ({', '.join(TABLES)}) or an .npz"
        missing = f"no such {'file' if table.suffix else 'folder'}: {table}; give {kinds}"
        raise ValueError(f"{table}: images are {kinds}" if table.exists() else missing)
    rows = list(read_table(table, column))
    folder = folder_of(table, [path for _, path, _ in rows])
    return [ImageFile(folder / path, "".join(cells[:1]), f"{table}, line {number}: ") for number, path, cells in rows]


def folder_of(table: Path, names: list[str]) -> Path:
    """The folder that the paths of a table are relative to: the table's own, or one beside it that has the first."""
    if not names or (table.parent / names[0]).is_file():
        return table.parent
    beside = [path for path in sorted(table.parent.iterdir()) if path.is_dir() and (path / names[0]).is_file()]
    return beside[0] if len(beside) == 1 else table.parent


def list_labelled(source: str) -> list[ImageFile]:
    """The images of a folder of folders (of a root with parts, those for training), a table or tar files, labelled."""
    if is_shards(Path(source)):
        return list_packed(Path(source), "label")
    path = Path(find_parts(source)["train"])
    return list_folder(path) if path.is_dir() else list_table(path)


def list_unlabelled(source: str) -> list[ImageFile]:
    """The images of a folder at any depth, of a table or tar files, each path once and without a label."""
    path = Path(source)
    if is_shards(path):
        return list_packed(path, "")
    if path.is_dir():
        return [ImageFile(file) for file in list_images(path)]
    return list({image.path: image for image in list_table(path, "")}.values())


def list_packed(source: Path, column: str) -> list[ImageFile]:
    """The images of tar files, with their labels or, for column "", without."""
    return [PackedImage(m.tar, m.label(column) if column else "", f"{m.path}: ", m) for m in list_members(source)]


def list_captioned(source: str | Path) -> tuple[list[ImageFile], list[tuple[str, ...]]]:
    """The images of a table, each path once, and the captions of each; paths are relative to the table."""
    table = Path(source)
    if is_shards(table):
        members = list_members(table)
        return list_packed(table, ""), [(member.label("caption"),) for member in members]
    if not is_image_table(table) or table.is_dir():
        kinds = f"a table ({', '.join(TABLES)}) of path and caption"
        raise ValueError(f"{source}: images with captions are {kinds}" if table.exists() else f"no such file: {source}")
    files: dict[Path, ImageFile] = {}
    captions: dict[Path, list[str]] = {}
    rows = list(read_captions(table) if holds_captions(table) else read_table(table, "caption"))
    folder = folder_of(table, [name for _, name, _ in rows])
    for number, name, texts in rows:
        path, where = folder / name, f"{table}, line {number}: "
        if not path.is_file():
            raise ValueError(f"{where}no such image: {path}; paths are relative to the table")
        files.setdefault(path, ImageFile(path, "", where))
        captions.setdefault(path, []).extend(texts)
    return list(files.values()), [tuple(captions[path]) for path in files]
