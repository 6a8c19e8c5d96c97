"""Examples of any kind from a file or a folder: texts or images, with or without labels."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import nearest
from regard.data.readers.arrays import read_arrays
from regard.data.readers.examples import read_examples
from regard.data.readers.image_files import as_images, is_image
from regard.data.readers.image_lists import list_folder, list_table, list_unlabelled
from regard.data.readers.image_tables import TABLES, lists_images
from regard.data.readers.text_files import read_lines
from regard.data.sets.labelled_images import digits


@dataclass(frozen=True, slots=True)
class Examples:
    """Texts, or images as paths or images of Pillow's; `names` are printed, `labels` are empty where there are none."""

    items: list[Any]
    names: list[str]
    labels: list[str]
    images: bool
    """Whether they are images."""

    def __len__(self) -> int:
        return len(self.items)

    def take(self, indices: Sequence[int]) -> "Examples":
        """The examples with these indices."""
        labels = [self.labels[i] for i in indices] if self.labels else []
        return Examples([self.items[i] for i in indices], [self.names[i] for i in indices], labels, self.images)

    def sample(self, limit: int) -> "Examples":
        """A random sample of at most so many examples, always the same, in their order."""
        order = np.random.default_rng(0).permutation(len(self))[:limit]
        return self.take(sorted(order.tolist()))

    def with_label(self, label: str) -> list[int]:
        """The indices of the examples with a label."""
        if label not in self.labels:
            known = nearest(label, dict.fromkeys(self.labels)) if self.labels else "these examples have no labels"
            raise ValueError(f"no label {label!r}; {known} (or give two files, or two folders)")
        return [i for i, own in enumerate(self.labels) if own == label]

    def joined(self, other: "Examples", labels: tuple[str, str]) -> "Examples":
        """Both sets, one after the other, each with a label of its own."""
        if self.images != other.images:
            raise ValueError(f"of {labels[0]} and {labels[1]} one holds texts, one images; give one kind for both")
        own = [labels[0]] * len(self) + [labels[1]] * len(other)
        return Examples([*self.items, *other.items], [*self.names, *other.names], own, self.images)


def find_examples(source: str | Path | None, modalities: Collection[str]) -> Examples:
    """The examples of a source for a model that reads these modalities; without a source, embedded ones: digits, or
    names in several languages."""
    if source is None:
        return embedded_images() if "image" in modalities else embedded_texts()
    path = Path(source)
    if not path.exists():
        raise ValueError(f"no such file or folder: {path}")
    suffix = path.suffix.lower()
    if not path.is_dir() and suffix not in (".txt", ".npz", *TABLES):
        raise ValueError(f"{path}: examples are a .txt, {', '.join(TABLES)}, an .npz, or a folder of images")
    images, texts = "image" in modalities, "text" in modalities
    holds_images = (
        path.is_dir() or suffix == ".npz" or (suffix in TABLES and images and (not texts or lists_images(path)))
    )
    if holds_images and not images:
        raise ValueError(f"{path} holds images, and the model reads texts; give a .txt, {', '.join(TABLES)}")
    if not holds_images and not texts:
        raise ValueError(f"{path} holds texts, and the model reads images; give a folder, a table of paths or an .npz")
    return read_image_set(path) if holds_images else read_text_set(path)


def embedded_images() -> Examples:
    """The test part of the embedded digits."""
    images = digits("test")
    return of_arrays(images.pixels[:], [images.names[i] for i in images.labels])


def embedded_texts() -> Examples:
    """The test part of the embedded names, labelled by their language."""
    from regard.data.generated.languages import LANGUAGES, languages

    texts, codes = map(list, zip(*languages("test"), strict=True))
    return Examples(texts, texts, [LANGUAGES[code] for code in codes], False)


def read_text_set(path: Path) -> Examples:
    """The lines of a .txt, or texts and labels of a table; pairs of texts are no single examples."""
    if path.suffix.lower() == ".txt":
        lines = [line.strip() for line in read_lines(path) if line.strip()]
        return Examples(lines, lines, [], False)
    rows = read_examples(path, "classify")
    return Examples([row.text for row in rows], [row.text for row in rows], [row.label for row in rows], False)


def read_image_set(path: Path) -> Examples:
    """A folder with or without a folder a class, a table of paths and labels, or arrays with or without labels."""
    if path.suffix.lower() == ".npz":
        try:
            pixels, classes, names = read_arrays(path, "train")
        except ValueError:
            pixels, classes, names = read_arrays(path, "train", labelled=False)
        return of_arrays(pixels, [names[i] for i in classes] if names != ("",) else [])
    if path.is_dir():
        inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        flat = any(is_image(entry.name) for entry in inside) or not any(entry.is_dir() for entry in inside)
        files = list_unlabelled(str(path)) if flat else list_folder(path)
    else:
        files = list_table(path)
    labels = [file.label for file in files if file.label]
    return Examples([file.path for file in files], [str(file.path) for file in files], labels, True)


def of_arrays(pixels: np.ndarray, labels: list[str]) -> Examples:
    """Arrays of images as examples, named by their number."""
    images = as_images(pixels)
    return Examples(images, [f"image {i}" for i in range(len(images))], labels, True)
