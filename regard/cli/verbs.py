"""The verbs of tasks as commands: translate, generate, fill, classify, tag, answer, embed, and those of plugins."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from regard.cli.base import (
    PATH,
    Command,
    beam_option,
    input_option,
    json_option,
    out_option,
    penalty_option,
    quantize_option,
    read_texts,
    regard,
    sampling_of,
    sampling_options,
)  # fmt: skip
from regard.cli.bulk import answer_file


def load_task(verb: str, run: str, quantize: Any, options: dict[str, Any]) -> Any:
    """Load the task in RUN; raise an error if it lacks the verb or does not take these options."""
    from regard.tasks import load_for

    task = load_for(verb, run, quantize)
    task.verb(verb).check_options(options, run)
    return task


def ask(
    verb: str, run: str, items: Sequence[str], quantize: Any, as_json: bool, options: dict[str, Any] | None = None
) -> Any:
    """Run the verb on each item with the model in RUN, print the answers, and return the task."""
    options = options or {}
    task = load_task(verb, run, quantize, options)
    task.check_inputs(items)
    for item, answer in zip(items, task.answers(verb, items, **options), strict=True):
        show(task, verb, item, answer, as_json, several=len(items) > 1)
    return task


def show(task: Any, verb: str, item: Any, answer: dict[str, Any], as_json: bool, *, several: bool) -> None:
    """Print one answer; where there are `several`, each line of an image's names the file."""
    field = task.field_of(verb, item)
    if as_json:
        click.echo(json.dumps({field: item} | answer, ensure_ascii=False))
        return
    text = task.verb(verb).render(answer)
    named = several and (field == "image" or verb == "classify")
    click.echo("\n".join(f"{line}\t{item}" for line in text.split("\n")) if named else text)


def drafts(task: Any, draft: str | None, lookup: bool) -> dict[str, Any]:
    """The option of speculative decoding, if it is asked for."""
    from regard.decode.speculative import Draft, Lookup
    from regard.tasks import load_for

    if draft and lookup:
        raise ValueError("--draft and --lookup are two ways to draft tokens; choose one")
    if draft is None and not lookup:
        return {}
    task.verb("generate").check_options({"propose": True}, "an encoder–decoder")
    if lookup:
        return {"propose": Lookup()}
    small = load_for("generate", str(draft))
    if small.tokenizer.inner.get_vocab() != task.tokenizer.inner.get_vocab():
        raise ValueError(f"{draft} has another vocabulary than the model; use a smaller model with the same tokenizer")
    return {"propose": Draft(small.model)}


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@beam_option
@penalty_option
@click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Translations of each text.")
@sampling_options
@click.option("--alignment", type=PATH, help="Draw which source tokens each target token attended to (.png .svg .pdf).")
@out_option
@quantize_option
@json_option
def translate(
    run: str, text: tuple[str, ...], input_: Path | None, beam: int | None, length_penalty: float | None, n_best: int,
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None, seed: int,
    alignment: Path | None, out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Translate TEXT, the lines of a file, or of stdin with the model in RUN."""
    sampling = sampling_of(temperature, top_k, top_p, min_p, seed)
    options: dict[str, Any] = dict(beams=beam, length_penalty=length_penalty, n_best=n_best, sampling=sampling)
    if out is not None:
        task = load_task("translate", run, quantize, options)
        others = {"TEXT": text, "--json": as_json, "--alignment": alignment}
        answer_file(task.translate, run, input_, out, options | {"quantize": quantize}, others)
        return
    texts = read_texts(text, input_)
    task = ask("translate", run, texts, quantize, as_json, options)
    if alignment is not None:
        from regard.inside import show_view

        if not texts:
            raise ValueError("there is no text to draw an alignment of")
        ids = task.translate(texts[:1], **options)[0][0].ids
        show_view(task.read(texts[0], target=ids), "alignment")[1](alignment)
        click.echo(f"alignment of the first text: {alignment}", err=True)


@regard.command()
@click.argument("run")
@click.argument("prompt", nargs=-1)
@input_option
@click.option("--max-new-tokens", type=click.IntRange(1), help="[default: 200; of an answer, what its prompt allows]")
@sampling_options
@click.option(
    "--draft", metavar="RUN", help="Let a smaller model with the same vocabulary draft tokens; same output, faster."
)
@click.option(
    "--lookup", is_flag=True, help="Draft tokens from the text itself, where it repeats; same output, faster."
)
@out_option
@quantize_option
@json_option
def generate(
    run: str, prompt: tuple[str, ...], input_: Path | None, max_new_tokens: int | None, temperature: float | None,
    top_k: int | None, top_p: float | None, min_p: float | None, seed: int, draft: str | None, lookup: bool,
    out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Continue PROMPT, or answer it, with the model in RUN; shown as it is generated."""
    sampling = sampling_of(temperature, top_k, top_p, min_p, seed)
    options: dict[str, Any] = dict(max_new_tokens=max_new_tokens, sampling=sampling)
    task = load_task("generate", run, quantize, options)
    drafting = drafts(task, draft, lookup)
    if out is not None:
        settings = options | {"quantize": quantize, "draft": draft, "lookup": lookup}
        answer_file(task.generate, run, input_, out, settings, {"PROMPT": prompt, "--json": as_json}, **drafting)
        return
    options |= drafting
    prompts = read_texts(prompt, input_)
    if as_json or len(prompts) > 1:
        for item, output in zip(prompts, task.generate(prompts, **options), strict=True):
            record = {"prompt": item, "text": output}
            click.echo(json.dumps(record, ensure_ascii=False) if as_json else task.shown(item) + output)
        return
    for item in prompts:
        pieces = task.stream(item, **options)
        click.echo(task.shown(item) + next(pieces, ""), nl=False)  # a prompt that is refused is not printed
        for piece in pieces:
            sys.stdout.flush()
            click.echo(piece, nl=False)
        click.echo()


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Tokens for each position.")
@quantize_option
@json_option
def fill(run: str, text: tuple[str, ...], input_: Path | None, count: int, quantize: Any, as_json: bool) -> None:
    """Predict the word at each [MASK] of TEXT."""
    ask("fill", run, read_texts(text, input_), quantize, as_json, {"count": count})


FIRST = "RUN and images come before --zero-shot, which takes the words behind it for labels"


class Labelling(Command):
    """A command whose --zero-shot takes all words up to the next option, except names of image files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--zero-shot" not in args:
            return super().parse_args(ctx, args)
        try:
            left = super().parse_args(ctx, spread(args))
        except click.MissingParameter:
            raise ValueError(FIRST) from None
        from regard.data.readers.image_files import is_image

        if is_image(ctx.params["run"]):  # of RUN, a label was made
            raise ValueError(FIRST)
        return left


def spread(words: list[str]) -> list[str]:
    """Put --zero-shot before each of its words."""
    from regard.data.readers.image_files import is_image

    result: list[str] = []
    taking = False
    for index, word in enumerate(words):
        ends = index + 1 == len(words) or words[index + 1].startswith("-")
        if word == "--zero-shot" and not ends:
            taking = True
        elif taking and not word.startswith("-") and not is_image(word):
            result += ["--zero-shot", word]
        else:
            taking = taking and not word.startswith("-")
            result.append(word)
    return result


@regard.command(cls=Labelling)
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--second", help="A second text, for a model of pairs.")
@click.option("--zero-shot", multiple=True, metavar="LABEL…", help="Texts that an image may match, for a CLIP model.")
@quantize_option
@json_option
def classify(
    run: str, text: tuple[str, ...], input_: Path | None, second: str | None, zero_shot: tuple[str, ...],
    quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Label TEXT, the lines of a file, or of stdin; for an image model, TEXT are image files.

    \b
    regard classify RUN "Not bad at all."
    regard classify RUN image.png --zero-shot "a red circle" "a blue square"
    """
    if not all(label.strip() for label in zero_shot):
        raise ValueError("a label of --zero-shot is empty; give a text for each label")
    texts = read_texts(text, input_)
    options: dict[str, Any] = {"labels": list(zero_shot)} if zero_shot else {}
    if second is not None:
        options["seconds"] = [second] * len(texts)
    ask("classify", run, texts, quantize, as_json, options)


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@quantize_option
@json_option
def tag(run: str, text: tuple[str, ...], input_: Path | None, quantize: Any, as_json: bool) -> None:
    """Find entities in TEXT: label, text, and the characters where it starts and ends."""
    ask("tag", run, read_texts(text, input_), quantize, as_json)


@regard.command()
@click.argument("run")
@click.argument("question", nargs=-1, required=True)
@click.option("--passage", help="The text that holds the answer.")
@click.option("--in", "file", type=PATH, help="A file with that text.")
@quantize_option
@json_option
def answer(
    run: str, question: tuple[str, ...], passage: str | None, file: Path | None, quantize: Any, as_json: bool
) -> None:
    """Answer QUESTION by a span of a passage, or say that it is not answerable."""
    from regard.data.readers.text_files import read_text

    if (passage is None) == (file is None):
        raise ValueError("give the text to search: either --passage or --in FILE")
    text = passage if passage is not None else read_text((str(file),))
    ask("answer", run, question, quantize, as_json, {"passages": [text] * len(question)})


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--search", "query", help="Instead: search for the items most similar to this text, or image file.")
@click.option("--in", "corpus", type=PATH, help="Where to search: a file with a text a line, or a folder of images.")
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Lines or images to find.")
@click.option("--out", type=PATH, help="Write the vectors there (.npy).")
@quantize_option
@json_option
def embed(
    run: str, text: tuple[str, ...], input_: Path | None, query: str | None, corpus: Path | None, count: int,
    out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Turn TEXT into vectors of length 1, or search by meaning; for an image model, TEXT are image files.

    \b
    regard embed RUN image.png --out vectors.npy
    regard embed RUN --search "a red circle" --in FOLDER
    """
    if (query is None) != (corpus is None):
        raise ValueError("--search and --in go together: what to look for, and the file or folder to look in")
    for name, value in {"TEXT": text, "--input": input_, "--out": out}.items():
        if query is not None and value:
            raise ValueError(f"{name} does not go with --search, which prints what it finds; leave one of them out")
    if query is not None and corpus is not None:
        search(run, query, corpus, count, quantize, as_json)
        return
    texts = read_texts(text, input_)
    if out is None:
        ask("embed", run, texts, quantize, as_json)
        return
    import numpy as np

    from regard.files import write_atomically

    task = load_task("embed", run, quantize, {})
    task.check_inputs(texts)
    vectors = task.vectors(texts).numpy()

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, vectors)

    write_atomically(out, write)
    click.echo(f"saved: {out}", err=True)


def search(run: str, query: str, corpus: Path, count: int, quantize: Any, as_json: bool) -> None:
    """Print the most similar lines of a file, or images of a folder."""
    from dataclasses import asdict

    from regard.data.readers.text_files import read_lines

    task = load_task("embed", run, quantize, {})
    if not corpus.is_dir():
        if "text" not in task.inputs:
            raise ValueError(f"{run} reads images, not texts; give --in a folder of images")
        for match in task.search(query, read_lines(corpus), count=count):
            record = asdict(match) | {"line": match.place + 1}
            line = f"{match.score:.4f}\t{match.place + 1}\t{match.text}"
            click.echo(json.dumps(record, ensure_ascii=False) if as_json else line)
        return
    if "image" not in task.inputs:
        raise ValueError(f"{run} reads texts, and {corpus} is a folder; give a file with a text a line")
    skipped: list[str] = []
    matches = task.search(query, corpus, count=count, skipped=skipped)
    if not matches:
        raise ValueError(f"no image of {corpus} can be read; the first: {skipped[0]}")
    for match in matches:
        record = {"score": match.score, "image": match.text}
        click.echo(json.dumps(record, ensure_ascii=False) if as_json else f"{match.score:.4f}\t{match.text}")
    if skipped:
        click.echo(f"skipped {len(skipped):,} file{'s' * (len(skipped) > 1)}: {skipped[0]}", err=True)


def verb_command(name: str) -> click.Command | None:
    """A command for a verb that only a plugin's task declares; None where no registered task has it."""
    from regard.registry import tasks

    declared = next((verb for task in tasks for verb in tasks[task].verbs if verb.name == name), None)
    if declared is None:
        return None

    def callback(
        run: str, items: tuple[str, ...], input_: Path | None, quantize: Any, as_json: bool, **more: Any
    ) -> Any:
        options = {key: value for key, value in more.items() if value is not None}
        ask(name, run, read_texts(items, input_), quantize, as_json, options)

    params: list[click.Parameter] = [click.Argument(["run"]), click.Argument(["items"], nargs=-1, metavar="[INPUT]...")]
    for option in declared.options:
        limits = option.limits
        kind: Any = option.kind
        if limits is not None:
            kind = (click.IntRange if option.kind is int else click.FloatRange)(*limits)
        flag = f"--{option.name.replace('_', '-')}"
        params.append(click.Option([flag], type=kind, default=None, help=f"{option.help}  [default: {option.default}]"))
    about = declared.help or f"Ask a model that {declared.does}."
    command = Command(name, callback=callback, params=params, help=about)
    for decorate in (json_option, quantize_option, input_option):
        decorate(command)
    return command


def plugin_verbs() -> list[str]:
    """The verbs of tasks that are not our own."""
    from regard.registry import tasks

    verbs = [
        verb.name for name in tasks if not tasks[name].__module__.startswith("regard.") for verb in tasks[name].verbs
    ]
    return sorted(set(verbs) - regard.commands.keys())


regard.find_own = verb_command  # type: ignore[attr-defined]
regard.own_names = plugin_verbs  # type: ignore[attr-defined]
