"""The common part of all verbs' commands: read RUN and its inputs, print the task's answers or write them to a file."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, Command, emit, importing, json_option, quantize_option, regard
from regard.cli.completion import complete_run
from regard.data.notices import Count

out_option = click.option(
    "--out",
    type=PATH,
    help="Write the answers to --input there (.jsonl, .txt), in order; an interrupted run is resumed.",
)
input_option = click.option(
    "--input",
    "input_",
    type=PATH,
    help="A file with a text a line, or a table (.csv, .jsonl …; no TEXT and no file: stdin).",
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

    @cached_property
    def texts(self) -> list[str]:
        """The arguments, the lines of a file, or the lines of stdin."""
        from regard.data.readers.tables import is_table
        from regard.data.readers.text_files import read_lines, split_lines

        if self.items and self.input:
            raise ValueError("give either TEXT or --input, not both")
        if self.items:
            return list(self.items)
        if self.input is not None and is_table(self.input):
            return self.table[0]
        return read_lines(self.input) if self.input else split_lines(sys.stdin.buffer.read(), Path("stdin"))

    @cached_property
    def table(self) -> tuple[list[str], list[str] | None]:
        """The texts of --input and, if it is a table of pairs, the second texts."""
        from regard.data.readers.inputs import read_inputs
        from regard.data.readers.tables import is_table

        return read_inputs(self.input) if self.input is not None and is_table(self.input) else ([], None)

    def load(self, **options: Any) -> Any:
        """The task in RUN; an error if it lacks the verb or does not take these options."""
        with importing():
            from regard.tasks import load_for

        task = load_for(self.verb, self.run, self.quantize)
        task.verb(self.verb).check_options(options, self.run)
        return task

    def answer(self, **options: Any) -> Any:
        """Print the answer for each text, and return the task."""
        texts = self.texts
        task = self.load(**options)
        task.check_inputs(texts)
        single = {option.name for option in task.verb(self.verb).options if option.each} & options.keys()
        # In a terminal the answers themselves show how far it is.
        with Count(f"{self.verb}:", len(texts)) if not sys.stdout.isatty() else nullcontext() as count:
            for part in parts(len(texts), at_once=options.get("sampling") is not None):
                own = options | {name: options[name][part] for name in single}
                for item, answer in zip(texts[part], self.answers_to(task, texts, part, own), strict=True):
                    self.show(task, item, answer, several=len(texts) > 1)
                    if count is not None:
                        count.add()
        return task

    def answers_to(self, task: Any, texts: list[str], part: slice, options: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers to a part of the texts; an error names a text by its number among all."""
        try:
            return task.answers(self.verb, texts[part], **options)
        except ValueError as error:
            numbered = re.sub(r"^text (\d+)", lambda match: f"text {int(match[1]) + part.start}", str(error))
            raise ValueError(numbered) from None

    def show(self, task: Any, item: Any, answer: dict[str, Any], *, several: bool) -> None:
        """Print one answer; where there are `several` files, each line names its file."""
        from regard.modalities import modality_of

        field, render = task.field_of(self.verb, item), task.verb(self.verb).render
        named = ""
        if several and (modality_of(item, task.inputs).files or self.verb == "classify"):
            named = f"\t{' '.join(str(item).split())}"  # an answer is one line, whatever the text's own
        emit(
            {field: item} | answer, self.as_json,
            lambda _: "\n".join(line + named for line in render(answer).split("\n")),
        )  # fmt: skip

    def answer_file(
        self, task: Any, out: Path, settings: dict[str, Any], *, others: dict[str, Any], drafting: dict[str, Any],
        method: str = "", **about: Any,
    ) -> None:  # fmt: skip
        """Answer every text of --input into a file, in order; resume where an earlier call was stopped.

        `others` are options that do not go with it; `about` is recorded beside the settings, which all have to agree;
        `method` is that of the task, where it is not the verb's.
        """
        from regard.tasks.bulk import Answers, read_records, text_of
        from regard.tasks.engine_task import texts_as_json

        if self.input is None:
            raise ValueError("--out answers the texts of a file; name it with --input")
        for name, value in (others | {"--json": self.as_json}).items():
            if value:
                raise ValueError(f"{name} does not go with --out; leave one of them out")
        if settings.get("n_best", 1) > 1 and out.suffix != ".jsonl":
            raise ValueError(f"--n-best needs more than a line; write {out.with_suffix('.jsonl').name} instead")
        records = read_records(self.input)
        texts = [text_of(record) for record in records]
        try:
            task.check(texts)
        except ValueError as error:
            raise ValueError(f"{self.input}: {error}") from None
        about |= settings | {"quantize": self.quantize, "run": self.run, "verb": self.verb}
        answers = Answers(out, texts, {name: str(value) for name, value in about.items()}, self.input)
        first = answers.done
        if first:
            click.echo(f"resuming after {first:,} answers of an earlier call", err=True)
        with click.progressbar(length=len(texts) - first, file=sys.stderr, label=self.verb) as bar:

            def put(number: int, output: Any) -> None:
                best = [{"text": output}] if isinstance(output, str) else texts_as_json(output)
                record = {"answer": best[0]["text"]} | ({"answers": best} if len(best) > 1 else {})
                answers.put(first + number, records[first + number] | record, best[0]["text"])
                bar.update(1)

            try:
                getattr(task, method or self.verb)(texts[first:], each=put, first=first, **settings, **drafting)
            finally:
                answers.close()


def make_command(
    name: str, work: Callable[..., Any], *options: Any, help: str | None, items: str = "text", required: bool = False,
    from_file: bool = True, prints: bool = True, cls: type[click.Command] = Command,
) -> click.Command:  # fmt: skip
    """The command of a verb: `work(query, **options)`, where RUN, inputs, --quantize and --json make the query.

    Inputs are arguments called `items` or, unless `from_file` is False, lines of --input or stdin.
    """

    def callback(run: str, quantize: Any, as_json: bool = False, input_: Path | None = None, **others: Any) -> None:
        work(Query(name, run, others.pop(items), input_, quantize, as_json), **others)

    arguments = click.argument("run", shell_complete=complete_run), click.argument(items, nargs=-1, required=required)
    first, last = [input_option] * from_file, [json_option] * prints
    for add in reversed([*arguments, *first, *options, quantize_option, *last]):
        add(callback)
    return click.command(name, help=help, cls=cls)(callback)


def verb(*options: Any, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function the command of the verb of its name; for `settings` see `make_command`."""

    def add(work: Callable[..., Any]) -> Callable[..., Any]:
        regard.add_command(make_command(work.__name__, work, *options, help=work.__doc__, **settings))
        return work

    return add
