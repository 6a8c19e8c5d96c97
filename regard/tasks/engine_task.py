"""The base of tasks that generate tokens with an engine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.native.record import is_watched
from regard.tasks.base import Option, Task, Verb

VALIDATED = 64
"""Outputs that are generated at a validation."""
GENERATE_OPTIONS = (
    Option(name="max_new_tokens", kind=int, limits=(1, 1 << 20), help="The most tokens to generate."),
    Option(name="sampling", kind=object, help="How tokens are sampled; none: the most probable ones."),
)
SEARCH_OPTIONS = (
    Option(name="beams", kind=int, limits=(1, 64), help="Beams; 1 is greedy."),
    Option(name="length_penalty", kind=float, help="Scores are divided by length to this power."),
    *GENERATE_OPTIONS,
)
BEAM_OPTIONS = (
    *SEARCH_OPTIONS,
    Option(name="n_best", kind=int, default=1, limits=(1, 64), help="Outputs for each input."),
)
BEAMS = 4
"""Beams of a search, by default."""
GENERATE = Verb(
    name="generate", does="writes", input="prompt", options=SEARCH_OPTIONS, as_json=lambda text: {"text": text},
    render=lambda answer: answer["text"], blank=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Continuation:
    """A continuation of a prompt, with its score: the log-probability divided by a power of the length."""

    text: str
    score: float
    ids: tuple[int, ...]


def texts_as_json(results: Sequence[Any]) -> list[dict[str, Any]]:
    """Generated texts with their scores, the best first."""
    return [{"text": result.text, "score": round(result.score, 6)} for result in results]


def render_texts(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each generated text; where there are several, with their scores."""
    return "\n".join(f"{row['score']:8.4f}  {row['text']}" if len(rows) > 1 else row["text"] for row in rows)


class EngineTask(Task):
    """A generative model with an engine of its own."""

    generates = True
    tokenizer: Any
    request: Callable[..., Request]
    _engine: Engine | None = None
    _state: Any = None
    _limits: Mapping[str, Any] = {}

    def limit_engine(self, **limits: Any) -> None:
        self._engine, self._limits = None, limits

    @property
    def engine(self) -> Engine:
        """The engine that generates; assign another one for other limits. It is rebuilt after the weights have changed;
        while hooks watch the model, the engine runs the model's own layers."""
        if is_watched(self.model):
            return Engine(self.model, **self._limits)
        state = state_of(self.model)
        if self._engine is None or self._state != state:
            self._engine, self._state = Engine(self.model, **self._limits), state
        return self._engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        self._engine, self._state = engine, state_of(self.model)

    def greedy(self, inputs: Iterable[Any]) -> list[str]:
        """The greedy output for each input of `request`."""
        tickets = self.engine.serve(self.request(item, beams=1, row=row) for row, item in enumerate(inputs))
        ids = [ticket.hypotheses[0].ids if ticket.hypotheses else () for ticket in tickets]
        return self.tokenizer.decode_batch(ids)


def state_of(model: Any) -> list[tuple[Any, ...]]:
    """The address, version, dtype and device of each tensor: it changes whenever a weight does."""
    tensors = [*model.parameters(), *model.buffers()]
    return [(t.data_ptr(), 0 if t.is_inference() else t._version, t.dtype, t.device) for t in tensors]


def count_or(default: int, most: int | None) -> int:
    """The number of tokens to generate: `most`, checked, or the default."""
    if most is not None and most < 1:
        raise ValueError(f"max_new_tokens={most} must be at least 1")
    return default if most is None else most
