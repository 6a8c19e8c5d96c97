"""What every route needs."""

from dataclasses import dataclass

from fastapi import Request

from regard.serve.metrics import Metrics
from regard.serve.settings import Settings
from regard.serve.shelf import Shelf


@dataclass(frozen=True, slots=True)
class State:
    """The parts of one server."""

    settings: Settings
    shelf: Shelf
    metrics: Metrics


def state_of(request: Request) -> State:
    state: State = request.app.state.parts
    return state
