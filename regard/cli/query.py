"""The common part of all verbs' commands: read RUN and its inputs, print the task's answers or write them to a file."""

import re
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
    help="A file with a text a line, or a table (.csv, .jsonl …; no TEXT and no file: stdin).",
)
columns_option = click.option(
    "--columns",
    "--data.columns",
    "columns",
    metavar="text=NAME",
    help="The column of --input that is the text, by name or number; text=a+b joins several.  [default: as trained]",
)
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


Put = Callable[[int, dict[str, Any], str], None]
"""A function that takes the index of a text, its answer, and that as a line."""
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

    def reply(self, out: Path | None, **options: Any) -> None:
        """Print the answer for each text, or write them to a file."""
        if out is None:
            self.answer(**options)
        else:
            self.answer_file(out, options)

    def answer(self, **options: Any) -> Any:
        """Print the answer for each text, and return the task; an empty text has an empty line."""
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
        """Yield the index and the answer of each of these texts; an error names a text by its number among all."""
        single = {option.name for option in task.verb(self.verb).options if option.each} & options.keys()
        for part in parts(len(indices), at_once=options.get("sampling") is not None):
            chunk = indices[part]
            own = options | {name: [options[name][index] for index in chunk] for name in single}
            try:
                answers = task.answers(self.verb, [self.texts[index] for index in chunk], **own)
            except ValueError as error:
                if match := re.match(r"text (\d+)", text := str(error)):
                    text = f"text {chunk[int(match[1]) - 1] + 1}{text[match.end() :]}"
                raise ValueError(text) from None
            yield from zip(chunk, answers, strict=True)

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

    def answer_file(self, out: Path, options: dict[str, Any]) -> None:
        """Write the rows of --input with the answers of a verb to a file."""
        self.check_file()
        task = self.load(**options)
        task.check_inputs(self.texts)
        declared = task.verb(self.verb)
        single = {option.name for option in declared.options if option.each}

        def work(left: Sequence[int], put: Put) -> None:
            for index, answer in self.ask(task, left, options):
                put(index, answer, declared.render(answer))

        about = {name: value[:1] if name in single else value for name, value in options.items()}
        self.write(task, out, self.asked(task), about, work)

    def write_texts(
        self, task: Any, out: Path, settings: dict[str, Any], *, drafting: dict[str, Any], method: str = "",
        **about: Any,
    ) -> None:  # fmt: skip
        """Write the rows of --input with the texts that a model generates for them; `method` is that of the task, where
        it is not the verb's, and `about` is recorded beside the settings."""
        from regard.tasks.bulk import written

        self.check_file()
        asked = self.asked(task)
        try:
            task.check([self.texts[index] for index in asked])
        except ValueError as error:
            raise ValueError(f"{self.input}: {error}") from None

        def work(left: Sequence[int], put: Put) -> None:
            def ready(number: int, output: Any) -> None:
                put(left[number], *written(output))

            # The number of a text among all seeds its samples, whatever was answered before.
            first, texts = len(asked) - len(left), [self.texts[index] for index in left]
            getattr(task, method or self.verb)(texts, each=ready, first=first, **settings, **drafting)

        self.write(task, out, asked, about | settings | {"method": method}, work)

    def check_file(self) -> None:
        """Raise an error where answers cannot go to a file: without --input, or with --json."""
        if self.input is None:
            raise ValueError("--out answers the texts of a file; name it with --input")
        if self.as_json:
            raise ValueError("--json does not go with --out; leave one of them out")

    def write(
        self, task: Any, out: Path, asked: Sequence[int], about: dict[str, Any],
        work: Callable[[Sequence[int], Put], None],
    ) -> None:  # fmt: skip
        """Write each row of --input with its answer to a file, in order; resume where an earlier call was stopped.

        `work` gets the indices of the texts that are left, and a function for each of their answers; `about` are the
        options, which have to agree if the file is resumed.
        """
        from regard.data.readers.packed import plain_name
        from regard.tasks.bulk import Answers, is_plain, with_answer

        inputs = self.inputs
        rows = inputs.rows or [{task.field_of(self.verb, text): text} for text in inputs.texts]
        about |= {"quantize": self.quantize or "none", "run": self.run, "verb": self.verb}
        settings = {name: str(value) for name, value in about.items()}
        if about.get("n_best", 1) > 1 and is_plain(out):
            raise ValueError(
                f"--n-best needs more than a line; write {plain_name(out).with_suffix('.jsonl').name} instead"
            )
        answers = Answers(out, rows, settings, self.input, inputs.separator)
        if answers.done:
            echo(f"resuming after {answers.done:,} answers of an earlier call", err=True)
        taken, columns = {name for row in rows for name in row}, task.verb(self.verb).columns
        left = [index for index in asked if index >= answers.done]
        with Count(f"{self.verb}:", len(left)) as count:

            def put(index: int, answer: dict[str, Any], line: str) -> None:
                fields = columns(answer) | ({} if answers.table else answer)
                answers.put(index, with_answer(rows[index], fields, taken), line)
                count.add()

            try:
                for index in sorted(set(range(answers.done, len(rows))) - set(left)):
                    answers.put(index, rows[index], "")
                work(left, put)
            finally:
                answers.close()
        echo(f"saved: {out}", err=True)


def make_command(
    name: str, work: Callable[..., Any], *options: Any, help: str | None, items: str = "text", required: bool = False,
    from_file: bool = True, prints: bool = True, cls: type[click.Command] = Command,
) -> click.Command:  # fmt: skip
    """The command of a verb: `work(query, **options)`, where RUN, inputs, --quantize and --json make the query.

    Inputs are arguments called `items` or, unless `from_file` is False, lines of --input or stdin.
    """

    def callback(
        run: str, quantize: Any, as_json: bool = False, input_: Path | None = None, columns: str | None = None,
        **others: Any,
    ) -> None:  # fmt: skip
        work(Query(name, run, others.pop(items), input_, quantize, as_json, columns), **others)

    arguments = click.argument("run", shell_complete=complete_run), click.argument(items, nargs=-1, required=required)
    first, last = [input_option, columns_option] * from_file, [json_option] * prints
    for add in reversed([*arguments, *first, *options, quantize_option, device_option, *last]):
        add(callback)
    return click.command(name, help=help, cls=cls)(callback)


def verb(*options: Any, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a function the command of its name's verb; `settings` as in `make_command`."""

    def add(work: Callable[..., Any]) -> Callable[..., Any]:
        regard.add_command(make_command(work.__name__, work, *options, help=work.__doc__, **settings))
        return work

    return add
