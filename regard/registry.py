"""Names for models, kernels, positions and recipes. Registering enrols in the laws (`tests/laws/`)."""

from collections.abc import Callable, Iterator
from typing import Any

from regard.config import nearest


class Registry:
    """A dictionary of classes or functions that names the closest entry when a name is unknown."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Any], Any]:
        def add(entry: Any) -> Any:
            if name in self._entries:
                raise ValueError(f"{self.what} {name!r} is registered already; choose another name")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise ValueError(f"unknown {self.what} {name!r}; {nearest(name, self._entries)}")
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def name_of(self, entry: Any) -> str:
        return next(name for name, known in self._entries.items() if known is entry)


models = Registry("model")
kernels = Registry("kernel")
positions = Registry("position")
recipes = Registry("recipe")

register_model = models.register
register_kernel = kernels.register
register_position = positions.register
register_recipe = recipes.register
