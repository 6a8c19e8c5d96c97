"""The interface of modalities: one record holds everything that other packages need to know about a kind of input."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Modality:
    """A kind of input. Its reader, such as a tokenizer, turns one item into what a model computes with."""

    name: str
    suffixes: tuple[str, ...]
    """File suffixes of such inputs."""
    file: str
    """Name of the file beside the weights that the reader is saved in."""
    load: Callable[[Path, Any], Any]
    """Function that loads the reader beside a model, from the model's path and its config."""
    save: Callable[[Any, Path], None]
    """Write a reader into the directory of a model."""
    read: Callable[[Any], Any]
    """Function from an argument of the command line, or of a method, to an item that the reader takes."""
    receive: Callable[[Any], Any]
    """Function from the JSON value in a request to an item that the reader takes; it never opens a path on the
    server."""
    unit: str
    """The unit of counts, in the plural."""
    field: str
    """The field of a request, and of JSON output, that holds an item."""
    widget: str
    """The control of the page that takes an item: "text" or "image"."""
    describe: Callable[[Any], str] = lambda reader: ""
    """Function that describes a reader in a few words, printed before training."""

    def holds(self, path: str) -> bool:
        """Whether a path is that of an existing file of this modality."""
        return Path(path).suffix.lower() in self.suffixes and Path(path).is_file()

    def beside(self, path: Path) -> bool:
        """Whether a reader of this modality is saved beside a model."""
        return (path / self.file).is_file()
