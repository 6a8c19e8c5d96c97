"""The parts of a server that its routes share."""

from dataclasses import dataclass
from typing import Any

from fastapi import Request

from regard.serve.metrics import Metrics
from regard.serve.model_store import ModelStore
from regard.serve.settings import Settings


@dataclass(frozen=True, slots=True)
class State:
    """Settings, models and metrics of one server."""

    settings: Settings
    store: ModelStore
    metrics: Metrics
    looks: Any
    """The forward passes that the page's view of a model asks about."""
    opening: tuple[Any, ...] = ()
    """The input that the page shows first."""


def state_of(request: Request) -> State:
    state: State = request.app.state.parts
    return state
