"""The views of a model at work on one input, by name: each is plain data, lines for a terminal, and a figure.

A view declares its options; the command line checks them by that. Which views a model and its input have, the
`Prepared` input says (`prepared.views`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.models import parts
from regard.tasks.prepared import Prepared

Shown = tuple[dict[str, Any], Callable[[str | Path | None], Any]]
"""Plain data, and a function that draws them to a path (none: it only returns the figure)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view of a model: a function that computes data and a figure from one prepared input."""

    name: str
    show: Callable[..., Shown]
    """Function of the prepared input and the view's options that returns `Shown`."""
    render: Callable[[dict[str, Any]], str]
    """Function from the data to lines for a terminal."""
    options: tuple[str, ...] = ()
    """Names of options: layer, head, patch (row and column), at (an output), token, kind, against (another input),
    beams, data (other inputs)."""
    needs_weights: bool = True
    """Whether it needs kernels that have weights to show."""
    complete: bool = True
    """Whether a figure shows all that there is to say, so that nothing needs to be printed beside it."""


VIEWS: dict[tuple[str, bool], View] = {}
"""Views by name, and by whether they need the grids of an image's layers."""


def register_view(view: View, *grids: bool) -> View:
    """Add a view for inputs with grids (True), without (False), or by default for both."""
    VIEWS.update({(view.name, on_grid): view for on_grid in grids or (True, False)})
    return view


def find_view(prepared: Prepared, name: str | None = None) -> View:
    """A view of an input by its name, or the first that there is; an unknown name is an error that lists them."""
    known = prepared.views
    family = type(prepared.model).__name__
    if not known or name is None and not parts.attention_layers(prepared.model):
        cure = "".join(f"--view {other} or " for other in known)
        raise ValueError(f"a {family} has no attention to look at; use {cure}--out page.html")
    name = known[0] if name is None else name
    if name not in known or (name, bool(prepared.grids)) not in VIEWS:
        raise ValueError(f"a {family} has no view {name!r} of this input; use {' or '.join(known)}")
    return VIEWS[name, bool(prepared.grids)]


def show_view(prepared: Prepared, name: str | None = None, **options: Any) -> Shown:
    """The data of a view, and a function that draws them; an option that the view does not have is an error."""
    view = find_view(prepared, name)
    wrong = [option for option, value in options.items() if value is not None and option not in view.options]
    if wrong:
        raise ValueError(f"the view {view.name} has no option {wrong[0]}; leave it out")
    data, draw = view.show(prepared, **{option: value for option, value in options.items() if value is not None})
    return {"view": view.name} | data, draw


def draw_view(task: Any, name: str, item: Any, path: str | Path | None = None, **options: Any) -> Any:
    """Draw a view of a task's model at work on one input; the figure is returned."""
    return show_view(task.read(item), name, **options)[1](path)
