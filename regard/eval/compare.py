"""Runs side by side on the same held-out data."""

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.data.sets.running_text import TextConfig
from regard.eval.scores import eval_set, score
from regard.runs.recipe import Recipe
from regard.tasks import load
from regard.tasks.metrics import exact_match, translation_scores
from regard.tokens.encoding import encode_text
from regard.train.loop import read_metrics


def source_words(pair: tuple[str, str]) -> int:
    return len(pair[0].split())


def check_names(runs: list[Path]) -> None:
    """Raise an error if two runs would have one name in the result."""
    if len({run.name for run in runs}) < len(runs):
        raise ValueError("runs to compare need different names")


def compare_by_length(
    runs: list[Path], changes: Mapping[str, Any], limit: int | None, beams: int | None, out: Path | None
) -> dict[str, Any]:
    """BLEU and exact match of each run in up to five classes of source length."""
    check_names(runs)
    translators = {run: load(run) for run in runs}
    for run, task in translators.items():
        if task.verb("translate") is None:
            raise ValueError(
                f"{run} does not translate; compare language models with --by time, others: regard eval {run}"
            )
    first = translators[runs[0]]
    pairs = sorted(first.test_pairs(eval_set(first, runs[0], changes, limit)), key=source_words)
    # About as many sentences in each class, and every length in one class only.
    ends = sorted({source_words(pairs[len(pairs) * i // 5 - 1]) for i in range(1, 6) if len(pairs) * i >= 5})
    groups = [[pair for pair in pairs if low < source_words(pair) <= high] for low, high in pairwise([-1, *ends])]
    result: dict[str, Any] = {"by": "length", "runs": {}}
    for run in runs:
        hypotheses = iter(translators[run].evaluate_pairs(pairs, beams=beams).outputs)
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
        from regard.inside.draw.curves import draw_by_length

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


def compare_by_time(runs: list[Path], limit: int | None, out: Path | None) -> dict[str, Any]:
    """Language models on the same held-out text: size, minutes, bits per byte; and how they got there."""
    check_names(runs)
    result: dict[str, Any] = {"by": "time", "runs": {}}
    texts = set()
    curves = {}
    for run in runs:
        if not (run / "metrics.jsonl").is_file():
            raise ValueError(f"{run}: no metrics.jsonl; name directories of runs")
        task = load(run)
        data = Recipe.load(run / "recipe.toml").data
        if task.verb("generate") is None or not isinstance(data, TextConfig):
            raise ValueError(
                f"{run} is no language model of running text; translators: --by length, others: regard eval {run}"
            )
        texts.add(data.sha256)
        if len(texts) > 1:
            raise ValueError(f"{run} was trained on another text than those before it; compare runs of one text")
        rows = [row for row in read_metrics(run / "metrics.jsonl") if "valid_loss" in row]
        _, valid = data.split()
        tokens = len(encode_text(task.tokenizer, valid))
        rate = tokens / len(valid.encode()) / math.log(2)  # of a loss a token to bits per byte
        curves[run.name] = [(row["seconds"] / 60, row["valid_loss"] * rate) for row in rows]
        scores = score(task, run, {}, limit).scores
        result["runs"][run.name] = {
            "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
            "minutes": round(rows[-1]["seconds"] / 60, 2),
            "steps": rows[-1]["step"],
            **scores,
        }
    if out is not None:
        from regard.inside.draw.curves import draw_race

        draw_race(curves, out, "bits per byte, validation")
    return result


def render_race(result: Mapping[str, Any]) -> str:
    width = max(map(len, result["runs"])) + 2
    lines = [f"{'':{width}}{'parameters':>12}{'minutes':>9}{'steps':>8}{'bits per byte':>15}"]
    for name, row in result["runs"].items():
        numbers = f"{row['parameters']:>12,}{row['minutes']:>9.1f}{row['steps']:>8,}{row['bits_per_byte']:>15.3f}"
        lines.append(f"{name:{width}}{numbers}")
    other = next(iter(result["runs"].values()))
    return "\n".join([*lines, f"{'xz':{width}}{other['xz']:>44.3f}", f"{'bz2':{width}}{other['bz2']:>44.3f}"])
