"""Runs side by side on the same held-out data."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from regard.recipes.scores import held_out_pairs, score_pairs
from regard.tasks import load
from regard.tasks.scores import exact_match, translation_scores


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
        hypotheses = iter(score_pairs(load(run), pairs, beams=beams).outputs)
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
