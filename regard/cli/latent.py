"""What lies where in a model's space of vectors."""

from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, emit, json_option, leave_out, regard


@regard.command()
@click.argument("run")
@click.option("--data", type=PATH, help=".txt, .csv, .tsv, .jsonl, .npz or a folder.  [default: embedded examples]")
@click.option("--layer", type=int, help="Vectors behind this block, from 0 (-1: the last), not the model's own.")
@click.option("--limit", type=click.IntRange(1), default=2000, show_default=True, help="Most examples to read.")
@click.option("--project", type=click.Choice(["pca", "umap"]), default="pca", show_default=True)
@click.option("--from", "from_", metavar="LABEL|FILE", help="Find the direction from these examples …")
@click.option("--to", metavar="LABEL|FILE", help="… to these.")
@click.option("--walk", metavar="TEXT|IMAGE", help="Go along the direction from here: what is near, what is written.")
@click.option("--reach", type=float, default=4.0, show_default=True, help="How far, in lengths of the direction.")
@click.option("--dictionary", type=click.IntRange(2), metavar="UNITS", help="Learn a sparse dictionary of tokens.")
@click.option(
    "--active", type=click.IntRange(1), default=8, show_default=True, help="Units of it that a token may use."
)
@click.option("--out", type=PATH, help="Draw it there (.png .svg .pdf).")
@json_option
def latent(
    run: str, data: Path | None, layer: int | None, limit: int, project: str, from_: str | None, to: str | None,
    walk: str | None, reach: float, dictionary: int | None, active: int, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Examples as the model in RUN holds them: a map of them, a direction between two kinds, a sparse dictionary.

    \b
    regard latent RUN --data reviews.csv --out map.png
    regard latent RUN --data reviews.csv --from bad --to good --walk "a dull film"
    regard latent RUN --data texts.txt --layer 2 --dictionary 256 --out units.png
    """
    from regard.inside.canvas import check_suffix
    from regard.inside.states import examples_for
    from regard.tasks import load

    if (from_ is None) != (to is None) or (walk is not None and to is None):
        raise ValueError("a direction has two ends, and a walk goes along one; give --from and --to")
    if to is not None and from_ == to:
        raise ValueError(f"a direction has two ends, got {to} twice; give two labels, or two files")
    if dictionary is not None and to is not None:
        raise ValueError("a dictionary and a direction are two questions; ask one at a time")
    if walk is None:
        leave_out("goes with --walk", "reach")
    if dictionary is None:
        leave_out("goes with --dictionary", "active")
    if dictionary is not None or to is not None:
        leave_out(f"is for the map, and {'a direction' if dictionary is None else 'a dictionary'} has none", "project")
    if out is not None:
        check_suffix(out)
    loaded = load(run)
    if dictionary is not None:
        learn_dictionary(loaded, examples_for(loaded, data).sample(limit), layer, dictionary, active, out, as_json)
    elif from_ is not None and to is not None:
        show_direction(loaded, data, layer, limit, (from_, to), walk, reach, out, as_json)
    else:
        show_map(loaded, data, layer, limit, project, out, as_json)
    if out is not None:
        click.echo(f"drawn: {out}", err=True)


def show_map(
    loaded: Any, data: Path | None, layer: int | None, limit: int, project: str, out: Path | None, as_json: bool
) -> None:
    """Prints and draws where examples lie."""
    from regard.inside.latent import Map, Space, draw_space, render_space
    from regard.inside.states import examples_for

    found = Map.of(Space.of(loaded, examples_for(loaded, data).sample(limit), layer), project)
    emit(found.report(), as_json, render_space)
    if out is not None:
        draw_space(found, out)


def show_direction(
    loaded: Any, data: Path | None, layer: int | None, limit: int, ends: tuple[str, str], start: str | None,
    reach: float, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints a direction and a walk along it, and draws both on the map."""
    from regard.inside.direction import find_direction, render_direction, walk
    from regard.inside.latent import Map, Space, draw_space
    from regard.inside.states import examples_for, single, vectors_of

    begin = None if start is None else single(loaded, start)
    if all(Path(end).exists() for end in ends):
        sides = [examples_for(loaded, end).sample(limit) for end in ends]
        both = sides[0].joined(sides[1], ends)
        pair = Space.of(loaded, both, layer)
        space = pair if data is None else Space.of(loaded, examples_for(loaded, data).sample(limit), layer)
    else:
        examples = examples_for(loaded, data).sample(limit)
        for end in ends:
            examples.with_label(end)  # a mistake is told before anything is computed
        pair = space = Space.of(loaded, examples, layer)
    along = find_direction(*(pair.x[pair.examples.with_label(end)] for end in ends))
    said: dict[str, Any] = {"from": ends[0], "to": ends[1], "vectors": space.made_of} | along.report()
    x = None
    if begin is not None:
        x = vectors_of(loaded, begin, space.layer)[0]
        said["walk"] = walk(loaded, begin, x, along, space.examples, space.x, space.layer, reach)
    emit(said, as_json, render_direction)
    if out is not None:
        draw_space(Map.of(space), out, along, x, reach)


def learn_dictionary(
    loaded: Any, examples: Any, layer: int | None, units: int, active: int, out: Path | None, as_json: bool
) -> None:
    """Learns a dictionary of what stands behind a block, prints it and draws it."""
    from regard.inside import dictionary
    from regard.inside.states import block_at, blocks_of
    from regard.train.progress import Line

    place = block_at(blocks_of(loaded, examples.pictures), layer)
    learned = dictionary.study(loaded, examples, place, units, active, tell=Line().show)
    emit(learned.said, as_json, dictionary.render)
    if out is not None:
        dictionary.draw(loaded, learned, out)
