"""What all share that write texts with a model."""

from typing import Any

from regard.decode.engine import Engine
from regard.native.record import is_watched


class EngineTask:
    """A model with an engine of its own."""

    model: Any
    _engine: Engine | None = None
    _state: Any = None

    @property
    def engine(self) -> Engine:
        """What writes; set another one for other limits. It is built anew where the model has changed, and while
        someone looks at the model, its own layers work."""
        if is_watched(self.model):
            return Engine(self.model)
        state = state_of(self.model)
        if self._engine is None or self._state != state:
            self._engine, self._state = Engine(self.model), state
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine, self._state = engine, state_of(self.model)


def state_of(model: Any) -> list[tuple[Any, ...]]:
    """Changes with every weight: where it is, what it is made of, and how often it was written."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.device) for t in tensors]


def told_or(default: int, most: int | None) -> int:
    """How many tokens to write."""
    if most is not None and most < 1:
        raise ValueError(f"max_new_tokens={most} must be at least 1")
    return default if most is None else most
