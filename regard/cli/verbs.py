"""The verbs of tasks as commands: translate, generate, fill, classify, tag, answer, embed, and those of plugins."""

import sys
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, Command, beam_option, emit, penalty_option, regard
from regard.cli.query import SAMPLING, Query, make_command, out_option, verb, with_sampling
from regard.data.terminal import echo, to_json


def drafts(task: Any, draft: str | None, lookup: bool) -> dict[str, Any]:
    """Return the argument of `generate` for speculative decoding; {} without --draft and --lookup."""
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


def reply(query: Query, out: Path | None, **options: Any) -> None:
    """Print the answer for each text, or write them to a file."""
    if out is None:
        query.answer(**options)
        return
    from regard.cli.file_answers import answer_file

    answer_file(query, out, options)


@verb(
    beam_option, penalty_option,
    click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Translations of each text."),
    *SAMPLING,
    click.option(
        "--alignment", type=PATH, help="Draw which source tokens each target token attended to (.png .svg .pdf)."
    ),
    out_option,
)  # fmt: skip
def translate(query: Query, alignment: Path | None, out: Path | None, **options: Any) -> None:
    """Translate TEXT, the lines of a file, or of stdin with the model in RUN."""
    options = with_sampling(options)
    if out is not None:
        if alignment is not None:
            raise ValueError("--alignment does not go with --out; leave one of them out")
        from regard.cli.file_answers import write_texts

        write_texts(query, query.load(**options), out, options, drafting={})
        return
    task = query.answer(**options)
    if alignment is not None:
        from regard.inside import show_view

        if not query.texts:
            raise ValueError("there is no text to draw an alignment of")
        ids = task.translate(query.texts[:1], **options)[0][0].ids
        show_view(task.read(query.texts[0], target=ids), "alignment")[1](alignment)
        echo(f"alignment of the first text: {alignment}", err=True)


@verb(
    click.option(
        "--max-new-tokens", type=click.IntRange(1), help="[default: 200; of an answer, what its prompt allows]"
    ),
    click.option("--beam", "beams", type=click.IntRange(1), help="Search with so many beams; 1 is greedy."),
    penalty_option,
    click.option("--n-best", type=click.IntRange(1), help="Print so many continuations of each, with their scores."),
    *SAMPLING,
    click.option(
        "--draft", metavar="RUN", help="Let a smaller model with the same vocabulary draft tokens; same output, faster."
    ),
    click.option(
        "--lookup", is_flag=True, help="Draft tokens from the text itself, where it repeats; same output, faster."
    ),
    out_option, items="prompt",
)  # fmt: skip
def generate(query: Query, draft: str | None, lookup: bool, out: Path | None, **options: Any) -> None:
    """Continue PROMPT, or answer it, with the model in RUN; shown as it is generated, or by beams when it is whole."""
    beams = {name: value for name in BEAMS if (value := options.pop(name)) is not None}
    options = with_sampling(options) | beams
    task = query.load(**{"beams" if name == "n_best" else name: value for name, value in options.items()})
    drafting = drafts(task, draft, lookup)
    searches = beams not in ({}, {"beams": 1})
    if searches and (drafting or options["sampling"] is not None):
        raise ValueError("beam search is deterministic; leave out --temperature and the like, --draft and --lookup")
    if out is not None:
        from regard.cli.file_answers import write_texts

        method = "continuations" if searches else ""
        write_texts(query, task, out, options, drafting=drafting, method=method, draft=draft, lookup=lookup)
        return
    options |= drafting
    if searches:
        show_beams(query, task, options)
        return
    options.pop("beams", None)
    if query.as_json or len(query.texts) > 1:
        ready: dict[int, str] = {}
        texts = iter(enumerate(query.texts))
        waiting = next(texts, None)

        def put(number: int, output: str) -> None:  # texts are ready in any order, and printed in theirs
            nonlocal waiting
            ready[number] = output
            while waiting is not None and waiting[0] in ready:
                item, text = waiting[1], ready.pop(waiting[0])
                record = {"prompt": item, "text": text}
                echo(to_json(record) if query.as_json else task.shown(item) + text)
                waiting = next(texts, None)

        task.generate(query.texts, each=put, **options)
        return
    for item in query.texts:
        pieces = task.stream(item, **options)
        echo(task.shown(item) + next(pieces, ""), end="")  # a prompt that is refused is not printed
        for piece in pieces:
            sys.stdout.flush()
            echo(piece, end="")
        echo()


BEAMS = ("beams", "length_penalty", "n_best")
"""Options of a beam search."""


def show_beams(query: Query, task: Any, options: dict[str, Any]) -> None:
    """Print the best continuations of each prompt; where there are several, with their scores."""
    from regard.tasks.engine_task import render_texts, texts_as_json

    for item, found in zip(query.texts, task.continuations(query.texts, **options), strict=True):
        texts = texts_as_json(found)
        if query.as_json:
            several = {"texts": texts} if len(texts) > 1 else {}
            echo(to_json({"prompt": item, "text": texts[0]["text"]} | several))
        else:
            echo(task.shown(item) + texts[0]["text"] if len(texts) == 1 else render_texts(texts))


@verb(
    click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Tokens for each position."),
    out_option,
)
def fill(query: Query, count: int, out: Path | None) -> None:
    """Predict the word at each [MASK] of TEXT."""
    reply(query, out, count=count)


@verb(
    click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="Words to find."),
    out_option, items="word",
)  # fmt: skip
def nearest(query: Query, count: int, out: Path | None) -> None:
    """Find the words most similar to WORD, or to a sum of words, by the vectors in RUN.

    \b
    regard nearest RUN river
    regard nearest RUN "king - man + woman"
    """
    reply(query, out, count=count)


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
        from regard.modalities import names_file

        if names_file(ctx.params["run"]):  # of RUN, a label was made
            raise ValueError(FIRST)
        return left


def spread(words: list[str]) -> list[str]:
    """Put --zero-shot before each of its words."""
    from regard.modalities import names_file

    result: list[str] = []
    taking = False
    for index, word in enumerate(words):
        ends = index + 1 == len(words) or words[index + 1].startswith("-")
        if word == "--zero-shot" and not ends:
            taking = True
        elif taking and not word.startswith("-") and not names_file(word):
            result += ["--zero-shot", word]
        else:
            taking = taking and not word.startswith("-")
            result.append(word)
    return result


@verb(
    click.option("--second", help="A second text, for a model of pairs."),
    click.option(
        "--zero-shot", multiple=True, metavar="LABEL…", help="Texts that an image may match, for a CLIP model."
    ),
    out_option,
    cls=Labelling,
)
def classify(query: Query, second: str | None, zero_shot: tuple[str, ...], out: Path | None) -> None:
    """Label TEXT, the lines of a file, or of stdin; for an image model, TEXT are image files.

    \b
    regard classify RUN "Not bad at all."
    regard classify RUN --input new.csv --out labelled.csv
    regard classify RUN image.png --zero-shot "a red circle" "a blue square"
    """
    if not all(label.strip() for label in zero_shot):
        raise ValueError("a label of --zero-shot is empty; give a text for each label")
    options: dict[str, Any] = {"labels": list(zero_shot)} if zero_shot else {}
    if second is not None:
        options["seconds"] = [second] * len(query.texts)
    elif query.inputs.seconds is not None:
        options["seconds"] = query.inputs.seconds
    reply(query, out, **options)


@verb(out_option, items="input")
def predict(query: Query, out: Path | None) -> None:
    """Predict what the model in RUN learned of graphs: files of graphs, or molecules as SMILES.

    \b
    regard predict RUN graph.graphml
    regard predict RUN molecules.smi
    regard predict RUN --input molecules.txt --out predictions.csv
    """
    reply(query, out)


@verb(out_option)
def tag(query: Query, out: Path | None) -> None:
    """Find entities in TEXT: label, text, and the characters where it starts and ends."""
    reply(query, out)


@verb(
    click.option("--passage", help="The text that holds the answer."),
    click.option("--in", "file", type=PATH, help="A file with that text."),
    items="question", required=True, from_file=False,
)  # fmt: skip
def answer(query: Query, passage: str | None, file: Path | None) -> None:
    """Answer QUESTION by a span of a passage, or say that it is not answerable."""
    from regard.data.readers.text_files import read_text

    if (passage is None) == (file is None):
        raise ValueError("give the text to search: either --passage or --in FILE")
    text = passage if passage is not None else read_text((str(file),))
    query.answer(passages=[text] * len(query.items))


@verb(
    click.option("--search", "wanted", help="Instead: search for the items most similar to this text, or image file."),
    click.option(
        "--in", "corpus", type=PATH, help="Where to search: a file with a text a line, or a folder of images."
    ),
    click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Lines or images to find."),
    click.option("--out", type=PATH, help="Write the vectors there (.npy; of --input also .jsonl, .csv, or lines)."),
)
def embed(query: Query, wanted: str | None, corpus: Path | None, count: int, out: Path | None) -> None:
    """Turn TEXT into vectors of length 1, or search by meaning; for an image model, TEXT are image files.

    \b
    regard embed RUN image.png --out vectors.npy
    regard embed RUN --search "a red circle" --in FOLDER
    """
    if (wanted is None) != (corpus is None):
        raise ValueError("--search and --in go together: what to look for, and the file or folder to look in")
    for name, value in {"TEXT": query.items, "--input": query.input, "--out": out}.items():
        if wanted is not None and value:
            raise ValueError(f"{name} does not go with --search, which prints what it finds; leave one of them out")
    if wanted is not None and corpus is not None:
        search(query, wanted, corpus, count)
        return
    if out is None:
        say_cut(query.answer(), query.texts)
        return
    if query.input is not None:
        from regard.cli.file_answers import answer_file, write_vectors

        say_cut(write_vectors(query, out) if out.suffix == ".npy" else answer_file(query, out, {}), query.texts)
        return
    import numpy as np

    from regard.files import write_atomically

    texts, task = query.texts, query.load()
    task.check_inputs(texts)
    vectors = task.vectors(texts).numpy()

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, vectors)

    write_atomically(out, write)
    echo(f"saved: {out}", err=True)
    say_cut(task, texts)


def say_cut(task: Any, items: list[str]) -> None:
    """Say how many texts are longer than the model's context, so that their vectors are those of their beginnings."""
    from regard.modalities import modality_of

    texts = [item for item in items if not modality_of(item, task.inputs).files]
    context = getattr(task, "context", getattr(task.model.config, "max_len", None))
    if not texts or context is None or not hasattr(task, "tokenizer"):
        return
    lengths = task.lengths(texts, cut=False) if hasattr(task, "lengths") else map(len, task.tokenizer.frame(texts))
    if cut := sum(length > context for length in lengths):
        echo(f"cut at {context:,} tokens, the model's context: {cut:,} of {len(texts):,} texts", err=True)


def search(query: Query, wanted: str, corpus: Path, count: int) -> None:
    """Print the most similar lines of a file, or images of a folder."""
    from dataclasses import asdict

    from regard.data.readers.text_files import read_lines
    from regard.registry import modalities

    task = query.load()
    kinds = {known.files: known for known in map(modalities.__getitem__, task.inputs)}
    if not corpus.is_dir():
        if False not in kinds:
            items = kinds[True].plural
            raise ValueError(f"{query.run} reads {items}, not texts; give --in a folder of {items}")
        lines = read_lines(corpus)
        matches = task.search(wanted, lines, count=count)
        say_cut(task, [wanted, *lines])
        for match in matches:
            record = asdict(match) | {"line": match.place + 1}
            emit(record, query.as_json, lambda row: f"{row['score']:.4f}\t{row['line']}\t{row['text']}")
        return
    if True not in kinds:
        raise ValueError(f"{query.run} reads texts, and {corpus} is a folder; give a file with a text a line")
    skipped: list[str] = []
    matches = task.search(wanted, corpus, count=count, skipped=skipped)
    field = kinds[True].field
    if not matches:
        raise ValueError(f"no {field} of {corpus} can be read; the first: {skipped[0]}")
    for match in matches:
        emit({"score": match.score, field: match.text}, query.as_json, lambda row: f"{row['score']:.4f}\t{row[field]}")
    if skipped:
        echo(f"skipped {len(skipped):,} file{'s' * (len(skipped) > 1)}: {skipped[0]}", err=True)


def verb_command(name: str) -> click.Command | None:
    """A command for a verb that only a plugin's task declares; None where no registered task has it."""
    from regard.registry import tasks

    declared = next((verb for task in tasks for verb in tasks[task].verbs if verb.name == name), None)
    if declared is None:
        return None

    def work(query: Query, out: Path | None, **options: Any) -> None:
        reply(query, out, **{key: value for key, value in options.items() if value is not None})

    options = [out_option]
    for option in declared.options:
        kind: Any = option.kind
        if option.limits is not None:
            kind = (click.IntRange if option.kind is int else click.FloatRange)(*option.limits)
        flag, about = f"--{option.name.replace('_', '-')}", f"{option.help}  [default: {option.default}]"
        options.append(click.option(flag, type=kind, help=about))
    return make_command(name, work, *options, help=declared.help or f"Ask a model that {declared.does}.", items="input")


def plugin_verbs() -> list[str]:
    """The verbs of tasks that are not our own."""
    from regard.registry import tasks

    verbs = [
        verb.name for name in tasks if not tasks[name].__module__.startswith("regard.") for verb in tasks[name].verbs
    ]
    return sorted(set(verbs) - regard.commands.keys())


regard.find_own = verb_command  # type: ignore[attr-defined]
regard.own_names = plugin_verbs  # type: ignore[attr-defined]
