"""What lies where in a model's space of vectors."""

from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, emit, json_option, regard


@regard.command()
@click.argument("run")
@click.option("--data", type=PATH, help=".txt, .csv, .tsv, .jsonl, .npz or a folder.  [default: embedded examples]")
@click.option("--layer", type=int, help="Vectors behind this block, from 0 (-1: the last), not the model's own.")
@click.option("--limit", type=click.IntRange(1), default=2000, show_default=True, help="Most examples to read.")
@click.option("--project", type=click.Choice(["pca", "umap"]), default="pca", show_default=True)
@click.option("--from", "from_", metavar="LABEL|FILE", help="Find the direction from these examples …")
@click.option("--to", metavar="LABEL|FILE", help="… to these.")
@click.option("--walk", metavar="TEXT|IMAGE", help="Go along the direction from here: what is near, what is written.")
@click.option("--dictionary", type=click.IntRange(2), metavar="UNITS", help="Learn a sparse dictionary of tokens.")
@click.option("--active", type=click.IntRange(1), default=8, show_default=True, help="Units of it that a token may use.")
@click.option("--out", type=PATH, help="Draw it there (.png .svg .pdf).")
@json_option
def latent(
    run: str, data: Path | None, layer: int | None, limit: int, project: str, from_: str | None, to: str | None,
    walk: str | None, dictionary: int | None, active: int, out: Path | None, as_json: bool,
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
    if dictionary is not None and to is not None:
        raise ValueError("a dictionary and a direction are two questions; ask one at a time")
    if out is not None:
        check_suffix(out)
    loaded = load(run)
    if dictionary is not None:
        learn_dictionary(loaded, examples_for(loaded, data).draw(limit), layer, dictionary, active, out, as_json)
    else:
        show_space(loaded, data, layer, limit, project, from_, to, walk, out, as_json)
    if out is not None:
        click.echo(f"drawn: {out}", err=True)


def show_space(
    loaded: Any, data: Path | None, layer: int | None, limit: int, project: str, from_: str | None, to: str | None,
    walk: str | None, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Prints and draws the map and, where asked for, a direction and a walk."""
    import torch

    from regard.inside import latent as space
    from regard.inside.states import block_at, blocks_of, examples_for, has_own, single, vectors_of
    from regard.tasks.speaker import Speaker

    ends = None if from_ is None or to is None else (from_, to)
    sides = None
    if ends is not None and all(Path(end).exists() for end in ends):
        sides = [examples_for(loaded, end).draw(limit) for end in ends]
        examples = sides[0].joined(sides[1], ends) if data is None else examples_for(loaded, data).draw(limit)
    else:
        examples = examples_for(loaded, data).draw(limit)
    own = layer is None and has_own(loaded)
    place = None if own else block_at(blocks_of(loaded, examples.pictures), layer)
    start = None if walk is None else single(loaded, walk)
    begin = None if start is None else vectors_of(loaded, start, place)[0]
    x = vectors_of(loaded, examples, place)
    said: dict[str, Any] = {
        "names": examples.names, "labels": examples.labels, "width": x.shape[1],
        "vectors": "the model's own" if own else f"means over tokens behind block {place}",
    }  # fmt: skip
    along = None
    if ends is not None:
        if sides is not None:
            one, other = (vectors_of(loaded, side, place) for side in sides)
        else:
            one, other = (x[examples.places(end)] for end in ends)
        along = space.find_direction(one, other)
        said |= {
            "from": ends[0], "to": ends[1], "length": along.vector.norm().item(), "accuracy": along.accuracy,
            "held_out": along.held,
        }  # fmt: skip
    if along is not None and start is not None and begin is not None:
        others = [i for i, name in enumerate(examples.names) if name != walk]
        said["walk"] = space.walk(begin, along, x[others], examples.take(others))
        if isinstance(loaded, Speaker) and place is not None:
            for stop in said["walk"]:
                with space.steered(loaded, place, stop["step"] * along.vector, pictures=start.pictures):
                    stop["writes"] = space.write(loaded, start.items[0])
    if along is None or out is not None or as_json:
        points, axes, said["explained"] = space.pca(x) if project == "pca" else (space.umap(x), None, [])
        said["points"] = points.tolist()
        if len(set(examples.labels)) > 1:
            said |= {"agreement": space.agreement(x, examples.labels), "by_chance": space.by_chance(examples.labels)}
            said["on_plane"] = space.agreement(points, examples.labels)
        if out is not None:
            arrow = stops = None
            if along is not None and axes is not None:
                plane = lambda rows: (torch.stack(rows).double() - x.double().mean(0)) @ axes.T  # noqa: E731
                arrow = plane([along.start, along.start + along.vector])
                if begin is not None:
                    stops = plane([begin + step * along.vector for step in space.STEPS])
            names = [f"axis {i}: {100 * share:.1f} % of the variance" for i, share in enumerate(said["explained"], 1)]
            names = names or ["", ""]
            title = f"{len(x):,} examples, {said['vectors']}"
            space.draw_space(points, examples.labels, out, title=title, axes_names=names, arrow=arrow, stops=stops)
    emit(said, as_json, space.render_space if along is None else space.render_direction)


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
