"""The command `latent`: a map of examples, directions, sparse dictionaries."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from regard.cli.base import PATH, device_option, emit, json_option, leave_out, regard
from regard.cli.completion import complete_run
from regard.data.terminal import echo


@regard.command()
@click.argument("run", shell_complete=complete_run)
@click.option("--data", type=PATH, help=".txt, .csv, .tsv, .jsonl, .npz or a folder.  [default: embedded examples]")
@click.option(
    "--layer", type=int, help="Use the outputs of this block, from 0 (-1: the last), not the model's embedding."
)
@click.option("--limit", type=click.IntRange(1), default=2000, show_default=True, help="Most examples to read.")
@click.option("--project", type=click.Choice(["pca", "umap"]), default="pca", show_default=True)
@click.option("--from", "from_", metavar="LABEL|FILE", help="Find the direction from these examples …")
@click.option("--to", metavar="LABEL|FILE", help="… to these.")
@click.option(
    "--walk", metavar="TEXT|IMAGE", help="Move along the direction from this example; show neighbours and outputs."
)
@click.option(
    "--reach", type=float, default=4.0, show_default=True, help="Reach of the walk, in lengths of the direction."
)
@click.option(
    "--decode", is_flag=True,
    help="Show the images that a masked autoencoder decodes along the walk; without --from and --to, along principal "
    "components.",
)  # fmt: skip
@click.option("--dictionary", type=click.IntRange(2), metavar="UNITS", help="Learn a sparse dictionary of tokens.")
@click.option(
    "--active",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Units of the dictionary that are active for a token.",
)
@click.option("--out", type=PATH, help="Draw it there (.png .svg .pdf).")
@device_option
@json_option
def latent(
    run: str, data: Path | None, layer: int | None, limit: int, project: str, from_: str | None, to: str | None,
    walk: str | None, reach: float, decode: bool, dictionary: int | None, active: int, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Show the vectors of examples in the model in RUN: a map, a direction between two sets, a sparse dictionary.

    \b
    regard latent RUN --data reviews.csv --out map.png
    regard latent RUN --data reviews.csv --from bad --to good --walk "a dull film"
    regard latent RUN --data texts.txt --layer 2 --dictionary 256 --out units.png
    regard latent RUN --walk image.png --decode --from 3 --to 8 --out walk.png
    """
    from regard.inside.capture.states import examples_for
    from regard.inside.draw.canvas import check_suffix
    from regard.tasks import load

    if decode and walk is None:
        raise ValueError("--decode shows a walk from an image; give --walk IMAGE")
    if decode and dictionary is not None:
        raise ValueError("--dictionary does not go with --decode; leave one of them out")
    if decode:
        leave_out("has no effect on decoded images", "layer", "project", "active")
    if (from_ is None) != (to is None) or (walk is not None and to is None and not decode):
        raise ValueError("a direction or a walk along it needs both ends; give --from and --to")
    if to is not None and from_ == to:
        raise ValueError(f"a direction has two ends, got {to} twice; give two labels, or two files")
    if dictionary is not None and to is not None:
        raise ValueError("--dictionary does not go with --from and --to; leave one of them out")
    if walk is None:
        leave_out("goes with --walk", "reach")
    if dictionary is None:
        leave_out("goes with --dictionary", "active")
    if dictionary is not None or to is not None:
        leave_out(f"is for the map, and {'a direction' if dictionary is None else 'a dictionary'} has none", "project")
    if out is not None:
        check_suffix(out)
    task = load(run)
    if decode and walk is not None:
        ends = None if from_ is None or to is None else (from_, to)
        show_decoded(task, data, limit, walk, ends, reach, out, as_json)
    elif dictionary is not None:
        learn_dictionary(task, examples_for(task, data).sample(limit), layer, dictionary, active, out, as_json)
    elif from_ is not None and to is not None:
        show_direction(task, data, layer, limit, (from_, to), walk, reach, out, as_json)
    else:
        show_map(task, data, layer, limit, project, out, as_json)
    if out is not None:
        echo(f"drawn: {out}", err=True)


def show_map(
    task: Any, data: Path | None, layer: int | None, limit: int, project: str, out: Path | None, as_json: bool
) -> None:
    """Print and draw a map of examples."""
    from regard.inside.capture.states import examples_for
    from regard.inside.latent.space import Map, Space, draw_space, render_space

    space_map = Map.of(Space.of(task, examples_for(task, data).sample(limit), layer), project)
    emit(space_map.report(), as_json, render_space)
    if out is not None:
        draw_space(space_map, out)


def show_decoded(
    task: Any, data: Path | None, limit: int, start: str, ends: tuple[str, str] | None, reach: float, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print how a decoded image changes along directions, and draw it as strips of images."""
    from regard.inside.capture.states import examples_for, single
    from regard.inside.latent.decoded import REACH, decoded_walk, draw_walk, render_walk

    given = click.get_current_context().get_parameter_source("reach") is ParameterSource.COMMANDLINE
    item = single(task, start).items[0]
    result, images = decoded_walk(
        task, examples_for(task, data).sample(limit), item, ends, reach if given else REACH
    )  # fmt: skip
    emit(result, as_json, render_walk)
    if out is not None:
        draw_walk(result, images, out)


def show_direction(
    task: Any, data: Path | None, layer: int | None, limit: int, ends: tuple[str, str], start: str | None,
    reach: float, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print a direction and a walk along it, and draw both on the map."""
    from regard.inside.capture.states import example_vectors, examples_for, single
    from regard.inside.latent.directions import find_direction, render_direction, walk
    from regard.inside.latent.space import Map, Space, draw_space

    begin = None if start is None else single(task, start)
    if all(Path(end).exists() for end in ends):
        sides = [examples_for(task, end).sample(limit) for end in ends]
        both = sides[0].joined(sides[1], ends)
        pair = Space.of(task, both, layer)
        space = pair if data is None else Space.of(task, examples_for(task, data).sample(limit), layer)
    else:
        examples = examples_for(task, data).sample(limit)
        for end in ends:
            examples.with_label(end)  # a mistake is reported before anything is computed
        pair = space = Space.of(task, examples, layer)
    along = find_direction(*(pair.x[pair.examples.with_label(end)] for end in ends))
    result: dict[str, Any] = {"from": ends[0], "to": ends[1], "vectors": space.made_of} | along.report()
    x = None
    if begin is not None:
        x = example_vectors(task, begin, space.layer)[0]
        result["walk"] = walk(task, begin, x, along, space.examples, space.x, space.layer, reach)
    emit(result, as_json, render_direction)
    if out is not None:
        draw_space(Map.of(space), out, along, x, reach)


def learn_dictionary(
    task: Any, examples: Any, layer: int | None, units: int, active: int, out: Path | None, as_json: bool
) -> None:
    """Learn a dictionary of the vectors behind a block, print it and draw it."""
    from regard.inside.latent import dictionary
    from regard.train.progress import Line

    learned = dictionary.study(task, examples, layer, units, active, tell=Line().show)
    emit(learned.data, as_json, dictionary.render)
    if out is not None:
        dictionary.draw(task, learned, out)
