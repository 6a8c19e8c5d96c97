"""Inputs of a request, read by their modality, and the work of a model on them, a few at a time."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import Request

from regard.modalities import Modality
from regard.serve.answers import within_limit
from regard.serve.errors import Refused
from regard.serve.model_store import ServedModel
from regard.serve.schemas import MOST_IMAGES
from regard.serve.state import state_of

AT_ONCE = MOST_IMAGES
"""Inputs after which other requests get their turn, and a disconnected client is noticed."""
CHARACTERS_AT_ONCE = 2**16
"""Characters of texts after which others get their turn, too."""
MOST_PIXELS = 2**26
"""Pixels of all images, or samples of all recordings, of one request: a few kilobytes can claim more
than the memory holds."""


def receive(record: Modality, values: Sequence[Any], field: str) -> list[Any]:
    """Inputs of a modality from a field of a request, read one after the other; not for the event loop.

    Their headers are looked at before any of them is read."""
    try:
        files = [record.unpack(value) for value in values]
        pixels = sum(map(record.pixels, files)) if record.files else 0
        if pixels > MOST_PIXELS:
            counted = f"{len(files)} {record.plural} have" if len(files) > 1 else f"the {record.field} has"
            limit = f"one request may have {MOST_PIXELS:,}"
            raise ValueError(f"{counted} {pixels:,} {record.pixel}s, {limit}; make them smaller, or send fewer at once")
        return [record.read(file) for file in files]
    except ValueError as error:
        raise Refused(400, f"{field}: {error}", param=field) from None


def listed(values: str | Sequence[str]) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


def check_inputs(served: ServedModel, values: str | Sequence[str]) -> list[str]:
    """The values of a request's inputs, if they are not too many or too long."""
    inputs, record = listed(values), served.modality
    if not record.files:
        served.check_length(inputs, "input")
    elif len(inputs) > MOST_IMAGES:
        raise Refused(400, f"{len(inputs)} {record.unit} in one request; send at most {MOST_IMAGES}", param="input")
    return inputs


def check_words(served: ServedModel, verb: str, values: Sequence[Any], field: str = "input") -> None:
    """Raise an error for a text of nothing but space, unless the verb has an answer to one."""
    if served.modality.files or served.verbs[verb].blank:
        return
    for number, value in enumerate(values, 1):
        if isinstance(value, str) and not value.strip():
            which = f"text {number} of {len(values):,}" if len(values) > 1 else "the text"
            raise Refused(400, f"{which} is empty, and there is nothing to {verb}; leave it out", param=field)


def groups(columns: Sequence[Sequence[Any]], characters: int) -> Iterator[slice]:
    """Slices of inputs, whose values are in columns, that are not too many or too long to be worked on at once."""
    first = size = 0
    for number, row in enumerate(zip(*columns, strict=True)):
        more = sum(len(value) for value in row if isinstance(value, str))
        if number > first and (number - first == AT_ONCE or size + more > characters):
            yield slice(first, number)
            first, size = number, 0
        size += more
    yield slice(first, len(columns[0]))


async def in_groups(
    run: Callable[..., Awaitable[Sequence[Any]]], work: Callable[..., Sequence[Any]], inputs: Sequence[Any],
    paired: Mapping[str, Sequence[Any]] | None = None, characters: int = CHARACTERS_AT_ONCE,
) -> list[Any]:  # fmt: skip
    """The results of `work(inputs)` for groups of inputs, each a call of `run`; `paired` keywords have a value for each
    input."""
    for name, values in (paired or {}).items():
        if len(values) != len(inputs):
            raise Refused(400, f"{len(inputs)} of input but {len(values)} of {name}; send one for each", param=name)
    results: list[Any] = []
    for group in groups([inputs, *(paired or {}).values()], characters):
        pairs = {name: values[group] for name, values in (paired or {}).items()}
        try:
            results += await run(partial(work, inputs[group], **pairs))
        except ValueError as error:
            which = f"inputs {group.start + 1} to {group.stop}: " if group.stop - group.start < len(inputs) else ""
            raise Refused(400, f"{which}{error}", param="input") from None
    return results


async def answer(
    request: Request, served: ServedModel, verb: str, values: Sequence[Any], options: Mapping[str, Any],
    paired: Mapping[str, Sequence[Any]] | None = None, *, field: str = "input", **fields: Any,
) -> dict[str, Any]:  # fmt: skip
    """The body of a response with the task's answer for each input, from the values in a field of the request; `fields`
    are those of every row."""
    check_words(served, verb, values, field)

    def work(group: Sequence[Any], **pairs: Sequence[Any]) -> list[dict[str, Any]]:
        return served.task.answers(verb, receive(served.modality, group, field), **options, **pairs)

    most = sys.maxsize if served.modality.files else CHARACTERS_AT_ONCE  # files are counted in pixels, all at once
    rows = in_groups(state_of(request).store.pools.run, work, values, paired, most)
    return listing(served, await within_limit(request, rows), **fields)


def listing(served: ServedModel, answers: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """The body of a response with a row for each answer; `fields` are those of every row."""
    rows = [fields | {"index": index} | dict(answer) for index, answer in enumerate(answers)]
    return {"object": "list", "model": served.name, "data": rows}
