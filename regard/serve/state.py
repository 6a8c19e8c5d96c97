"""What every route needs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import Request

from regard.serve.metrics import Metrics
from regard.serve.settings import Settings
from regard.serve.shelf import Shelf

if TYPE_CHECKING:
    from regard.serve.looks import Looks


@dataclass(frozen=True, slots=True)
class State:
    """The parts of one server."""

    settings: Settings
    shelf: Shelf
    metrics: Metrics
    looks: "Looks"
    opening: tuple[Any, ...] = ()
    """What the page looks at before anybody gave it something else."""


def state_of(request: Request) -> State:
    state: State = request.app.state.parts
    return state
