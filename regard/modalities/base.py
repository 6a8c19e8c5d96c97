"""The modality seam: everything that others ask about one kind of input."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Modality:
    """A kind of input. Its reader, such as a tokenizer, turns one item into what a model computes with."""

    name: str
    suffixes: tuple[str, ...]
    """Files that hold items of it."""
    file: str
    """The file beside the weights that the reader is saved in."""
    load: Callable[[Path, Any], Any]
    """The reader that lies beside a model, from the model's path and its config."""
    save: Callable[[Any, Path], None]
    """Write a reader into the directory of a model."""
    read: Callable[[Any], Any]
    """An item as a reader takes it, from an argument of the command line or of a method."""
    receive: Callable[[Any], Any]
    """An item as a reader takes it, from the JSON of a request; never a path of the server's machine."""
    unit: str
    """The unit of counts, in the plural."""
    field: str
    """The field of a request, and of JSON output, that holds an item."""
    widget: str
    """The control of the page that takes an item: "text" or "image"."""
    describe: Callable[[Any], str] = lambda reader: ""
    """A few words about a reader, printed before training."""

    def beside(self, path: Path) -> bool:
        """Whether a reader of this modality is saved beside a model."""
        return (path / self.file).is_file()
