"""The commands train, finetune, recipes, eval, compare and convert."""

import sys
from pathlib import Path
from typing import Any

import click

from regard.cli.base import (
    OVERRIDES,
    PATH,
    beam_option,
    computing_on,
    device_option,
    emit,
    fail,
    importing,
    json_option,
    overrides,
    penalty_option,
    program,
    quantize_option,
    regard,
)  # fmt: skip
from regard.cli.completion import FieldCommand, complete_recipe, complete_run
from regard.data.notices import notify
from regard.data.terminal import echo

no_score_option = click.option(
    "--no-score", is_flag=True, help="Train only: no scores and no samples afterwards (regard eval makes them)."
)


def check_fields(name: str, changes: dict[str, Any], *, any_family: bool) -> None:
    """Raise an error for a mistyped recipe or field, before anything heavy is imported; plugins may have others."""
    from regard.cli import outline

    if not click.get_current_context().find_root().params.get("plugins"):
        outline.check_fields(name, changes, any_family=any_family)


@regard.command(context_settings=OVERRIDES, add_help_option=False, cls=FieldCommand)
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option("--out", type=PATH, help="Directory of the run.  [default: runs/NAME]")
@click.option("--config", type=PATH, help="TOML file with fields to override.")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--probe", is_flag=True, help="Then train a linear classifier on every layer (image models).")
@no_score_option
@click.option("--help", "wants_help", is_flag=True, help="Show this message, or with NAME every field.")
@json_option
@click.pass_context
def train(
    ctx: click.Context, name: str | None, out: Path | None, config: Path | None, resume: bool, quiet: bool,
    probe: bool, no_score: bool, wants_help: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train a model by recipe NAME; every field can be overridden.

    \b
    regard train translate                                         the embedded phrases
    regard train translate --data.source a.en --data.target a.de   your own pairs
    regard train lm --data.text book.txt --data.kind char          a language model
    regard train classify --data.train train.tsv                   labels of texts
    regard train vit --data.images FOLDER                          labels of images
    regard train detr --data.coco annotations.json                 objects in images
    """
    if name is None or wants_help and name.startswith("-"):
        from regard.cli.outline import render_recipes

        echo(f"{ctx.get_help()}\n\nRecipes (regard train NAME --help lists the fields):\n{render_recipes()}")
        return
    from regard.config import dotted, read_toml

    settings = dotted(read_toml(config)) if config else {}
    stored = settings if "name" in settings else {}  # a run's whole recipe, which says what followed from its data
    changes = ({} if stored else settings) | overrides(ctx.args)
    check_fields(name, changes, any_family=resume or bool(stored))
    if wants_help:
        from regard.cli.catalogue import show_fields
        from regard.recipes import recipe

        echo(ctx.get_help() + "\n\n" + show_fields(recipe(name, changes, stored)))
        return
    run_recipe(name, changes, out or Path("runs") / name, resume, quiet, as_json, probe, stored, score=not no_score)


def run_recipe(
    name: str, changes: dict[str, Any], out: Path, resume: bool, quiet: bool, as_json: bool, probe: bool = False,
    stored: dict[str, Any] | None = None, score: bool = True,
) -> None:  # fmt: skip
    """Train or resume a run, and print its results; with `score` off, without scoring it."""
    check_fields(name, changes, any_family=resume or bool(stored))
    with importing():
        from regard.eval.report import report
        from regard.recipes import Recipe, configure, fit, recipe
        from regard.runs.recipe import check_effect
        from regard.train import processes
        from regard.train.loop import Interrupted

    resume = resume or processes.goes_on(out)
    if resume and not (out / "recipe.toml").exists():
        raise ValueError(f"{out} holds no run to resume; leave out --resume to start one")
    if resume:
        before = Recipe.load(out / "recipe.toml")
        plan = configure(before, (stored or {}) | changes)
        check_effect(before, plan, [key.replace("-", "_") for key in changes])
    else:
        plan = recipe(name, changes, stored)
    if plan.name != name:
        raise ValueError(f"{out} is a run of {plan.name}, not of {name}; go on with regard train {plan.name} --resume")
    if probe:
        from regard.eval import probe as linear

        linear.check_labels(plan.data)  # before the training
    with computing_on(plan.train.device):
        try:
            fitted = fit(plan, out, resume=resume, quiet=quiet)
        except Interrupted as stop:
            sys.exit(fail(str(stop), 130))
        if processes.rank():
            return
        report(out, fitted, as_json=as_json, program=program(), score=score)
        if probe:
            emit(linear.probe(out, {}), as_json, linear.render)


@regard.command(context_settings=OVERRIDES, cls=FieldCommand)
@click.argument("base", shell_complete=complete_run)
@click.option("--task", help="What to learn, where the data may mean several: classify, tag, answer, embed, instruct …")
@click.option("--tune", type=click.Choice(["all", "head", "lora"]), help="Weights to train.  [default: all]")
@click.option("--out", type=PATH, help="Directory of the run.  [default: runs/TASK, runs/TASK-tuned …]")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped.")
@click.option("--quiet", is_flag=True, help="No progress.")
@no_score_option
@json_option
@click.pass_context
def finetune(
    ctx: click.Context, base: str, task: str | None, tune: str | None, out: Path | None, resume: bool, quiet: bool,
    no_score: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fine-tune a trained model, BASE (a run, a checkpoint or hf:owner/name); the data decide for what.

    \b
    regard finetune TRANSLATOR --data.source new.en --data.target new.de     or --data.pairs new.tsv
    regard finetune LANGUAGE_MODEL --data.text more.txt                      an encoder too, by masked words
    regard finetune CLIP_OR_CAPTIONER --data.images captions.csv
    regard finetune CHECKPOINT --task classify --data.train train.tsv --data.valid dev.tsv
    regard finetune CHECKPOINT --task tag --tune lora --data.train train.conll
    regard finetune CHECKPOINT --data.images FOLDER --data.size 96
    regard finetune CHECKPOINT --data.coco annotations.json        a detr; or --data.voc FOLDER
    """
    changes = {"data.base": base} | ({"data.tune": tune} if tune else {}) | overrides(ctx.args)
    if not click.get_current_context().find_root().params.get("plugins"):
        from regard.cli.outline import check_task

        check_task(task, changes)  # before anything heavy is imported
    from regard.runs.recipe import Recipe
    from regard.runs.starts import choose, place_of

    stored = (out or place_of(task)) / "recipe.toml" if resume and (out or task) else None
    if stored is not None:
        if not stored.exists():
            raise ValueError(f"{stored.parent} holds no run to resume; leave out --resume to start one")
        run_recipe(Recipe.load(stored).name, changes, stored.parent, resume, quiet, as_json, score=not no_score)
        return
    start = choose(base, task, {key[5:]: value for key, value in changes.items() if key.startswith("data.")})
    if (mode := changes.get("data.tune", "all")) not in start.tunes:
        raise ValueError(f"{start.whole} is always fine-tuned as a whole; leave out --tune {mode}")
    run_recipe(start.recipe, changes, out or start.place, resume, quiet, as_json, score=not no_score)


@regard.command()
@json_option
def recipes(as_json: bool) -> None:
    """List all recipes with their minutes and scores."""
    from regard.cli.catalogue import list_recipes

    echo(list_recipes(as_json))


@regard.command("eval", context_settings=OVERRIDES, cls=FieldCommand)
@click.argument("run", shell_complete=complete_run)
@beam_option
@penalty_option
@click.option(
    "--limit", type=click.IntRange(1), help="At most so many examples: the first ones, or a random sample of images."
)
@click.option("--lowercase", is_flag=True, help="BLEU without regard to case.")
@click.option("--few-shot", type=click.IntRange(0), help="Classify by so many examples in a prompt.")
@click.option("--probe", is_flag=True, help="Instead: a linear classifier on every layer of an image model.")
@click.option("--labels", type=click.IntRange(2), help="Labelled images to train it on.  [default: 1000]")
@click.option("--out", type=PATH, help="Write the model's outputs there, one a line.")
@click.option("--confusion", type=PATH, help="Draw which labels are taken for which (.png .svg .pdf).")
@quantize_option
@device_option
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context, run: str, limit: int | None, few_shot: int | None, probe: bool, labels: int | None,
    out: Path | None, confusion: Path | None, quantize: Any, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Score the model in RUN on held-out data, by the metrics of its task.

    \b
    regard eval RUN                                              the data held out of its training
    regard eval RUN --data.source test.en --data.target test.de  translations; or --data.pairs test.tsv
    regard eval RUN --data.train train.tsv --data.test test.tsv  labels, tags, answers
    regard eval RUN --data.images FOLDER                         labels of images
    regard eval RUN --data.coco annotations.json                 boxes in images; or --data.voc FOLDER
    regard eval RUN --data.text test.txt                         bits per byte, next to xz and bz2
    regard eval RUN --few-shot 8 --data.train train.tsv          labels by examples in the prompt
    regard eval RUN --probe --data.images FOLDER                 a linear probe of every layer
    """
    if labels is not None and not probe:
        raise ValueError("--labels are for a linear classifier; add --probe")
    if probe:
        from regard.eval import probe as linear

        emit(linear.probe(run, overrides(ctx.args), labels=labels, limit=limit), as_json, linear.render)
        return
    with importing():
        from regard.eval import scores
    from regard.data.readers.packed import check_packer, create
    from regard.files import write_atomically

    if out is not None:
        check_packer(out)
    if confusion is not None:
        from regard.inside.draw.canvas import check_suffix

        check_suffix(confusion)
    scored = scores.evaluate(run, overrides(ctx.args), limit=limit, few_shot=few_shot, quantize=quantize, **options)
    if out is not None:
        lines = "".join(" ".join(text.split()) + "\n" for text in scored.outputs)

        def write(draft: Path) -> None:
            with create(draft) as file:
                file.write(lines.encode())

        write_atomically(out, write)
    if confusion is not None and scored.confusion is None:
        raise ValueError(f"{run} gives no labels, so there is nothing to confuse; leave out --confusion")
    emit(scored.as_json(), as_json, lambda _: scored.render())
    if confusion is not None and scored.confusion is not None:
        from regard.inside.draw.confusion import draw_confusion

        draw_confusion(scored.confusion.labels, scored.confusion.counts, confusion)
        echo(f"drawn: {confusion}", err=True)


@regard.command(context_settings=OVERRIDES)
@click.argument("runs", type=PATH, nargs=-1, required=True, shell_complete=complete_run)
@click.option(
    "--by",
    type=click.Choice(["length", "time"]),
    default="length",
    show_default=True,
    help="Compare by source length, or by training time.",
)
@click.option("--out", type=PATH, help="Draw it (.png .svg .pdf).")
@click.option("--limit", type=click.IntRange(1), help="Only the first sentences.")
@beam_option
@device_option
@json_option
@click.pass_context
def compare(
    ctx: click.Context, runs: tuple[Path, ...], by: str, out: Path | None, limit: int | None, beams: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Compare RUNS on the same held-out data.

    By source length, translators show the bottleneck of a fixed vector; by time, language models their loss curves.
    """
    from regard.eval import compare as side_by_side
    from regard.inside.draw.canvas import check_suffix

    if out is not None:
        check_suffix(out)
    # Options may stand between the runs and the fields, so a field's value can land among the runs.
    words = [str(run) for run in runs] + ctx.args
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    paths = [Path(word) for word in words[:first]]
    if by == "time":
        emit(side_by_side.compare_by_time(paths, limit, out), as_json, side_by_side.render_race)
    else:
        result = side_by_side.compare_by_length(paths, overrides(words[first:]), limit, beams, out)
        emit(result, as_json, side_by_side.render_comparison)
    if out is not None:
        echo(f"drawn: {out}", err=True)


@regard.command()
@click.argument("run", shell_complete=complete_run)
@click.argument("out", type=PATH)
@click.option("--to", type=click.Choice(["hf", "onnx"]), help="The layout to write.  [default: hf where it can be]")
def convert(run: str, out: Path, to: str | None) -> None:
    """Convert the model in RUN, with its tokenizer or image preprocessing, to a layout that other projects read.

    \b
    regard convert RUN DIRECTORY        the layout of Hugging Face's transformers; if it has no such model, ONNX
    regard convert RUN model.onnx       a graph for onnxruntime and others
    """
    from regard.tasks import load
    from regard.tasks.export import export

    alone = out.suffix == ".onnx"
    if out.exists() and (alone or not out.is_dir() or any(out.iterdir())):
        why = "exists; choose another name" if alone else "is not empty; choose another directory"
        raise ValueError(f"{out} {why}")
    if to == "hf" and alone:
        raise ValueError(f"--to hf writes a directory, and {out} is the name of an ONNX file; leave out --to")
    notify(f"reading {run} …", passing=True)
    task = load(run, "none")
    notify(f"writing {out} …", passing=True)
    lines = export(task, run, out, "onnx" if alone else to)
    notify("", passing=True)
    for line in (*lines, f"written: {out}"):
        echo(line, err=True)
