"""What a run is worth: scores on held-out pairs, samples, comparisons, and the list of recipes."""

import json
import shlex
import sys
import textwrap
import typing
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.config import describe, dotted, field_docs, flatten, nearest, override, read_toml
from regard.data.pairs import Pairs, PairsConfig, embedded
from regard.data.phrases import SHOWCASE
from regard.decode.scores import exact_match, translation_scores
from regard.models import preset
from regard.recipes.base import Recipe, recipe
from regard.recipes.translate import encode
from regard.registry import models, recipes
from regard.tasks import Translator, load
from regard.train.loop import Fitted

TEST_SENTENCES = 1000


def score(
    translator: Translator,
    pairs: Pairs,
    *,
    beams: int | None = None,
    length_penalty: float | None = None,
    lowercase: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Scores of a model's translations of `pairs`, and the translations."""
    found = translator.translate([source for source, _ in pairs], beams=beams, length_penalty=length_penalty)
    hypotheses = [best[0].text for best in found]
    return translation_scores(hypotheses, [target for _, target in pairs], lowercase=lowercase), hypotheses


def render_scores(scores: Mapping[str, Any]) -> str:
    return (
        f"exact match {scores['exact_match']:.1f} %   BLEU {scores['bleu']:.2f}   chrF {scores['chrf']:.2f}"
        f"   ({scores['sentences']:,} sentences)\n{scores['bleu_signature']}"
    )


def held_out_pairs(run: Path, changes: Mapping[str, Any], limit: int | None) -> Pairs:
    """The pairs that `--data.…` names; else the embedded test phrases, or the run's own validation pairs."""
    given = override(PairsConfig(), {key.removeprefix("data."): value for key, value in changes.items()})
    if not given.embedded:
        from regard.data.pairs import read_pairs

        pairs = read_pairs(given.source, given.target, given.pairs, given.keys)
    else:
        own = Recipe.load(run / "recipe.toml").data if (run / "recipe.toml").exists() else given
        pairs = embedded("test", TEST_SENTENCES) if own.embedded else own.split()[1]
    return pairs[:limit]


def report(out: Path, fitted: Fitted, *, as_json: bool) -> None:
    """After training: scores on held-out pairs, five translations, a picture, and what to try next."""
    from regard.inside.alignments import draw_translation

    translator, plan = load(out), Recipe.load(out / "recipe.toml")
    pairs = held_out_pairs(out, {}, None)
    usable = encode(pairs, translator.tokenizer, plan.data.max_len)[:TEST_SENTENCES]
    pairs = [pairs[pair.number - 1] for pair in usable]
    print(f"translating {len(pairs):,} held-out sentences …", file=sys.stderr)
    scores, _ = score(translator, pairs)
    scores |= {"steps": fitted.step, "minutes": round(fitted.seconds / 60, 2), "valid_loss": fitted.valid_loss}
    samples = list(SHOWCASE) if plan.data.embedded else [source for source, _ in pairs[:5]]
    found = [best[0] for best in translator.translate(samples)]
    picture: Path | None = out / "alignment.png"
    try:
        draw_translation(translator, samples[0], found[0], out / "alignment.png")
    except ValueError as error:  # a model without attention has no alignment
        print(error, file=sys.stderr)
        picture = None
    if as_json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    print(f"\n{fitted.step} steps in {fitted.seconds / 60:.1f} minutes; on held-out pairs:")
    print(render_scores(scores) + "\n")
    for source, translation in zip(samples, found, strict=True):
        print(f"  {source}\n    → {textwrap.shorten(translation.text, 200, placeholder=' …')}")
    print(f"\nwhere it looked: {picture}" if picture else "")
    print(
        "\nTry next:\n"
        f"  regard translate {out} {shlex.quote(samples[-1])} --n-best 3\n"
        f"  regard look {out} {shlex.quote(samples[0])} --out heads.png\n"
        f"  regard train translate --model seq2seq --model.score none --out runs/no-attention"
    )


def source_words(pair: tuple[str, str]) -> int:
    return len(pair[0].split())


def compare_by_length(
    runs: list[Path], changes: Mapping[str, Any], limit: int | None, beams: int | None, out: Path | None
) -> dict[str, Any]:
    """BLEU and exact match of each run in up to five classes of source length."""
    if len({run.name for run in runs}) < len(runs):
        raise ValueError("runs to compare need different names")
    pairs = sorted(held_out_pairs(runs[0], changes, limit), key=source_words)
    # About as many sentences in each class, and every length in one class only.
    ends = sorted({source_words(pairs[len(pairs) * i // 5 - 1]) for i in range(1, 6) if len(pairs) * i >= 5})
    groups = [[pair for pair in pairs if low < source_words(pair) <= high] for low, high in pairwise([-1, *ends])]
    result: dict[str, Any] = {"by": "length", "runs": {}}
    for run in runs:
        hypotheses = iter(score(load(run), pairs, beams=beams)[1])
        rows = []
        for group in groups:
            texts, references = [next(hypotheses) for _ in group], [target for _, target in group]
            short, long = source_words(group[0]), source_words(group[-1])
            rows.append(
                {
                    "words": f"{short}–{long}" if long > short else str(short),
                    "sentences": len(group),
                    "bleu": translation_scores(texts, references)["bleu"],
                    "exact_match": round(exact_match(texts, references), 2),
                }
            )
        result["runs"][run.name] = rows
    if out is not None:
        from regard.inside.views import draw_by_length

        series = {
            name: [(row["words"], row["bleu"], row["sentences"]) for row in rows]
            for name, rows in result["runs"].items()
        }
        draw_by_length(series, out, "BLEU")
    return result


def render_comparison(result: Mapping[str, Any]) -> str:
    rows = next(iter(result["runs"].values()))
    width = max(map(len, [*result["runs"], "BLEU, source words"])) + 2
    lines = [f"{'BLEU, source words':{width}}" + "".join(f"{row['words']:>9}" for row in rows)]
    lines += [f"{name:{width}}" + "".join(f"{row['bleu']:9.2f}" for row in own) for name, own in result["runs"].items()]
    return "\n".join(lines)


def list_recipes(as_json: bool) -> str:
    """Each recipe's own description: what, command, minutes, score."""
    docs = {name: sys.modules[recipes[name].__module__].__doc__ or "" for name in recipes}
    if as_json:
        return json.dumps(docs, ensure_ascii=False)
    return "\n".join(f"{name}\n  " + text.strip().replace("\n", "\n  ") + "\n" for name, text in docs.items()).rstrip()


def show_fields(plan: Recipe) -> str:
    """Every field of a recipe with its value, its type and its line of documentation."""
    lines = [f"Fields of {plan.name} (--model {plan.family}; presets: {', '.join(models[plan.family].presets)}):"]
    data = "the embedded data; with --data.source or --data.pairs --help shows those for your own"
    lines.append(f"Values are those for {data if plan.data.embedded else 'data of your own'}.")
    for section in ("model", "data", "train"):
        config = getattr(plan, section)
        kind: Any = type(config)
        docs, hints = field_docs(kind), typing.get_type_hints(kind)
        for name, value in flatten(config).items():
            option = f"--{section}.{name.replace('_', '-')}"
            shown = ",".join(value) if isinstance(value, tuple) else value
            lines.append(f"  {option:28} {docs[name]} [{describe(hints[name])}; {shown}]")
    return "\n".join(lines)


def find_config(what: str, changes: Mapping[str, Any]) -> Any:
    """A model's config from a preset (`base`, `seq2seq:base`), a run's directory, a recipe or a TOML file."""
    path = Path(what)
    if (path / "recipe.toml").exists():
        return override(Recipe.load(path / "recipe.toml").model, changes)
    if path.suffix == ".toml":
        tree = dotted(read_toml(path))
        return override(recipe(tree.pop("name", "translate"), tree).model, changes)
    family, _, size = what.rpartition(":")
    family = family or "transformer"
    if size in models[family].presets:
        return preset(family, size, **changes)
    known = [*models[family].presets, *(f"{name}:{size}" for name in models for size in models[name].presets)]
    raise ValueError(f"{what!r} is no preset, run or .toml file; {nearest(what, known)}")
