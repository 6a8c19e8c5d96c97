"""Registries of models, kernels, positions, recipes, tasks and modalities by name. The doctor's laws test every
entry."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from regard.config import nearest, one_line, parse


class Registry:
    """A dictionary of classes or functions that names the closest entry when a name is unknown.

    A name may carry settings of the entry's own, as in `rotary:base=500000` or `relative:buckets=32,far=64`.
    """

    def __init__(self, what: str, hint: str = "", *, package: str | None = None) -> None:
        self.what, self.package, self.hint = what, package, hint
        self._entries: dict[str, Any] = {}
        self._complete = package is None

    def entries(self) -> dict[str, Any]:
        """Return all entries by name; our own package is imported on first use."""
        if not self._complete:
            self._complete = True
            importlib.import_module(str(self.package))
        return self._entries

    def register(self, name: str) -> Callable[[Any], Any]:
        def add(entry: Any) -> Any:
            if name in self._entries:
                raise ValueError(f"{self.what} {name!r} is registered already; choose another name")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise ValueError(f"{self.what}={one_line(repr(name), 40)} is no name; known: {', '.join(self)}")
        name = name.partition(":")[0]
        if name not in self._entries and name not in self.entries():
            raise ValueError(f"unknown {self.what} {one_line(repr(name))}; {nearest(name, self._entries)}{self.hint}")
        return self._entries[name]

    def settings(self, name: str) -> dict[str, Any]:
        """The settings behind a name's colon, each value parsed as its parameter's type."""
        parameters = inspect.signature(self[name]).parameters
        known = {key: p for key, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD}  # sizes are not settings
        result: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, value = part.partition("=")
            if key not in known:
                raise ValueError(f"{self.what} {name!r}: no setting {key!r}; {nearest(key, known)}")
            result[key] = parse(value, known[key].annotation, f"{key} of {self.what} {name!r}")
        return result

    def build(self, name: str, **arguments: Any) -> Any:
        """Call the entry with the settings of its name and with `arguments`."""
        settings = self.settings(name)
        try:
            return self[name](**settings, **arguments)
        except ValueError as error:
            raise ValueError(f"{self.what} {name!r}: {error}" if settings else str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.entries()))

    def __repr__(self) -> str:
        return f"{self.what}: {', '.join(self)}"

    def __contains__(self, name: str) -> bool:
        return name.partition(":")[0] in self.entries()

    def name_of(self, entry: Any) -> str:
        return next(name for name, known in self.entries().items() if known is entry)


OWN = " (one of your own: regard --plugin FILE …)"
models = Registry("model", OWN, package="regard.models")
kernels = Registry("kernel", OWN, package="regard.nn.kernels")
positions = Registry("position", OWN, package="regard.nn.positions")
recipes = Registry("recipe", OWN, package="regard.recipes")
tasks = Registry("task", OWN, package="regard.tasks")
modalities = Registry("modality", OWN, package="regard.modalities")

register_model = models.register
register_kernel = kernels.register
register_position = positions.register

starts: dict[str, dict[str, Any]] = {}
"""Declarations of recipes about the models that they fine-tune, by recipe; see `regard.runs.starts.Start`."""


def register_recipe(name: str, **start: Any) -> Callable[[Any], Any]:
    """Register a recipe; `start` are the fields of `regard.runs.starts.Start`, for `regard finetune`."""
    starts[name] = start
    return recipes.register(name)


register_modality = modalities.register
