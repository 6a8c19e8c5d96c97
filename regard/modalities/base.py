"""The interface of modalities: one record holds everything that other packages need to know about a kind of input."""

import base64
import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.registry import modalities


@dataclass(frozen=True, kw_only=True, slots=True)
class Modality:
    """A kind of input. Its reader, such as a tokenizer, turns one item into what a model computes with."""

    name: str
    suffixes: tuple[str, ...]
    """File suffixes of such inputs."""
    types: tuple[type, ...] = ()
    """Classes of items in Python, besides strings and paths."""
    file: str
    """Name of the file beside the weights that the reader is saved in."""
    load: Callable[[Path, Any], Any]
    """Function that loads the reader beside a model, from the model's path and its config."""
    save: Callable[[Any, Path], None]
    """Write a reader into the directory of a model."""
    read: Callable[[Any], Any]
    """Function from an argument of the command line or of a method, or from the bytes of a file, to an item that the
    reader takes."""
    pixels: Callable[[bytes], int] = lambda data: 0
    """Function from the bytes of a file to the number of pixels, or the like, that reading it makes; it looks at the
    header alone."""
    pixel: str = "pixel"
    """The noun for what `pixels` counts: "sample" for audio."""
    value: Any = str
    """The type of the JSON value in a request, as an annotation."""
    unit: str
    """The unit of counts, in the plural."""
    field: str
    """The field of a request, and of JSON output, that holds an item."""
    item: str = ""
    """The noun for an item, where that is not the field: "recording"."""
    widget: str = "file"
    """The control of the page that takes an item: "text", or "file" for one that is a file; the command line takes
    texts, or names of files."""
    accept: str = ""
    """The `accept` attribute of the page's control for files, where it is not the suffixes: "image/*"."""
    describe: Callable[[Any], str] = lambda reader: ""
    """Function that describes a reader in a few words, printed before training."""
    send: Callable[[Any], Any] = lambda item: item.tolist() if hasattr(item, "tolist") else item
    """Function from an item to the JSON value in a request; `receive` reads it back."""
    examples: Callable[[Path, Any], Sequence[tuple[str, Any]]] = lambda path, config: ()
    """Function from a model's path and its config to items that the page offers to try, each with a few words about
    it."""
    write: Callable[[Any, Path], Path] | None = None
    """Function that saves an item as a file in a folder and returns its path, for commands that name it."""
    canvas: Callable[[Path, Any], tuple[int, int, int] | None] = lambda path, config: None
    """Function from a model's path and its config to the rows, columns and channels of a canvas on which an item can be
    drawn by hand; None: there is none."""

    def recognises(self, item: Any) -> bool:
        """Whether an item is of this modality: by its class, or a name by its suffix."""
        if isinstance(item, str | Path):
            return self.widget == "text" or Path(str(item).strip()).suffix.lower() in self.suffixes
        return isinstance(item, self.types)

    def receive(self, value: Any) -> Any:
        """An item from the JSON value in a request: the bytes of a file are a data: URI. No path is opened."""
        return self.read(self.unpack(value))

    def unpack(self, value: Any) -> Any:
        """The bytes of a file from the data: URI in a request; any other value as it is."""
        if not (isinstance(value, str) and self.files):
            return value
        head, comma, data = value.partition(",")
        kind = self.accept.rstrip("*") if self.accept.endswith("*") else ""  # browsers name others in many ways
        if not (comma and head.startswith(f"data:{kind}") and head.endswith(";base64")):
            form = mimetypes.guess_type(f"x{self.suffixes[0]}")[0] or ""
            raise ValueError(f"no data: URI of {self.noun}; send data:{form};base64,…")
        return base64.b64decode(data, validate=True)  # its errors are ValueErrors

    def holds(self, path: str) -> bool:
        """Whether a path is that of an existing file of this modality."""
        return Path(path).suffix.lower() in self.suffixes and Path(path).is_file()

    def beside(self, path: Path) -> bool:
        """Whether a reader of this modality is saved beside a model."""
        return (path / self.file).is_file()

    @property
    def files(self) -> bool:
        """Whether items are files."""
        return self.widget != "text"

    @property
    def plural(self) -> str:
        """Several items: "images"."""
        item = self.item or self.field
        return item if item.endswith("s") else f"{item}s"

    @property
    def noun(self) -> str:
        """An item with its article: "an image"."""
        item = self.item or self.field
        return f"{'an' if item[0] in 'aeiou' else 'a'} {item}"


def modality_of(item: Any, names: Sequence[str]) -> Modality:
    """The first of these modalities that recognises an item; the last of them if none does."""
    records = [modalities[name] for name in names]
    return next((record for record in records if record.recognises(item)), records[-1])


def names_file(item: str) -> bool:
    """Whether a text is the name of a file of some modality other than text, by its suffix."""
    return any(modalities[name].files and modalities[name].recognises(item) for name in modalities)
