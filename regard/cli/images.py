"""Commands of image tasks that write images: detect, complete, caption."""

from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, beam_option, penalty_option
from regard.cli.query import SAMPLING, Query, verb, with_sampling
from regard.data.terminal import echo


@verb(
    click.option("--out", type=PATH, help="Draw the boxes there (.png); for several images, a folder."),
    click.option(
        "--threshold", type=click.FloatRange(0, 1), default=0.5, show_default=True,
        help="Lowest probability of a reported object.",
    ),
    items="image", required=True, from_file=False,
)  # fmt: skip
def detect(query: Query, out: Path | None, threshold: float) -> None:
    """Find objects in each IMAGE: label, probability, and the box as left, top, right, bottom in pixels.

    \b
    regard detect RUN image.png --out boxes.png
    regard detect RUN photos/*.jpg --out FOLDER --json
    """
    from regard.data.readers.image_files import read_image
    from regard.inside.draw.boxes import check_place, draw_boxes

    drawings = drawing_paths(query.items, out)
    for path in drawings:
        check_place(path)
    task = query.load()
    for number, name in enumerate(query.items):  # each as it is done: there may be many
        objects = task.detect([name], threshold=threshold)[0]
        query.show(task, name, task.verb("detect").as_json(objects), several=len(query.items) > 1)
        if drawings:
            draw_boxes(read_image(name), objects, task.model.config.labels, drawings[number])
            echo(f"drawn: {drawings[number]}", err=True)


def drawing_paths(images: tuple[str, ...], out: Path | None) -> list[Path]:
    """The path of each image's drawing: the file itself or, for several images, files of a folder."""
    if out is None:
        return []
    is_file = out.suffix and not out.is_dir()
    if is_file and len(images) > 1:
        raise ValueError(f"{out} is one file, but there are {len(images)} images; give a folder: --out {out.stem}")
    paths = [out] if is_file else [out / f"{Path(name).stem}.png" for name in images]
    for i, name in enumerate(images):
        if paths[i] in paths[:i]:
            first = images[paths.index(paths[i])]
            raise ValueError(f"{name} and {first} would both be drawn to {paths[i]}; rename one")
        spare(paths[i], images)
    return paths


def spare(out: Path, images: tuple[str, ...]) -> None:
    """Raise a ValueError if a drawing would overwrite one of the images."""
    for name in images:
        if Path(name).resolve() == out.resolve():
            raise ValueError(f"{name} would be overwritten; choose another name for the drawing")


@verb(
    click.option("--out", type=PATH, default="done.png", show_default=True, help="Draw the images there."),
    click.option("--rows", type=click.IntRange(0), help="Rows that are kept.  [default: half of them]"),
    click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Completions of each image."),
    click.option(
        "--temperature", type=click.FloatRange(0),
        help="Temperature of sampling; 0 takes the most probable.  [default: 1]",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampling, or of the mask."),
    items="image", from_file=False, prints=False,
)  # fmt: skip
def complete(query: Query, out: Path, count: int, seed: int, **options: Any) -> None:
    """Complete each IMAGE with the model in RUN.

    A model of pixels generates the lower part or, without any IMAGE, whole images; a masked autoencoder restores the
    patches that are masked. A row of the drawing is the input, the completions, and the original image.
    """
    from regard.data.readers.image_files import SUFFIXES
    from regard.files import write_atomically
    from regard.tasks.pixel_model import sheet

    if out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{out} has no suffix of an image; use .png")
    spare(out, query.items)
    options = {name: value for name, value in options.items() if value is not None}
    task = query.load(**options)
    write_atomically(out, sheet(task.completions(query.items, count=count, seed=seed, **options)).save)
    echo(f"drawn: {out}", err=True)


@verb(
    beam_option, penalty_option,
    click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Captions of each image."),
    *SAMPLING,
    click.option("--look", type=PATH, help="Draw the attention of each word of the first IMAGE (.png .svg .pdf)."),
    items="image", required=True, from_file=False,
)  # fmt: skip
def caption(query: Query, look: Path | None, **options: Any) -> None:
    """Describe each IMAGE with the model in RUN.

    \b
    regard caption RUN image.png --look words.png
    """
    if look is not None:
        from regard.inside.draw.canvas import check_suffix

        check_suffix(look)
        spare(look, query.items)
    options = with_sampling(options)
    task = query.answer(**options)
    if look is not None:
        from regard.inside.views.captions import draw_words

        draw_words(task, query.items[0], look, task.caption(query.items[:1], **options)[0][0])
        echo(f"drawn: {look}", err=True)
