"""Names for models, kernels, positions, recipes, tasks and modalities. Registering enrols in the laws."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from regard.config import nearest, parse


class Registry:
    """A dictionary of classes or functions that names the closest entry when a name is unknown.

    A name may carry settings of the entry's own, as in `rotary:base=500000` or `relative:buckets=32,far=64`.
    """

    def __init__(self, what: str, hint: str = "") -> None:
        self.what, self.hint = what, hint
        self._entries: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Any], Any]:
        def add(entry: Any) -> Any:
            if name in self._entries:
                raise ValueError(f"{self.what} {name!r} is registered already; choose another name")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> Any:
        name = name.partition(":")[0]
        if name not in self._entries:
            raise ValueError(f"unknown {self.what} {name!r}; {nearest(name, self._entries)}{self.hint}")
        return self._entries[name]

    def settings(self, name: str) -> dict[str, Any]:
        """What a name says behind its colon, each value read as its parameter's type."""
        parameters = inspect.signature(self[name]).parameters
        known = {key: p for key, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD}  # sizes are not settings
        found: dict[str, Any] = {}
        for part in filter(None, name.partition(":")[2].split(",")):
            key, _, value = part.partition("=")
            if key not in known:
                raise ValueError(f"{self.what} {name!r}: no setting {key!r}; {nearest(key, known)}")
            found[key] = parse(value, known[key].annotation, f"{key} of {self.what} {name!r}")
        return found

    def build(self, name: str, **arguments: Any) -> Any:
        """The entry called with its settings and `arguments`."""
        settings = self.settings(name)
        try:
            return self[name](**settings, **arguments)
        except ValueError as error:
            raise ValueError(f"{self.what} {name!r}: {error}" if settings else str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: str) -> bool:
        return name.partition(":")[0] in self._entries

    def name_of(self, entry: Any) -> str:
        return next(name for name, known in self._entries.items() if known is entry)


OWN = " (one of your own: regard --plugin MODULE …)"
models = Registry("model", OWN)
kernels = Registry("kernel", OWN)
positions = Registry("position", OWN)
recipes = Registry("recipe", OWN)
tasks = Registry("task", OWN)
modalities = Registry("modality", OWN)

register_model = models.register
register_kernel = kernels.register
register_position = positions.register
register_recipe = recipes.register
register_modality = modalities.register
