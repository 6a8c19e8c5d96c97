"""The common part of all verbs' commands: read RUN and its inputs, print the task's answers or write them to a file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.base import PATH, Command, device_option, emit, importing, json_option, quantize_option, regard
from regard.cli.completion import complete_run
from regard.data.notices import Count
from regard.data.terminal import echo

if TYPE_CHECKING:
    from regard.data.readers.inputs import Inputs
    from regard.tasks.bulk import Part

out_option = click.option(
    "--out",
    type=PATH,
    help="Write the rows of --input with their answers there (.csv, .tsv, .jsonl, or lines; also packed, .csv.gz), in "
    "order; an interrupted run is resumed.",
)
input_option = click.option(
    "--input",
    "input_",
    type=PATH,
    help='A file with a text a line, or a table (.csv, .jsonl …); or a pattern of several, "corpus/*.jsonl" (no TEXT '
    "and no file: stdin).",
)
columns_option = click.option(
    "--columns",
    "--data.columns",
    "columns",
    metavar="text=NAME",
    help="The column of --input that is the text, by name or number; text=a+b joins several.  [default: as trained]",
)
engine_option = click.option(
    "--engine", type=click.Choice(["ray"]), help="Map --input to --out by Ray Data, over the machines of a cluster."
)
actors_option = click.option(
    "--actors", type=click.IntRange(1),
    help="Processes of --engine that have the model.  [default: one for each GPU of the cluster, or CPU]",
)  # fmt: skip
SAMPLING = (
    click.option(
        "--temperature", type=float, help="Sample tokens at this temperature instead of taking the best; 0 is greedy."
    ),
    click.option("--top-k", type=int, help="Sample among the k best only."),
    click.option("--top-p", type=float, help="Sample among the best that reach this probability."),
    click.option("--min-p", type=float, help="Sample among those at least this fraction as probable as the best."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampling."),
)


def with_sampling(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a command with `sampling` in place of those of SAMPLING; None is greedy or beam search."""
    from regard.decode.sample import sampling_of

    seed = options.pop("seed")
    fields = {name: options.pop(name) for name in ("temperature", "top_k", "top_p", "min_p")}
    if fields["temperature"] == 0 and "beams" in options:  # greedy is one beam
        options["beams"] = options["beams"] or 1
    chosen: Any = {name: value for name, value in fields.items() if value is not None}
    return options | {"sampling": sampling_of(None, chosen | {"seed": seed} if chosen else {})}


FIRST_PART, LARGEST_PART = 8, 256
"""Texts that are answered before the first answer is printed, and most texts that are answered together."""


def parts(number: int, *, at_once: bool) -> Iterator[slice]:
    """Parts of a list, small ones first: answers are printed soon, and large parts are faster."""
    start, size = 0, number if at_once else FIRST_PART
    while start < number:
        yield slice(start, start + size)
        start, size = start + size, min(2 * size, LARGEST_PART)


@dataclass(frozen=True)
class Query:
    """A call of a verb's command: the verb, RUN, its inputs, and how the answers are printed."""

    verb: str
    run: str
    items: tuple[str, ...]
    input: Path | None
    quantize: Any
    as_json: bool
    columns: str | None = None
    engine: str | None = None
    actors: int | None = None

    @cached_property
    def inputs(self) -> "Inputs":
        """The arguments, the texts of a file, by the columns that the model was trained on, or the lines of stdin."""
        from regard.data.readers.columns import split_pairs
        from regard.data.readers.inputs import Inputs, read_inputs
        from regard.data.readers.text_files import split_lines
        from regard.hub.remote import find
        from regard.runs.recipe import columns_of

        if self.items and self.input:
            raise ValueError("give either TEXT or --input, not both")
        if self.columns is not None and self.input is None:
            raise ValueError("--columns are those of a table; name it with --input")
        if self.items:
            return Inputs(list(self.items), unit="text")
        if self.input is None:
            return Inputs(split_lines(sys.stdin.buffer.read(), Path("stdin")))
        named = split_pairs(self.columns.split(",")) if self.columns is not None else {}
        return read_inputs(self.input, columns_of(find(self.run)), named)

    @property
    def texts(self) -> list[str]:
        return self.inputs.texts

    def load(self, **options: Any) -> Any:
        """The task in RUN; an error if it lacks the verb or does not take these options."""
        with importing():
            from regard.tasks import load_for

        task = load_for(self.verb, self.run, self.quantize)
        task.verb(self.verb).check_options(options, self.run)
        return task

    def answer(self, **options: Any) -> Any:
        """Print the answer for each text, and return the task; an empty text has an empty line."""
        if self.engine or self.actors:
            raise ValueError("--engine and --actors map a file to a file; name them with --input and --out")
        texts = self.texts
        task = self.load(**options)
        task.check_inputs(texts)
        asked = self.asked(task)
        empty = set(range(len(texts))) - set(asked)
        # In a terminal the answers themselves show how far it is.
        with Count(f"{self.verb}:", len(texts)) if not sys.stdout.isatty() else nullcontext() as count:
            answers = self.ask(task, asked, options)
            for index, text in enumerate(texts):
                answer = None if index in empty else next(answers)[1]
                self.show(task, text, answer, several=len(texts) > 1)
                if count is not None:
                    count.add()
        return task

    def asked(self, task: Any) -> Sequence[int]:
        """The indices of the texts that are answered: all, unless the verb has no answer to an empty text."""
        inputs, number = self.inputs, len(self.texts)
        empty = [] if task.verb(self.verb).blank else inputs.empty
        if not empty:
            return range(number)
        if len(empty) == number:
            where = f"{self.input}: every text is empty" if self.input else "the text is empty"
            raise ValueError(f"{where}; there is nothing to {self.verb}")
        places = ", ".join(map(inputs.place, empty[:3])) + " …" * (len(empty) > 3)
        verb = "is empty and gets" if len(empty) == 1 else "are empty and get"
        echo(f"{len(empty):,} of {number:,} texts {verb} no answer: {places}", err=True)
        return sorted(set(range(number)) - set(empty))

    def ask(self, task: Any, indices: Sequence[int], options: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the index and the answer of each of these texts."""
        from regard.tasks.bulk import answered

        single = self.single(task, options)
        common = {name: value for name, value in options.items() if name not in single}
        for part in self.split(indices, single, at_once=options.get("sampling") is not None):
            yield from ((index, answer) for index, answer, _ in part.answers(answered, task, self.verb, common))

    def single(self, task: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The options that have a value for each text."""
        names = {option.name for option in task.verb(self.verb).options if option.each}
        return {name: value for name, value in options.items() if name in names}

    def split(
        self, indices: Sequence[int], single: dict[str, Any], *, at_once: bool = False, before: int = 0
    ) -> Iterator["Part"]:
        """Yield texts in parts, with the options that have a value for each; `before` them others were answered."""
        from regard.tasks.bulk import Part

        for part in parts(len(indices), at_once=at_once):
            chunk = list(indices[part])
            own = {name: [values[index] for index in chunk] for name, values in single.items()}
            yield Part(chunk, [self.texts[index] for index in chunk], own, before + part.start)

    def show(self, task: Any, item: Any, answer: dict[str, Any] | None, *, several: bool) -> None:
        """Print one answer, or an empty one; where there are `several` files, each line names its file."""
        from regard.modalities import modality_of

        field, render = task.field_of(self.verb, item), task.verb(self.verb).render
        named = ""
        if several and (modality_of(item, task.inputs).files or self.verb == "classify"):
            named = f"\t{' '.join(str(item).split())}"  # an answer is one line, whatever the text's own
        emit(
            {field: item} | (answer or {}), self.as_json,
            lambda _: "\n".join(line + named for line in render(answer).split("\n")) if answer else "",
        )  # fmt: skip


def make_command(
    name: str, work: Callable[..., Any], *options: Any, help: str | None, items: str = "text", required: bool = False,
    from_file: bool = True, prints: bool = True, cls: type[click.Command] = Command,
) -> click.Command:  # fmt: skip
    """The command of a verb: `work(query, **options)`, where RUN, inputs, --quantize and --json make the query.

    Inputs are arguments called `items` or, unless `from_file` is False, lines of --input or stdin.
    """

    def callback(
        run: str, quantize: Any, as_json: bool = False, input_: Path | None = None, columns: str | None = None,
        engine: str | None = None, actors: int | None = None, **others: Any,
    ) -> None:  # fmt: skip
        work(Query(name, run, others.pop(items), input_, quantize, as_json, columns, engine, actors), **others)

    arguments = click.argument("run", shell_complete=complete_run), click.argument(items, nargs=-1, required=required)
    first = [input_option, columns_option, engine_option, actors_option] * from_file
    last = [json_option] * prints
    for add in reversed([*arguments, *first, *options, quantize_option, device_option, *last]):
        add(callback)
    return click.command(name, help=help, cls=cls)(callback)


def verb(*options: Any, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a function the command of its name's verb; `settings` as in `make_command`."""

    def add(work: Callable[..., Any]) -> Callable[..., Any]:
        regard.add_command(make_command(work.__name__, work, *options, help=work.__doc__, **settings))
        return work

    return add
