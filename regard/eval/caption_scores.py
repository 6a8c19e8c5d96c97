"""Metrics of captions, and how much the attention of generated scenes' captions lies on the objects they name."""

from typing import Any

from regard.data.generated.scenes import scenes
from regard.data.sets import captioned_images
from regard.data.sets.captioned_images import CaptionedImages, CaptionsConfig
from regard.inside.captions import gains, word_maps
from regard.tasks.metrics import caption_scores


def score_captions(
    loaded: Any, data: CaptionsConfig, images: CaptionedImages, *, beams: int | None = None,
    length_penalty: float | None = None, lowercase: bool = False, **options: Any,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """BLEU-4 and exact match of the captions of resized images; for scenes also the gain of attention: how many times
    an object's share of the image the words for its colour and shape put on it."""
    captions = [best[0] for best in loaded.caption_arrays(images.pixels, beams=beams, length_penalty=length_penalty)]
    texts = [caption.text for caption in captions]
    scores = caption_scores(texts, images.captions, lowercase=lowercase or data.lowercase)
    if data.embedded:
        drawn = scenes("test", 2 * captioned_images.HELD_OUT, images.pixels.shape[1], data.most)[: len(images)]
        maps = word_maps(loaded, loaded.numbers(images.pixels), [caption.ids for caption in captions])
        side = loaded.model.config.cell_side
        each = [gain for (words, weights), scene in zip(maps, drawn, strict=True)
                for gain in gains(words, weights, scene, side)]  # fmt: skip
        scores["gain"] = round(sum(each) / max(1, len(each)), 2)
    return scores, texts
