"""What all share that write texts with a model."""

from typing import Any

from regard.decode.engine import Engine
from regard.native.record import is_watched


class Speaker:
    """A model with an engine of its own."""

    model: Any
    _engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """What writes; set another one for other limits. While someone looks at the model, its own layers work."""
        if is_watched(self.model):
            return Engine(self.model)
        if self._engine is None:
            self._engine = Engine(self.model)
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine = engine
