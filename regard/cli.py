"""The command line. Results go to stdout, progress to stderr; a user's mistake is one line, never a traceback."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

OVERRIDES = {"ignore_unknown_options": True, "allow_extra_args": True}
PATH = click.Path(path_type=Path)


class Commands(click.Group):
    """Lists commands in the order of a journey, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Commands, context_settings={"max_content_width": 100})
@click.version_option(package_name="regard")
def regard() -> None:
    """Every Transformer, from one attention core: train it, run it, look inside it, on your own machine."""


def main() -> None:
    """The entry point: turns mistakes into one line and an exit code."""
    try:
        regard(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(fail("stopped", 130))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(fail(f"error: {error}", 2))


def fail(text: str, code: int) -> int:
    click.echo(f"regard: {text}", err=True)
    return code


def overrides(words: Iterable[str]) -> dict[str, str]:
    """`--train.steps 100 --data.lowercase` as a dictionary; a name without a value is true."""
    found: dict[str, str] = {}
    name = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if equals else "true"
            name = None if equals else name.replace("-", "_")
        elif name is not None:
            found[name], name = word, None
        else:
            raise ValueError(f"{word!r} is not an option; fields are set as --train.steps 100")
    return found


def emit(result: dict[str, Any], as_json: bool, render: Callable[[dict[str, Any]], str]) -> None:
    click.echo(json.dumps(result, ensure_ascii=False) if as_json else render(result))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
beam_option = click.option("--beam", type=click.IntRange(1), help="Beams; 1 is greedy.  [default: 4]")
penalty_option = click.option(
    "--length-penalty", type=float, help="Scores are divided by length to this power.  [default: 1]"
)


@regard.command(context_settings=OVERRIDES, add_help_option=False)
@click.argument("name", required=False)
@click.option("--out", type=PATH, help="Directory of the run.  [default: runs/NAME]")
@click.option("--config", type=PATH, help="TOML file with fields to override.")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--help", "wants_help", is_flag=True, help="Show this message, or with NAME every field.")
@json_option
@click.pass_context
def train(
    ctx: click.Context, name: str | None, out: Path | None, config: Path | None, resume: bool, quiet: bool,
    wants_help: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train a model by recipe NAME; every field can be overridden.

    \b
    regard train translate                                         the embedded phrases
    regard train translate --data.source a.en --data.target a.de   your own pairs
    regard train translate --model seq2seq --model.cell lstm --model.score none
    """
    if name is None or wants_help and name.startswith("-"):
        click.echo(ctx.get_help())
        return
    from regard.config import dotted, read_toml
    from regard.recipes import Recipe, configure, fit, recipe
    from regard.recipes.report import report, show_fields
    from regard.train.loop import Interrupted

    changes = (dotted(read_toml(config)) if config else {}) | overrides(ctx.args)
    out = out or Path("runs") / name
    if resume and not (out / "recipe.toml").exists():
        raise ValueError(f"{out} holds no run to resume; leave out --resume to start one")
    plan = configure(Recipe.load(out / "recipe.toml"), changes) if resume else recipe(name, changes)
    if wants_help:
        click.echo(ctx.get_help() + "\n\n" + show_fields(plan))
        return
    try:
        fitted = fit(plan, out, resume=resume, quiet=quiet)
    except Interrupted as stop:
        sys.exit(fail(str(stop), 130))
    report(out, fitted, as_json=as_json)


@regard.command()
@json_option
def recipes(as_json: bool) -> None:
    """List what can be trained, with minutes on two CPU cores and score."""
    from regard.recipes.report import list_recipes

    click.echo(list_recipes(as_json))


@regard.command()
@click.argument("run", type=PATH)
@click.argument("text", nargs=-1)
@click.option("--input", "input_", type=PATH, help="A file with a text a line (no TEXT and no file: stdin).")
@beam_option
@penalty_option
@click.option("--n-best", type=click.IntRange(1), default=1, show_default=True, help="Translations of each text.")
@click.option("--temperature", type=float, help="Draw tokens at this temperature instead of searching.")
@click.option("--top-k", type=int, help="Draw among the k best only.")
@click.option("--top-p", type=float, help="Draw among the best that reach this probability.")
@click.option("--min-p", type=float, help="Draw among those at least this fraction as probable as the best.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
@click.option("--alignment", type=PATH, help="Draw which source tokens each target token looked at (.png .svg .pdf).")
@json_option
def translate(
    run: Path, text: tuple[str, ...], input_: Path | None, beam: int | None, length_penalty: float | None, n_best: int,
    temperature: float | None, top_k: int | None, top_p: float | None, min_p: float | None, seed: int,
    alignment: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Translate TEXT, the lines of a file, or of stdin with the model in RUN."""
    from regard.data.pairs import read_lines, split_lines
    from regard.decode.sample import Sampling
    from regard.tasks import load

    if text and input_:
        raise ValueError("give either TEXT or --input, not both")
    translator = load(run)
    if text:
        texts = list(text)
    else:
        texts = read_lines(input_) if input_ else split_lines(sys.stdin.buffer.read(), Path("stdin"))
    drawn = any(value is not None for value in (temperature, top_k, top_p, min_p))
    temperature = 1.0 if temperature is None else temperature
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed) if drawn else None
    found = translator.translate(texts, beams=beam, length_penalty=length_penalty, n_best=n_best, sampling=sampling)
    for source, hypotheses in zip(texts, found, strict=True):
        if as_json:
            best = [{"text": h.text, "score": round(h.score, 6)} for h in hypotheses]
            click.echo(json.dumps({"source": source, "translations": best}, ensure_ascii=False))
        else:
            for h in hypotheses:
                click.echo(h.text if n_best == 1 else f"{h.score:8.4f}  {h.text}")
    if alignment is not None:
        from regard.inside.alignments import draw_translation

        if not texts:
            raise ValueError("there is no text to draw an alignment of")
        draw_translation(translator, texts[0], found[0][0], alignment)
        click.echo(f"alignment of the first text: {alignment}", err=True)


@regard.command("eval", context_settings=OVERRIDES)
@click.argument("run", type=PATH)
@beam_option
@penalty_option
@click.option("--limit", type=click.IntRange(1), help="Only the first sentences.")
@click.option("--lowercase", is_flag=True, help="BLEU without regard to case.")
@click.option("--out", type=PATH, help="Write the translations there, one a line.")
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context, run: Path, beam: int | None, length_penalty: float | None, limit: int | None,
    lowercase: bool, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Score the model in RUN: sacreBLEU, chrF and exact match.

    \b
    regard eval RUN                                              the embedded test phrases
    regard eval RUN --data.source test.en --data.target test.de  or --data.pairs test.tsv
    """
    from regard.files import write_atomically
    from regard.recipes.report import held_out_pairs, render_scores, score
    from regard.tasks import load

    pairs = held_out_pairs(run, overrides(ctx.args), limit)
    scores, hypotheses = score(load(run), pairs, beams=beam, length_penalty=length_penalty, lowercase=lowercase)
    if out is not None:
        lines = "".join(text + "\n" for text in hypotheses)
        write_atomically(out, lambda draft: draft.write_text(lines, encoding="utf-8"))
    emit(scores, as_json, render_scores)


@regard.command(context_settings=OVERRIDES)
@click.argument("runs", type=PATH, nargs=-1, required=True)
@click.option("--by", type=click.Choice(["length"]), default="length", show_default=True, help="What to sort by.")
@click.option("--out", type=PATH, help="Draw it (.png .svg .pdf).")
@click.option("--limit", type=click.IntRange(1), help="Only the first sentences.")
@beam_option
@json_option
@click.pass_context
def compare(
    ctx: click.Context, runs: tuple[Path, ...], by: str, out: Path | None, limit: int | None, beam: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Compare RUNS on the same sentences, by source length: a fixed vector's bottleneck shows."""
    # Options may stand between the runs and the fields, so a field's value can land among the runs.
    from regard.inside.canvas import check_suffix
    from regard.recipes.report import compare_by_length, render_comparison

    if out is not None:
        check_suffix(out)
    words = [str(run) for run in runs] + ctx.args
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    result = compare_by_length([Path(w) for w in words[:first]], overrides(words[first:]), limit, beam, out)
    emit(result, as_json, render_comparison)
    if out is not None:
        click.echo(f"drawn: {out}", err=True)


@regard.group(cls=Commands)
def tokenizer() -> None:
    """Train a tokenizer, use it, and see how BPE arrives at its pieces."""


@tokenizer.command("train")
@click.argument("files", type=PATH, nargs=-1, required=True)
@click.option("--kind", type=click.Choice(["bpe", "word", "char"]), default="bpe", show_default=True)
@click.option("--vocab-size", type=int, default=8000, show_default=True)
@click.option("--lowercase", is_flag=True)
@click.option("--out", type=PATH, required=True, help="Where to write tokenizer.json.")
def tokenizer_train(files: tuple[Path, ...], kind: Any, vocab_size: int, lowercase: bool, out: Path) -> None:
    """Learn a vocabulary from text FILES."""
    from regard.tokens import Tokenizer

    made = Tokenizer.train(files, kind=kind, vocab_size=vocab_size, lowercase=lowercase)
    click.echo(f"{kind} tokenizer with {len(made):,} entries: {made.save(out)}")


@tokenizer.command("encode")
@click.argument("file", type=PATH)
@click.argument("text", nargs=-1)
@json_option
def tokenizer_encode(file: Path, text: tuple[str, ...], as_json: bool) -> None:
    """Encode TEXT (or stdin's lines) with the tokenizer in FILE: ids and pieces."""
    from regard.tokens import Tokenizer

    tokens = Tokenizer.load(file)
    for line in text or sys.stdin.read().splitlines():
        ids = tokens.encode(line)
        emit({"ids": ids, "pieces": tokens.pieces(ids)}, as_json, lambda r: " ".join(map(str, r["ids"])))
        if not as_json:
            click.echo(" | ".join(tokens.pieces(ids)), err=True)


@tokenizer.command("decode")
@click.argument("file", type=PATH)
@click.argument("ids", type=int, nargs=-1)
def tokenizer_decode(file: Path, ids: tuple[int, ...]) -> None:
    """Turn IDS (or stdin's lines of ids) back into text."""
    from regard.tokens import Tokenizer

    tokens = Tokenizer.load(file)
    lines = [list(ids)] if ids else [[int(word) for word in line.split()] for line in sys.stdin]
    for line in lines:
        click.echo(tokens.decode(line))


@tokenizer.command("trace")
@click.argument("text")
@click.option("--tokenizer", "file", type=PATH, help="Show this tokenizer's merges; without, those of TEXT alone.")
def tokenizer_trace(text: str, file: Path | None) -> None:
    """Show, merge by merge and with counts, how BPE arrives at its pieces."""
    from regard.tokens import Tokenizer
    from regard.tokens.trace import trace

    click.echo(str(trace(text, Tokenizer.load(file) if file else None)))


@regard.command(context_settings=OVERRIDES)
@click.argument("what")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--length", type=click.IntRange(1), default=1024, show_default=True, help="Target tokens.")
@click.option("--source-length", type=click.IntRange(1), help="Source tokens.  [default: as many]")
@click.option("--training", is_flag=True, help="Count gradients, optimizer and activations too.")
@json_option
@click.pass_context
def cost(
    ctx: click.Context, what: str, batch: int, length: int, source_length: int | None, training: bool, as_json: bool
) -> None:
    """Parameters, FLOPs and memory of a preset, a run or a config, before anything is built.

    \b
    regard cost base --batch 32 --length 128
    regard cost seq2seq:base --vocab-size 37000
    """
    from regard.cost import cost as count
    from regard.recipes.report import find_config

    config = find_config(what, overrides(ctx.args))
    counted = count(config, batch=batch, length=length, source_length=source_length, training=training)
    click.echo(json.dumps(counted.to_dict(), ensure_ascii=False) if as_json else counted.render())


@regard.command()
@click.argument("run", type=PATH)
@click.argument("text")
@click.option("--target", help="Look at this translation instead of the model's own.")
@click.option("--kind", type=click.Choice(["cross", "encoder", "decoder"]), default="cross", show_default=True)
@click.option("--view", type=click.Choice(["heads", "lines"]), default="heads", show_default=True)
@click.option("--out", type=PATH, default=Path("attention.png"), show_default=True, help=".png .svg .pdf")
def look(run: Path, text: str, target: str | None, kind: str, view: str, out: Path) -> None:
    """Draw every layer and head of the model in RUN at work on TEXT."""
    from regard.inside.alignments import draw_attention
    from regard.tasks import load

    draw_attention(load(run), text, target, out, kind=kind, view=view)
    click.echo(f"drawn: {out}", err=True)


@regard.command(context_settings=OVERRIDES)
@click.argument("figure", required=False)
@click.option("--out", type=PATH, help="Where to draw it (.png .svg .pdf).  [default: FIGURE.png]")
@click.pass_context
def draw(ctx: click.Context, figure: str | None, out: Path | None) -> None:
    """Draw a FIGURE of the lectures: positions, masks, schedule, softmax … (without: list them)."""
    from regard.inside import figures

    if figure is None:
        for name in figures.FIGURES:
            click.echo(f"{name:16} {figures.FIGURES[name].__doc__.splitlines()[0]}")
        return
    path = out or Path(f"{figure}.png")
    figures.draw(figure, path, **overrides(ctx.args))
    click.echo(f"drawn: {path}", err=True)


@regard.command()
@click.argument("run", type=PATH)
@click.argument("out", type=PATH)
@click.option("--to", type=click.Choice(["hf"]), default="hf", show_default=True, help="The layout to write.")
def convert(run: Path, out: Path, to: str) -> None:
    """Write the model in RUN so that other projects can read it."""
    from regard.hub.checkpoint import export_model, load_generation, load_model

    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty; choose another directory")
    generation = load_generation(run)
    export_model(load_model(run), out, bos=generation["decoder_start"], eos=generation["eos"], pad=generation["pad"])
    if (run / "tokenizer.json").exists():
        (out / "tokenizer.json").write_bytes((run / "tokenizer.json").read_bytes())
    click.echo(f"written: {out}", err=True)


if __name__ == "__main__":
    main()
