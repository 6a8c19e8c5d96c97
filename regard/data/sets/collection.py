"""Examples of any kind from a file or a folder: texts or pictures, with or without labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import nearest
from regard.data.generated.languages import LANGUAGES, languages
from regard.data.readers.arrays import read_arrays
from regard.data.readers.examples import read_examples
from regard.data.readers.image_files import as_images, is_image
from regard.data.readers.image_lists import list_folder, list_table, list_unlabelled
from regard.data.readers.image_tables import TABLES, lists_images
from regard.data.readers.text_files import read_lines
from regard.data.sets.labelled_images import digits


@dataclass(frozen=True, slots=True)
class Examples:
    """Texts, or pictures as paths or images of Pillow's; `names` are printed, `labels` are empty where nobody knows."""

    items: list[Any]
    names: list[str]
    labels: list[str]
    pictures: bool

    def __len__(self) -> int:
        return len(self.items)

    def take(self, places: Sequence[int]) -> "Examples":
        labels = [self.labels[i] for i in places] if self.labels else []
        return Examples([self.items[i] for i in places], [self.names[i] for i in places], labels, self.pictures)

    def draw(self, limit: int) -> "Examples":
        """At most so many of them, by the same dice every time, in their order."""
        order = np.random.default_rng(0).permutation(len(self))[:limit]
        return self.take(sorted(order.tolist()))

    def places(self, label: str) -> list[int]:
        """Where the examples of a label are."""
        if label not in self.labels:
            known = nearest(label, dict.fromkeys(self.labels)) if self.labels else "these examples have no labels"
            raise ValueError(f"no label {label!r}; {known} (or give two files, or two folders)")
        return [i for i, own in enumerate(self.labels) if own == label]

    def joined(self, other: "Examples", labels: tuple[str, str]) -> "Examples":
        """Both, one after the other, with other labels."""
        if self.pictures != other.pictures:
            raise ValueError(f"of {labels[0]} and {labels[1]} one holds texts, one pictures; give one kind for both")
        told = [labels[0]] * len(self) + [labels[1]] * len(other)
        return Examples([*self.items, *other.items], [*self.names, *other.names], told, self.pictures)


def find_examples(source: str | Path | None, *, sees: bool, reads: bool) -> Examples:
    """The examples of a source for a model that sees pictures, reads texts, or both; without one, embedded ones:
    digits, or names in several languages."""
    if source is None:
        return embedded(sees)
    path = Path(source)
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}")
    kind = path.suffix.lower()
    if not path.is_dir() and kind not in (".txt", ".npz", *TABLES):
        raise ValueError(f"{path}: examples are a .txt, {', '.join(TABLES)}, an .npz, or a folder of pictures")
    pictures = path.is_dir() or kind == ".npz" or (kind in TABLES and sees and (not reads or lists_images(path)))
    if pictures and not sees:
        raise ValueError(f"{path} holds pictures, and the model reads texts; give a .txt, {', '.join(TABLES)}")
    if not pictures and not reads:
        raise ValueError(f"{path} holds texts, and the model sees pictures; give a folder, a table of paths or an .npz")
    return of_pictures(path) if pictures else of_texts(path)


def embedded(sees: bool) -> Examples:
    if sees:
        found = digits("test")
        return of_arrays(found.pixels, [found.names[i] for i in found.labels])
    texts, codes = map(list, zip(*languages("test"), strict=True))
    return Examples(texts, texts, [LANGUAGES[code] for code in codes], False)


def of_texts(path: Path) -> Examples:
    """The lines of a .txt, or texts and labels of a table; pairs of texts are no single examples."""
    if path.suffix.lower() == ".txt":
        lines = [line.strip() for line in read_lines(path) if line.strip()]
        return Examples(lines, lines, [], False)
    rows = read_examples(path, "classify")
    return Examples([row.text for row in rows], [row.text for row in rows], [row.label for row in rows], False)


def of_pictures(path: Path) -> Examples:
    """A folder with or without a folder a class, a table of paths and labels, or arrays with or without labels."""
    if path.suffix.lower() == ".npz":
        try:
            pixels, classes, names = read_arrays(path, "train")
        except ValueError:
            pixels, classes, names = read_arrays(path, "train", labelled=False)
        return of_arrays(pixels, [names[i] for i in classes] if names != ("",) else [])
    if path.is_dir():
        inside = [one for one in path.iterdir() if not one.name.startswith(".")]
        heap = any(is_image(one.name) for one in inside) or not any(one.is_dir() for one in inside)
        listed = list_unlabelled(str(path)) if heap else list_folder(path)
    else:
        listed = list_table(path)
    labels = [one.label for one in listed if one.label]
    return Examples([one.path for one in listed], [str(one.path) for one in listed], labels, True)


def of_arrays(pixels: np.ndarray, labels: list[str]) -> Examples:
    images = as_images(pixels)
    return Examples(images, [f"picture {i}" for i in range(len(images))], labels, True)
