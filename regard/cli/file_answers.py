"""The texts of --input answered to --out: in order, resumed where a call was stopped, by this process or by actors."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from regard.cli.base import DEVICE, import_own
from regard.cli.query import Query
from regard.data.notices import Count
from regard.data.readers.inputs import matches
from regard.data.readers.packed import plain_name
from regard.data.terminal import echo
from regard.tasks.bulk import Answers, Part, Work, answered, embedded, generated, is_plain, with_answer, written

Put = Callable[[int, dict[str, Any], str], None]
"""A function that takes the index of a text, its answer, and that as a line."""


def answer_file(query: Query, out: Path, options: dict[str, Any]) -> Any:
    """Write the rows of --input with the answers of a verb to a file, and return the task."""
    check_file(query)
    task = query.load(**options)
    task.check_inputs(query.texts)
    asked, single = query.asked(task), query.single(task, options)
    common = {name: value for name, value in options.items() if name not in single}

    def fill(left: Sequence[int], put: Put) -> None:
        parts = query.split(left, single, at_once=not query.engine and options.get("sampling") is not None)
        for answer in compute(query, task, parts, answered, query.verb, common):
            put(*answer)

    about = {name: value[:1] if name in single else value for name, value in options.items()}
    write(query, task, out, asked, about, fill)
    return task


def write_vectors(query: Query, out: Path) -> Any:
    """Write the vectors of --input to an array, a row for each text, and return the task."""
    check_file(query)
    task = query.load()
    task.check_inputs(query.texts)

    def fill(left: Sequence[int], put: Put) -> None:
        for answer in compute(query, task, query.split(left, {}), embedded, "vectors", {}):
            put(*answer)

    write(query, task, out, range(len(query.texts)), {}, fill, vectors=True)
    return task


def write_texts(
    query: Query, task: Any, out: Path, settings: dict[str, Any], *, drafting: dict[str, Any], method: str = "",
    **about: Any,
) -> None:  # fmt: skip
    """Write the rows of --input with the texts that a model generates for them; `method` is that of the task, where it
    is not the verb's, and `about` is recorded beside the settings."""
    check_file(query)
    if query.engine and drafting:
        raise ValueError("--draft and --lookup do not go with --engine; leave them out: the texts are the same")
    asked = query.asked(task)
    try:
        task.check([query.texts[index] for index in asked])
    except ValueError as error:
        raise ValueError(f"{query.input}: {error}") from None

    def fill(left: Sequence[int], put: Put) -> None:
        def ready(number: int, output: Any) -> None:
            put(left[number], *written(output))

        # The number of a text among all seeds its samples, whatever was answered before.
        first, name = len(asked) - len(left), method or query.verb
        if query.engine:
            for answer in compute(query, task, query.split(left, {}, before=first), generated, name, settings):
                put(*answer)
        else:
            texts = [query.texts[index] for index in left]
            getattr(task, name)(texts, each=ready, first=first, **settings, **drafting)

    write(query, task, out, asked, about | settings | {"method": method}, fill)


def check_file(query: Query) -> None:
    """Raise an error where answers cannot go to a file: without --input, or with --json."""
    if query.input is None:
        raise ValueError("--out answers the texts of a file; name it with --input")
    if query.as_json:
        raise ValueError("--json does not go with --out; leave one of them out")
    if query.actors and not query.engine:
        raise ValueError("--actors are those of --engine ray; name it, or leave them out")


def compute(
    query: Query, task: Any, parts: Iterable[Part], work: Work, method: str, options: dict[str, Any]
) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield the index and the answer of each text, computed here or by the actors of --engine."""
    if query.engine is None:
        for part in parts:
            yield from part.answers(work, task, method, options)
        return
    from regard.tasks.actors import answers_of_actors

    device, run = os.environ.get(DEVICE, "auto"), Path(query.run)
    plugins = click.get_current_context().find_root().params["plugins"]
    plugins = [str(Path(name).resolve()) if name.endswith(".py") else name for name in plugins]
    place = str(run.resolve()) if run.exists() else query.run
    load = partial(load_there, plugins, query.verb, place, query.quantize)
    yield from answers_of_actors(load, parts, work, method, options, device=device, count=query.actors)


def load_there(plugins: Sequence[str], verb: str, run: str, quantize: Any) -> Any:
    """Load a model in another process, which imports the plugins of this one first."""
    for name in plugins:
        import_own(name)
    from regard.tasks import load_for

    return load_for(verb, run, quantize)


def write(
    query: Query, task: Any, out: Path, asked: Sequence[int], about: dict[str, Any],
    fill: Callable[[Sequence[int], Put], None], *, vectors: bool = False,
) -> None:  # fmt: skip
    """Write each row of --input with its answer to a file, in order; resume where an earlier call was stopped.

    `fill` gets the indices of the texts that are left, and a function for each of their answers; `about` are the
    options, which have to agree if the file is resumed.
    """
    inputs = query.inputs
    rows = inputs.rows or [{task.field_of(query.verb, text): text} for text in inputs.texts]
    about |= {"quantize": query.quantize or "none", "run": query.run, "verb": query.verb}
    settings = {name: str(value) for name, value in about.items()}
    if about.get("n_best", 1) > 1 and is_plain(out):
        raise ValueError(f"--n-best needs more than a line; write {plain_name(out).with_suffix('.jsonl').name} instead")
    if query.input is not None and matches(out, query.input):
        raise ValueError(f"{out} is one of the files that {query.input} stands for; choose another --out")
    answers = Answers(out, rows, settings, inputs.files, inputs.separator, vectors)
    if answers.done:
        echo(f"resuming after {answers.done:,} answers of an earlier call", err=True)
    taken, columns = {name for row in rows for name in row}, task.verb(query.verb).columns
    left = [index for index in asked if index >= answers.done]
    with Count(f"{query.verb}:", len(left)) as count:

        def put(index: int, answer: dict[str, Any], line: str) -> None:
            fields = columns(answer) | ({} if answers.table else answer)
            answers.put(index, fields if vectors else with_answer(rows[index], fields, taken), line)
            count.add()

        try:
            for index in sorted(set(range(answers.done, len(rows))) - set(left)):
                answers.put(index, rows[index], "")
            fill(left, put)
        finally:
            answers.close()
    echo(f"saved: {out}", err=True)
