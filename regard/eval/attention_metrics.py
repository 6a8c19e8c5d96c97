"""Metrics that need attention weights, by the name of the task that they are added to."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.data.generated.scenes import scenes
from regard.data.sets import captioned_images
from regard.inside.views.captions import gains, word_maps
from regard.tasks import EvalSet, Scored


def with_attention(task: Any, test: EvalSet, scored: Scored) -> Scored:
    """Return a task's scores, extended by the metrics computed from its attention weights, if it has any."""
    add = METRICS.get(task.name)
    return scored if add is None else add(task, test, scored)


def caption_gain(task: Any, test: EvalSet, scored: Scored) -> Scored:
    """Add the attention gain to the scores of captions of generated scenes: the attention of colour and shape words on
    their object, as a multiple of the object's share of the image."""
    scores = scored.scores
    if test.data.embedded:
        images = task.test_images(test)
        drawn = scenes("test", 2 * captioned_images.HELD_OUT, images.pixels.shape[1], test.data.most)[: len(images)]
        maps = word_maps(task, task.numbers(images.pixels[:]), scored.details)
        side = task.model.config.cell_side
        each = [gain for (words, weights), scene in zip(maps, drawn, strict=True)
                for gain in gains(words, weights, scene, side)]  # fmt: skip
        scores = scores | {"gain": round(sum(each) / max(1, len(each)), 2)}
    gain = f"   attention on what is named {scores['gain']:.1f} ×" if "gain" in scores else ""
    summary = (
        f"BLEU-4 {scores['bleu_4']:.2f}   exact match {scores['exact_match']:.1f} %{gain}"
        f"   ({scores['images']:,} images)\n{scores['bleu_signature']}"
    )
    return replace(scored, scores=scores, summary=summary)


METRICS: dict[str, Callable[[Any, EvalSet, Scored], Scored]] = {"caption": caption_gain}
