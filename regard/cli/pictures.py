"""What a trained model does with pictures: complete them, say what they show."""

import json
from pathlib import Path
from typing import Any

import click

from regard.cli.base import (
    PATH,
    beam_option,
    json_option,
    penalty_option,
    quantize_option,
    regard,
    sampling_of,
    sampling_options,
)  # fmt: skip


@regard.command()
@click.argument("run")
@click.argument("image", nargs=-1, required=True)
@click.option("--out", type=PATH, help="Draw the boxes there (.png); of several pictures, a folder.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Least probability of a thing."
)
@quantize_option
@json_option
def detect(run: str, image: tuple[str, ...], out: Path | None, threshold: float, quantize: Any, as_json: bool) -> None:
    """Find things in each IMAGE: label, probability, and the box as left, top, right, bottom in pixels.

    \b
    regard detect RUN image.png --out boxes.png
    regard detect RUN photos/*.jpg --out FOLDER --json
    """
    from regard.data.readers.images import read_image
    from regard.inside.draw.boxes import check_place, draw_boxes
    from regard.tasks import load_for

    drawings = places_of(image, out)
    for place in drawings:
        check_place(place)
    detector = load_for("detect", run, quantize)
    for number, name in enumerate(image):  # each as it is done: there may be many
        found = detector.detect([name], threshold=threshold)[0]
        rows = [
            {"label": one.label, "score": round(one.score, 6), "box": [round(side, 2) for side in one.box]}
            for one in found
        ]
        if as_json:
            click.echo(json.dumps({"image": name, "things": rows}, ensure_ascii=False))
        for row in [] if as_json else rows:
            box = " ".join(f"{side:.1f}" for side in row["box"])
            click.echo(f"{row['label']}\t{row['score']:.1%}\t{box}" + (f"\t{name}" if len(image) > 1 else ""))
        if not rows and not as_json:
            click.echo(f"(nothing)\t{name}")
        if drawings:
            draw_boxes(read_image(name), found, detector.model.config.labels, drawings[number])
            click.echo(f"drawn: {drawings[number]}", err=True)


def places_of(images: tuple[str, ...], out: Path | None) -> list[Path]:
    """Where each picture's drawing goes: the file itself or, of several, a folder with their names."""
    if out is None:
        return []
    one = out.suffix and not out.is_dir()
    if one and len(images) > 1:
        raise ValueError(f"{out} is one file, but there are {len(images)} pictures; give a folder: --out {out.stem}")
    found = [out] if one else [out / f"{Path(name).stem}.png" for name in images]
    for i, name in enumerate(images):
        if found[i] in found[:i]:
            first = images[found.index(found[i])]
            raise ValueError(f"{name} and {first} would both be drawn to {found[i]}; rename one")
        spare(found[i], images)
    return found


def spare(out: Path, images: tuple[str, ...]) -> None:
    """An error if one of the given pictures would be drawn over."""
    for name in images:
        if Path(name).resolve() == out.resolve():
            raise ValueError(f"{name} would be drawn over; choose another name for the drawing")


@regard.command()
@click.argument("run")
@click.argument("image", nargs=-1)
@click.option("--out", type=PATH, default="done.png", show_default=True, help="Draw the pictures there.")
@click.option("--rows", type=click.IntRange(0), help="Rows that are kept.  [default: half of them]")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Completions of each picture.")
@click.option("--temperature", type=click.FloatRange(0), help="Of the draws; 0: the likeliest.  [default: 1]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws, or of what is hidden.")
@quantize_option
def complete(
    run: str, image: tuple[str, ...], out: Path, rows: int | None, count: int, temperature: float | None, seed: int,
    quantize: Any,
) -> None:  # fmt: skip
    """Paint what is missing of each IMAGE with the model in RUN.

    A model of pixels paints the lower part or, without any IMAGE, whole pictures; a masked autoencoder the patches that
    are hidden from it. A row of the drawing is what was shown, the completions, and the picture as it was.
    """
    from regard.data.readers.images import SUFFIXES
    from regard.files import write_atomically
    from regard.tasks import ImageRestorer, load_for
    from regard.tasks.pixel_model import sheet

    if out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{out} has no suffix of a picture; use .png")
    spare(out, image)
    loaded = load_for("complete", run, quantize)
    if isinstance(loaded, ImageRestorer):
        for name, given in (("rows", rows), ("temperature", temperature)):
            if given is not None:
                raise ValueError(f"{run} guesses patches that are hidden from it, once; leave out --{name}")
        if not image:
            raise ValueError(f"{run} restores pictures; give an IMAGE")
        shown = restored(loaded, image, count, seed)
    else:
        shown = painted(loaded, image, rows, count, 1.0 if temperature is None else temperature, seed)
    write_atomically(out, sheet(shown).save)
    click.echo(f"drawn: {out}", err=True)


def painted(
    painter: Any, images: tuple[str, ...], rows: int | None, count: int, temperature: float, seed: int
) -> list[list[Any]]:
    """What was kept of each picture, the completions, the picture; or whole pictures."""
    import numpy as np

    from regard.decode.sample import Sampling
    from regard.tasks.image_restorer import BLANK

    sampling = Sampling(temperature=temperature, seed=seed) if temperature else None
    if not images:
        if rows:
            raise ValueError("--rows are kept of an IMAGE; give one, or leave out --rows")
        return [list(painter.paint(count, sampling=sampling))]
    given = painter.fit(images)
    kept = painter.pixels.rows // 2 if rows is None else rows
    found = painter.complete(given, rows=kept, count=count, sampling=sampling)
    fronts = np.where(np.arange(given.shape[1])[:, None, None] < kept, given, BLANK)
    return [[front, *some, one] for front, some, one in zip(fronts, found, given, strict=True)]


def restored(restorer: Any, images: tuple[str, ...], count: int, seed: int) -> list[list[Any]]:
    """What was shown of each picture and what was guessed, each time, and the picture."""
    import numpy as np

    from regard.tasks.image_encoder import opened

    given = np.stack([restorer.preparation.fit(one) for one in opened(images)])
    found = restorer.complete(given, count=count, seed=seed)
    return [[*(one for pair in pairs for one in pair), whole] for pairs, whole in zip(found, given, strict=True)]


@regard.command()
@click.argument("run")
@click.argument("image", nargs=-1, required=True)
@beam_option
@penalty_option
@click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Captions of each picture.")
@sampling_options
@click.option("--look", type=PATH, help="Draw where it looked for each word of the first IMAGE (.png .svg .pdf).")
@quantize_option
@json_option
def caption(
    run: str, image: tuple[str, ...], beam: int | None, length_penalty: float | None, n_best: int,
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None, seed: int,
    look: Path | None, quantize: Any, as_json: bool,
) -> None:  # fmt: skip
    """Say what each IMAGE shows with the model in RUN.

    \b
    regard caption RUN image.png --look words.png
    """
    from regard.tasks import load_for

    if look is not None:
        from regard.inside.draw.canvas import check_suffix

        check_suffix(look)
        spare(look, image)
    writer = load_for("caption", run, quantize)
    sampling = sampling_of(temperature, top_k, top_p, min_p, seed)
    found = writer.caption(image, beams=beam, length_penalty=length_penalty, n_best=n_best, sampling=sampling)
    for path, captions in zip(image, found, strict=True):
        if as_json:
            best = [{"text": one.text, "score": round(one.score, 6)} for one in captions]
            click.echo(json.dumps({"image": path, "captions": best}, ensure_ascii=False))
            continue
        for one in captions:
            score = f"{one.score:8.4f}  " if n_best > 1 else ""
            click.echo(score + one.text + (f"\t{path}" if len(image) > 1 else ""))
    if look is not None:
        from regard.inside.views.captions import draw_words

        draw_words(writer, image[0], look, found[0][0])
        click.echo(f"drawn: {look}", err=True)
