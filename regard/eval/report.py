"""What is said after training: scores on held-out data, samples, and what to try next."""

import json
import shlex
import sys
import textwrap
from collections.abc import Callable
from functools import singledispatch
from pathlib import Path
from typing import Any

from regard.data.generated.phrases import SHOWCASE
from regard.data.generated.text_tasks import tasks
from regard.data.sets.boxes import BoxesConfig
from regard.data.sets.captions import CaptionsConfig
from regard.data.sets.images import ImagesConfig
from regard.data.sets.labelled import ExamplesConfig
from regard.data.sets.masking import MaskedConfig
from regard.data.sets.paired import PairedConfig
from regard.data.sets.pairs import PairsConfig
from regard.data.sets.text import TextConfig
from regard.data.sets.unlabelled import UnlabelledConfig
from regard.decode.sample import Sampling
from regard.eval.scores import TEST_EXAMPLES, evaluate, held_out_pairs, pictures_of, render, score_pairs
from regard.recipes.clip import images
from regard.recipes.examples import sides_of
from regard.recipes.mae import HiddenConfig
from regard.recipes.pixel import PixelsConfig
from regard.recipes.t5 import SpansConfig, TasksConfig
from regard.recipes.translate import encode
from regard.runs.recipe import Recipe
from regard.tasks import load
from regard.tasks.pixel_model import sheet
from regard.train.loop import Fitted


def report(out: Path, fitted: Fitted, *, as_json: bool) -> None:
    """Scores, samples and next steps of the run in `out`, as its kind of data asks for."""
    plan = Recipe.load(out / "recipe.toml")
    print("scoring held-out examples; the run is saved, Ctrl-C leaves it at that …", file=sys.stderr)
    try:
        scores, samples, following = tell(plan.data, plan, out)
    except ValueError as error:  # the run is whole, whatever its held-out data is like
        print(f"not scored: {error}", file=sys.stderr)
        scores, samples, following = {}, [], [f"regard eval {out} --help"]
    scores = scores | {"steps": fitted.step, "minutes": round(fitted.seconds / 60, 2), "valid_loss": fitted.valid_loss}
    if as_json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    print(f"\n{fitted.step} steps in {fitted.seconds / 60:.1f} minutes; validation loss {fitted.valid_loss:.4f}")
    shown = {name: value for name, value in scores.items() if name not in ("steps", "minutes", "valid_loss")}
    if shown:
        print("on held-out data: " + render(shown))
    for given, answer in samples:
        print(f"\n  {short(given)}\n    → {short(answer)}" if given else f"\n  {answer}")
    print("\nTry next:")
    for command in following:
        print(f"  {command}")


def short(text: str) -> str:
    return textwrap.shorten(text, 200, placeholder=" …")


Told = tuple[dict[str, Any], list[tuple[str, str]], list[str]]


@singledispatch
def tell(data: Any, plan: Recipe, out: Path) -> Told:
    """Scores, (given, answered) samples, and commands to go on with."""
    return {}, [], [f"regard eval {out}"]


@tell.register
def tell_pairs(data: PairsConfig, plan: Recipe, out: Path) -> Told:
    from regard.inside import draw_view

    translator = load(out)
    pairs = held_out_pairs(out, {}, None)
    usable = encode(pairs, translator.tokenizer, data.max_len)[:TEST_EXAMPLES]
    scores = score_pairs(translator, [pairs[pair.number - 1] for pair in usable]).scores
    texts = list(SHOWCASE) if data.embedded else [pairs[pair.number - 1][0] for pair in usable[:5]]
    found = [best[0] for best in translator.translate(texts)]
    picture = out / "alignment.png"
    try:
        draw_view(translator, "alignment", texts[0], picture)
        print(f"where it looked: {picture}", file=sys.stderr)
    except ValueError as error:  # a model without attention has no alignment
        print(error, file=sys.stderr)
    samples = [(text, translation.text) for text, translation in zip(texts, found, strict=True)]
    following = [
        f"regard translate {out} {shlex.quote(texts[-1])} --n-best 3",
        f"regard look {out} {shlex.quote(texts[0])} --out heads.png",
        "regard train translate --model seq2seq --model.score none --out runs/no-attention",
    ]
    return scores, samples, following


@tell.register
def tell_tasks(data: TasksConfig, plan: Recipe, out: Path) -> Told:
    translator = load(out)
    scores = evaluate(out, {}).scores
    if data.embedded:
        examples = tasks("test", 27)
        sources = [
            next(one.source for one in examples if one.name == name) for name in sorted({e.name for e in examples})
        ]
    else:
        sources = [source for source, _ in held_out_pairs(out, {}, 3)]
    answers = [best[0].text for best in translator.translate(sources, beams=1)]
    following = [f"regard generate {out} {shlex.quote(short(source))}" for source in sources[:2]]
    return scores, list(zip(sources, answers, strict=True)), following


@tell.register
def tell_text(data: TextConfig, plan: Recipe, out: Path) -> Told:
    begin = "Return the " if data.embedded else "The "
    writer = load(out)
    text = writer.generate([begin], max_new_tokens=120, sampling=Sampling(temperature=0.8, top_p=0.95, seed=1))[0]
    following = [
        f'regard generate {out} "{begin.strip()}" --max-new-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1',
        f'regard look {out} "{begin}list of" --out heads.png',
        f"regard train {plan.name} --model lstm --out runs/lstm",
    ]
    return evaluate(out, {}).scores, [("", begin + text)], following


@tell.register
def tell_masked(data: MaskedConfig, plan: Recipe, out: Path) -> Told:
    texts = ["Return a [MASK] of all elements.", "Raise an [MASK] if the file does not exist."]
    found = load(out).fill(texts, count=5)
    words = [", ".join(f"{one.token} {one.probability:.0%}" for one in best[0]) for best in found]
    following = [
        f'regard fill {out} "{texts[0]}"',
        f"regard finetune {out} --task classify --data.train train.tsv",
    ]
    return evaluate(out, {}).scores, list(zip(texts, words, strict=True)), following


@tell.register
def tell_spans(data: SpansConfig, plan: Recipe, out: Path) -> Told:
    return {}, [], [f"regard train t5 --data.base {out}"]


@tell.register
def tell_examples(data: ExamplesConfig, plan: Recipe, out: Path) -> Told:
    examples = data.held_out()[:3]
    return evaluate(out, {}).scores, *SAMPLES[data.task](load(out), examples, out)


@tell.register
def tell_boxes(data: BoxesConfig, plan: Recipe, out: Path) -> Told:
    from PIL import Image

    from regard.inside.draw.boxes import draw_boxes

    loaded = load(out)
    pictures = pictures_of(loaded, out, BoxesConfig, {}, 3)[1].pictures
    found = loaded.detect_arrays([one.pixels for one in pictures], threshold=0.5)
    labels, drawing = loaded.model.config.labels, out / "boxes.png"
    draw_boxes(Image.fromarray(pictures[0].pixels.squeeze()), found[0], labels, drawing)
    print(f"what it found: {drawing}", file=sys.stderr)
    given = ["a picture of " + (", ".join(labels[i] for i in one.labels) or "nothing") for one in pictures]
    said = [", ".join(f"{one.label} {one.score:.0%}" for one in row) or "nothing" for row in found]
    following = [f"regard detect {out} image.png --out boxes.png", f"regard eval {out} --data.coco annotations.json"]
    return evaluate(out, {}).scores, list(zip(given, said, strict=True)), following


@tell.register
def tell_pictures(data: ImagesConfig, plan: Recipe, out: Path) -> Told:
    loaded = load(out)
    _, pictures = pictures_of(loaded, out, ImagesConfig, {}, 5)
    found = loaded.classify_arrays(pictures.pixels)
    given = [f"a picture of {pictures.names[i]}" for i in pictures.labels]
    said = [f"{best[0].label}  {best[0].probability:.0%}" for best in found]
    following = [f"regard classify {out} image.png", f"regard eval {out} --data.images OTHER_FOLDER"]
    return evaluate(out, {}).scores, list(zip(given, said, strict=True)), following


@tell.register
def tell_captions(data: CaptionsConfig, plan: Recipe, out: Path) -> Told:
    from PIL import Image

    from regard.inside.views.captions import draw_words

    loaded, drawing = load(out), out / "words.png"
    _, pictures = pictures_of(loaded, out, CaptionsConfig, {}, 5)
    found = [best[0].text for best in loaded.caption_arrays(pictures.pixels)]
    draw_words(loaded, Image.fromarray(pictures.pixels[0].squeeze()), drawing)
    print(f"where it looked for each word: {drawing}", file=sys.stderr)
    other = "transformer" if plan.model.decoder == "recurrent" else "recurrent"
    following = [
        f"regard caption {out} image.png --look words.png",
        f"regard train {plan.name} --model.decoder {other} --out runs/captioner-{other}",
    ]
    samples = [(right[0], said) for right, said in zip(pictures.captions, found, strict=True)]
    return evaluate(out, {}).scores, samples, following


@tell.register
def tell_compared(data: PairedConfig, plan: Recipe, out: Path) -> Told:
    """What it finds a few pictures most like: everything that a scene may show, or all captions that were held out."""
    if data.embedded:
        pictures, labels = data.alone(5)
    else:
        pictures = data.held_out()
        labels = tuple(dict.fromkeys(text for texts in pictures.captions for text in texts))
        pictures = pictures.take(slice(5))
    found = load(out).classify(images(pictures), labels)
    given = [f"a picture of {texts[0]}" for texts in pictures.captions]
    said = [f"{best[0].label}  {best[0].probability:.0%}" for best in found]
    shown = " ".join(shlex.quote(short(label)) for label in labels[:2])
    following = [
        f"regard classify {out} image.png --zero-shot {shown}",
        f"regard embed {out} --search {shlex.quote(short(labels[0]))} --in FOLDER",
    ]
    return evaluate(out, {}).scores, list(zip(given, said, strict=True)), following


@tell.register
def tell_unlabelled(data: UnlabelledConfig, plan: Recipe, out: Path) -> Told:
    folder = data.images or "FOLDER"
    following = [f"regard eval {out} --probe", f"regard finetune {out} --data.images {folder}"]
    return {}, [], [*following, f"regard embed {out} image.png --out vectors.npy"]


@tell.register
def tell_hidden(data: HiddenConfig, plan: Recipe, out: Path) -> Told:
    """What it guesses of a few pictures that it has not seen, of which most is hidden."""
    given, picture = data.held_out().take(slice(6)).pixels, out / "done.png"
    found = load(out).complete(given, count=2)
    sheet([[*first, *second, one] for (first, second), one in zip(found, given, strict=True)]).save(picture)
    print(f"pictures with most patches hidden, restored twice, beside the pictures: {picture}", file=sys.stderr)
    scores, samples, following = tell_unlabelled(data, plan, out)
    return scores, samples, [f"regard complete {out} image.png --out done.png", *following]


@tell.register
def tell_pixels(data: PixelsConfig, plan: Recipe, out: Path) -> Told:
    painter, picture = load(out), out / "done.png"
    given = pictures_of(painter, out, PixelsConfig, {}, 6)[1].pixels
    painted = painter.complete(given, count=4, sampling=Sampling())
    sheet([[*some, one] for some, one in zip(painted, given, strict=True)]).save(picture)
    print(f"upper halves completed four times, beside the pictures: {picture}", file=sys.stderr)
    following = [
        f"regard complete {out} image.png --count 4 --out done.png",
        f"regard train {plan.name} --model lstm --out runs/pixel-lstm",
    ]
    return evaluate(out, {}).scores, [], following


def _classify(loaded: Any, examples: list[Any], out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    texts, seconds = sides_of(examples)
    said = [f"{best[0].label}  {best[0].probability:.0%}" for best in loaded.classify(texts, seconds)]
    more = f" --second {shlex.quote(short(seconds[0]))}" if seconds else ""
    return list(zip(texts, said, strict=True)), [f"regard classify {out} {shlex.quote(short(texts[0]))}{more}"]


def _tag(loaded: Any, examples: list[Any], out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    texts = [example.text for example in examples]
    said = [", ".join(f"{entity.text} ({entity.label})" for entity in row) for row in loaded.tag(texts)]
    return list(zip(texts, said, strict=True)), [f"regard tag {out} {shlex.quote(short(texts[0]))}"]


def _answer(loaded: Any, examples: list[Any], out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    found = loaded.answer([example.question for example in examples], [example.passage for example in examples])
    given = [f"{example.question} ({example.passage})" for example in examples]
    command = f"regard answer {out} {shlex.quote(examples[0].question)} --passage {shlex.quote(examples[0].passage)}"
    return [(text, one.text or "(not answerable)") for text, one in zip(given, found, strict=True)], [command]


def _embed(loaded: Any, examples: list[Any], out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    corpus = [example.b for example in examples]
    found = [loaded.search(example.a, corpus, count=1)[0] for example in examples]
    samples = [(example.a, f"{one.score:.2f}  {one.text}") for example, one in zip(examples, found, strict=True)]
    return samples, [f"regard embed {out} --search {shlex.quote(examples[0].a)} --in corpus.txt"]


def _instruct(loaded: Any, examples: list[Any], out: Path) -> tuple[list[tuple[str, str]], list[str]]:
    prompts = [example.prompt for example in examples]
    return list(zip(prompts, loaded.generate(prompts, max_new_tokens=64), strict=True)), [
        f"regard generate {out} {shlex.quote(short(prompts[0]))}"
    ]


SAMPLES: dict[str, Callable[[Any, list[Any], Path], tuple[list[tuple[str, str]], list[str]]]] = {
    "classify": _classify, "tag": _tag, "answer": _answer, "embed": _embed, "instruct": _instruct,
}  # fmt: skip
