"""Inputs of a request, read by their modality, and the work of a model on them, a few at a time."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import Request

from regard.modalities import Modality
from regard.serve.answers import within_limit
from regard.serve.errors import Refused
from regard.serve.model_store import ModelStore, ServedModel
from regard.serve.schemas import MOST_IMAGES
from regard.serve.state import state_of

AT_ONCE = 32
"""Inputs after which other requests get their turn, and a disconnected client is noticed."""


def receive(record: Modality, value: Any, field: str) -> Any:
    """An input of a modality, from a field of a request."""
    try:
        return record.receive(value)
    except ValueError as error:
        raise Refused(400, f"{field}: {error}", param=field) from None


def listed(values: str | Sequence[str]) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


def read_inputs(served: ServedModel, values: str | Sequence[str]) -> list[Any]:
    """The inputs of a request as the model's task takes them."""
    inputs, record = listed(values), served.modality
    if not record.files:
        served.check_length(inputs, "input")
    elif len(inputs) > MOST_IMAGES:
        raise Refused(400, f"{len(inputs)} {record.unit} in one request; send at most {MOST_IMAGES}", param="input")
    return [receive(record, value, "input") for value in inputs]


async def in_groups(
    store: ModelStore, work: Callable[..., Sequence[Any]], inputs: Sequence[Any],
    paired: Mapping[str, Sequence[Any]] | None = None,
) -> list[Any]:  # fmt: skip
    """The results of `work(inputs)` for groups of inputs, in the worker thread; `paired` keywords have a value for each
    input."""
    for name, values in (paired or {}).items():
        if len(values) != len(inputs):
            raise Refused(400, f"{len(inputs)} of input but {len(values)} of {name}; send one for each", param=name)
    results: list[Any] = []
    for first in range(0, len(inputs), AT_ONCE):
        group = slice(first, first + AT_ONCE)
        pairs = {name: values[group] for name, values in (paired or {}).items()}
        try:
            results += await store.run(partial(work, inputs[group], **pairs))
        except ValueError as error:
            which = f"inputs {first + 1} to {min(first + AT_ONCE, len(inputs))}: " if len(inputs) > AT_ONCE else ""
            raise Refused(400, f"{which}{error}", param="input") from None
    return results


async def answer(
    request: Request, served: ServedModel, verb: str, inputs: Sequence[Any], options: Mapping[str, Any],
    paired: Mapping[str, Sequence[Any]] | None = None, **fields: Any,
) -> dict[str, Any]:  # fmt: skip
    """The body of a response with the task's answer for each input; `fields` are those of every row."""
    work = partial(served.task.answers, verb, **options)
    rows = in_groups(state_of(request).store, work, inputs, paired)
    return listing(served, await within_limit(request, rows), **fields)


def listing(served: ServedModel, answers: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """The body of a response with a row for each answer; `fields` are those of every row."""
    rows = [fields | {"index": index} | dict(answer) for index, answer in enumerate(answers)]
    return {"object": "list", "model": served.name, "data": rows}
