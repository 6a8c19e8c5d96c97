"""What a trained model does with a text: translate, generate, fill, classify, tag, answer, embed."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from regard.cli.base import (
    PATH,
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


def tell(record: dict[str, Any], text: str, as_json: bool) -> None:
    click.echo(json.dumps(record, ensure_ascii=False) if as_json else text)


def guesses_of(writer: Any, draft: str | None, lookup: bool) -> dict[str, Any]:
    """How to guess ahead, if at all."""
    from regard.decode.speculative import Draft, Lookup
    from regard.tasks import load_for

    if draft and lookup:
        raise ValueError("--draft and --lookup are two ways to guess; choose one")
    if (draft or lookup) and hasattr(writer, "translate"):
        raise ValueError("an encoder–decoder does not guess ahead; leave out --draft and --lookup")
    if lookup:
        return {"propose": Lookup()}
    if draft is None:
        return {}
    small = load_for("generate", draft)
    if small.tokenizer.inner.get_vocab() != writer.tokenizer.inner.get_vocab():
        raise ValueError(f"{draft} has another vocabulary than the model; its guesses would mean other words")
    return {"propose": Draft(small.model)}


def answer_file(
    verb: Any, run: str, input_: Path | None, out: Path, settings: dict[str, Any], others: dict[str, Any], **how: Any
) -> None:
    """Answers every text of a file into another, in order, and goes on where an earlier call was stopped."""
    from regard.tasks.bulk import Answers, read_records, text_of

    if input_ is None:
        raise ValueError("--out answers the texts of a file; name it with --input")
    for name, given in others.items():
        if given:
            raise ValueError(f"{name} does not go with --out; leave one of them out")
    if settings.get("n_best", 1) > 1 and out.suffix != ".jsonl":
        raise ValueError(f"--n-best needs more than a line; write {out.with_suffix('.jsonl').name} instead")
    records = read_records(input_)
    texts = [text_of(record) for record in records]
    try:
        verb.__self__.check(texts)
    except ValueError as error:
        raise ValueError(f"{input_}: {error}") from None
    said = {name: str(value) for name, value in settings.items()} | {"run": run, "verb": verb.__name__}
    answers = Answers(out, texts, said, input_)
    first = answers.done
    if first:
        click.echo(f"going on behind {first:,} answers of an earlier call", err=True)
    settings = {name: value for name, value in settings.items() if name not in ("quantize", "draft", "lookup")}
    with click.progressbar(length=len(texts) - first, file=sys.stderr, label=verb.__name__) as bar:

        def put(number: int, found: Any) -> None:
            if isinstance(found, str):
                answers.put(first + number, records[first + number] | {"answer": found}, found)
            else:
                best = [{"text": one.text, "score": round(one.score, 6)} for one in found]
                told = {"answer": best[0]["text"]} | ({"answers": best} if len(best) > 1 else {})
                answers.put(first + number, records[first + number] | told, best[0]["text"])
            bar.update(1)

        try:
            verb(texts[first:], each=put, first=first, **settings, **how)
        finally:
            answers.close()


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@beam_option
@penalty_option
@click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Translations of each text.")
@sampling_options
@click.option("--alignment", type=PATH, help="Draw which source tokens each target token looked at (.png .svg .pdf).")
@out_option
@quantize_option
@json_option
def translate(
    run: str, text: tuple[str, ...], input_: Path | None, beam: int | None, length_penalty: float | None, n_best: int,
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None, seed: int,
    alignment: Path | None, out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Translate TEXT, the lines of a file, or of stdin with the model in RUN."""
    from regard.tasks import load_for

    translator = load_for("translate", run, quantize)
    sampling = sampling_of(temperature, top_k, top_p, min_p, seed)
    how: dict[str, Any] = dict(beams=beam, length_penalty=length_penalty, n_best=n_best, sampling=sampling)
    if out is not None:
        others = {"TEXT": text, "--json": as_json, "--alignment": alignment}
        answer_file(translator.translate, run, input_, out, how | {"quantize": quantize}, others)
        return
    texts = read_texts(text, input_)
    found = translator.translate(texts, **how)
    for source, hypotheses in zip(texts, found, strict=True):
        if as_json:
            best = [{"text": h.text, "score": round(h.score, 6)} for h in hypotheses]
            click.echo(json.dumps({"source": source, "translations": best}, ensure_ascii=False))
        else:
            for h in hypotheses:
                click.echo(h.text if n_best == 1 else f"{h.score:8.4f}  {h.text}")
    if alignment is not None:
        from regard.inside import show_view

        if not texts:
            raise ValueError("there is no text to draw an alignment of")
        show_view(translator.read(texts[0], target=found[0][0].ids), "alignment")[1](alignment)
        click.echo(f"alignment of the first text: {alignment}", err=True)


@regard.command()
@click.argument("run")
@click.argument("prompt", nargs=-1)
@input_option
@click.option("--max-new-tokens", type=click.IntRange(1), help="[default: 200; of an answer, what its prompt allows]")
@sampling_options
@click.option("--draft", metavar="RUN", help="A smaller model of the same vocabulary guesses ahead; same text, sooner.")
@click.option("--lookup", is_flag=True, help="Guess ahead from the text itself, where it copies; same text, sooner.")
@out_option
@quantize_option
@json_option
def generate(
    run: str, prompt: tuple[str, ...], input_: Path | None, max_new_tokens: int | None, temperature: float | None,
    top_k: int | None, top_p: float | None, min_p: float | None, seed: int, draft: str | None, lookup: bool,
    out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Continue PROMPT, or answer it, with the model in RUN; shown as it is written."""
    from regard.tasks import load_for

    writer = load_for("generate", run, quantize)
    how: dict[str, Any] = dict(
        max_new_tokens=max_new_tokens, sampling=sampling_of(temperature, top_k, top_p, min_p, seed)
    )
    guesses = guesses_of(writer, draft, lookup)
    if out is not None:
        settings = how | {"quantize": quantize, "draft": draft, "lookup": lookup}
        answer_file(writer.generate, run, input_, out, settings, {"PROMPT": prompt, "--json": as_json}, **guesses)
        return
    how |= guesses
    prompts = read_texts(prompt, input_)
    if as_json or len(prompts) > 1:
        for one, text in zip(prompts, writer.generate(prompts, **how), strict=True):
            tell({"prompt": one, "text": text}, writer.shown(one) + text, as_json)
        return
    for one in prompts:
        pieces = writer.stream(one, **how)
        click.echo(writer.shown(one) + next(pieces, ""), nl=False)  # a prompt that is refused is not printed
        for piece in pieces:
            sys.stdout.flush()
            click.echo(piece, nl=False)
        click.echo()


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Words for each place.")
@quantize_option
@json_option
def fill(run: str, text: tuple[str, ...], input_: Path | None, count: int, quantize: Any, as_json: bool) -> None:
    """Say what stands at each [MASK] of TEXT."""
    from regard.tasks import load_for

    filler, texts = load_for("fill", run, quantize), read_texts(text, input_)
    for one, places in zip(texts, filler.fill(texts, count=count), strict=True):
        lines = ["  ".join(f"{word.token} {word.probability:.1%}" for word in words) for words in places]
        tell({"text": one, "places": [[asdict(word) for word in words] for words in places]}, "\n".join(lines), as_json)


FIRST = "RUN and images come before --zero-shot, which takes the words behind it for labels"


class Labelling(click.Command):
    """A command whose --zero-shot takes all words up to the next option but names of image files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--zero-shot" not in args:
            return super().parse_args(ctx, args)
        try:
            left = super().parse_args(ctx, spread(args))
        except click.MissingParameter:
            raise ValueError(FIRST) from None
        from regard.data.readers.images import is_image

        if is_image(ctx.params["run"]):  # of RUN, a label was made
            raise ValueError(FIRST)
        return left


def spread(words: list[str]) -> list[str]:
    """The same with --zero-shot before each of its words."""
    from regard.data.readers.images import is_image

    found: list[str] = []
    taking = False
    for place, word in enumerate(words):
        ends = place + 1 == len(words) or words[place + 1].startswith("-")
        if word == "--zero-shot" and not ends:
            taking = True
        elif taking and not word.startswith("-") and not is_image(word):
            found += ["--zero-shot", word]
        else:
            taking = taking and not word.startswith("-")
            found.append(word)
    return found


@regard.command(cls=Labelling)
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--second", help="A second text, for a model of pairs.")
@click.option("--zero-shot", multiple=True, metavar="LABEL…", help="What an image may show, for a model that compares.")
@quantize_option
@json_option
def classify(
    run: str, text: tuple[str, ...], input_: Path | None, second: str | None, zero_shot: tuple[str, ...],
    quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Label TEXT, the lines of a file, or of stdin; of a model that sees, TEXT are image files.

    \b
    regard classify RUN "Not bad at all."
    regard classify RUN image.png --zero-shot "a red circle" "a blue square"
    """
    from regard.tasks import ImageTextMatcher, load_for

    classifier = load_for("classify", run, quantize)
    compares = isinstance(classifier, ImageTextMatcher)
    if compares and second is not None:
        raise ValueError(f"{run} compares pictures with texts; name these with --zero-shot, not --second")
    if zero_shot and not compares:
        raise ValueError(f"{run} has labels of its own; leave out --zero-shot, or give a CLIP model")
    if not all(label.strip() for label in zero_shot):
        raise ValueError("a label of --zero-shot is empty; say what an image may show")
    if compares and not zero_shot:
        raise ValueError(f'{run} has no labels of its own; name some texts: --zero-shot "a red circle" "a blue square"')
    texts = read_texts(text, input_)
    check_readable(run, classifier, texts)
    more: Any = list(zero_shot) if compares else [second] * len(texts) if second is not None else None
    for one, labels in zip(texts, classifier.classify(texts, more), strict=True):
        shown = labels if compares else labels[:1]  # who named them wants to see them all
        tell(
            {"text": one, "labels": {label.label: round(label.probability, 6) for label in labels}},
            "\t".join([*(f"{label.label}\t{label.probability:.1%}" for label in shown), *[one][: len(texts) - 1]]),
            as_json,
        )


def check_readable(run: str, loaded: Any, texts: list[str]) -> None:
    """An error if a model that reads is given a picture's name."""
    from regard.data.readers.images import is_image
    from regard.tasks import ImageEncoder

    for text in () if isinstance(loaded, ImageEncoder) else texts:
        if is_image(text) and Path(text).is_file():
            raise ValueError(f"{run} reads texts, and {text} is a picture; choose a model that sees, such as a vit")


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@quantize_option
@json_option
def tag(run: str, text: tuple[str, ...], input_: Path | None, quantize: Any, as_json: bool) -> None:
    """Find entities in TEXT: label, text, and where its characters start and end."""
    from regard.tasks import load_for

    tagger, texts = load_for("tag", run, quantize), read_texts(text, input_)
    for one, entities in zip(texts, tagger.tag(texts), strict=True):
        lines = [f"{e.label}\t{e.text}\t{e.start}-{e.end}\t{e.score:.1%}" for e in entities] or ["(none)"]
        tell({"text": one, "entities": [asdict(entity) for entity in entities]}, "\n".join(lines), as_json)


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
    """Answer QUESTION by a stretch of a passage, or say that it is not answerable."""
    from regard.data.sets.text import read_text
    from regard.tasks import load_for

    if (passage is None) == (file is None):
        raise ValueError("give the text to search: either --passage or --in FILE")
    text = passage if passage is not None else read_text((str(file),))
    answerer = load_for("answer", run, quantize)
    for one, found in zip(question, answerer.answer(list(question), [text] * len(question)), strict=True):
        shown = "not answerable" if found.text is None else f"{found.text}\t{found.start}-{found.end}"
        tell({"question": one} | asdict(found), f"{shown}\t{found.score:.1%}", as_json)


@regard.command()
@click.argument("run")
@click.argument("text", nargs=-1)
@input_option
@click.option("--search", "query", help="Instead: find what is most like this text, or image file.")
@click.option("--in", "corpus", type=PATH, help="Where to search: a file of a text a line, or a folder of images.")
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Lines or images to find.")
@click.option("--out", type=PATH, help="Write the vectors there (.npy).")
@quantize_option
@json_option
def embed(
    run: str, text: tuple[str, ...], input_: Path | None, query: str | None, corpus: Path | None, count: int,
    out: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Turn TEXT into vectors of length 1, or search by meaning; of a model that sees, TEXT are image files.

    \b
    regard embed RUN image.png --out vectors.npy
    regard embed RUN --search "a red circle" --in FOLDER
    """
    from regard.data.sets.pairs import read_lines
    from regard.tasks import ImageEncoder, ImageTextMatcher, load_for

    if (query is None) != (corpus is None):
        raise ValueError("--search and --in go together: what to look for, and the file or folder to look in")
    for name, given in {"TEXT": text, "--input": input_, "--out": out}.items():
        if query is not None and given:
            raise ValueError(f"{name} does not go with --search, which prints what it finds; leave one of them out")
    encoder = load_for("embed", run, quantize)
    sees = isinstance(encoder, ImageEncoder)
    if query is not None and corpus is not None and corpus.is_dir():
        if not sees:
            raise ValueError(f"{run} reads texts, and {corpus} is a folder; give a file with a text a line")
        skipped: list[str] = []
        best = encoder.search(query, corpus, count=count, skipped=skipped)
        if not best:
            raise ValueError(f"no picture of {corpus} can be read; the first: {skipped[0]}")
        for found in best:
            tell({"score": found.score, "path": found.text}, f"{found.score:.4f}\t{found.text}", as_json)
        if skipped:
            click.echo(f"passed over {len(skipped):,} file{'s' * (len(skipped) > 1)}: {skipped[0]}", err=True)
        return
    if query is not None and corpus is not None:
        if sees and not isinstance(encoder, ImageTextMatcher):
            raise ValueError(f"{run} sees, it does not read; give --in a folder of images")
        for found in encoder.search(query, read_lines(corpus), count=count):
            tell(
                asdict(found) | {"line": found.place + 1},
                f"{found.score:.4f}\t{found.place + 1}\t{found.text}",
                as_json,
            )
        return
    texts = read_texts(text, input_)
    check_readable(run, encoder, texts)
    vectors = encoder.vectors(texts) if sees else encoder.embed(texts)
    if out is not None:
        import numpy as np

        from regard.files import write_atomically

        def write(draft: Path) -> None:
            with draft.open("wb") as file:
                np.save(file, vectors.numpy())

        write_atomically(out, write)
        click.echo(f"saved: {out}", err=True)
        return
    for one, vector in zip(texts, vectors.tolist(), strict=True):
        rounded = [round(value, 6) for value in vector]
        tell({"text": one, "vector": rounded}, " ".join(f"{value:.6f}" for value in vector), as_json)
