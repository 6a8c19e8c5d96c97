"""Questions to models that see: their label, what they found, their caption, or their vector."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from regard.decode.sample import ends_of
from regard.inside.attribution.question import Picture, Question
from regard.inside.sight import Places, cut, prepared
from regard.models import CLIP, DETR, MAE, Captioner
from regard.nn.heads import apart
from regard.nn.pooling import pooled
from regard.nn.stack import Stack
from regard.tasks import ImageCaptioner, ImageClassifier, ImageEncoder, ObjectDetector, PixelModel


def seen_views(loaded: Any) -> tuple[str, ...]:
    """What can be asked of a model that sees; its tokens must be the same in all layers for more than ablation."""
    model = loaded.model
    if isinstance(loaded, PixelModel):
        return ()
    if isinstance(model, DETR):
        return ("rollout", "gradient", "ablation")
    if isinstance(model, CLIP | MAE) or not any(isinstance(part, Stack) for part in model.modules()):
        return ("ablation",)
    if isinstance(model, Captioner):  # convolutions make its places, which nobody can take away
        return ("rollout", "gradient", "ablation", "lens")
    labels = ("lens",) if isinstance(loaded, ImageClassifier) else ()
    return ("rollout", "gradient", "ablation", *labels, "agreement")


def ask_picture(loaded: ImageEncoder, picture: Any, target: str | Sequence[int] | None) -> Question:
    """The label of a picture, the things in it, its caption, or its vector; tokens are those in front and patches."""
    model: Any = loaded.model
    bytes_, pixels = prepared(loaded, picture)
    side = model.config.cell_side if isinstance(model, Captioner) else None
    family = model.vision if isinstance(model, CLIP) else model.vit if isinstance(model, MAE) else model
    places = Places(pooled(bytes_.shape[:2], side), side) if side else cut(family, bytes_.shape[:2])
    first = getattr(model.config, "first", 0)
    patches = [f"{row},{column}" for row in range(places.grid[0]) for column in range(places.grid[1])]
    tokens = [*["[class]", *(f"[{i}]" for i in range(2, first + 1))][:first], *patches]
    how: dict[str, Any] = dict(
        model=model, inputs={"pixels": pixels}, tokens=tokens, picture=Picture(bytes_, places, first), outputs=[0],
        reads=torch.eye(len(tokens))[:1] if first else torch.full((1, len(tokens)), 1 / len(tokens)),
    )  # fmt: skip
    if isinstance(loaded, ImageClassifier):
        how |= dict(says=lambda inputs: model(**inputs)[:, None], spell=lambda choice: model.config.labels[choice])
        return Question(**how, choices=model(pixels).argmax(-1).tolist())
    if isinstance(loaded, ObjectDetector):
        return ask_detector(how)
    if isinstance(loaded, ImageCaptioner):
        return ask_captioner(loaded, how, None if isinstance(target, str) else target)
    way = F.normalize(model.embed(pixels)[0], dim=0)
    how |= dict(says=lambda inputs: (model.embed(**inputs) @ way)[:, None, None], spell=lambda choice: "vector")
    return Question(**how, choices=[0])


def ask_detector(how: dict[str, Any]) -> Question:
    """Of a DETR: the queries that found something, the surest first; or the surest of all."""
    model = how["model"]
    scores = apart(model(how["inputs"]["pixels"])[0])[0].softmax(-1)[:, :-1]  # the last is for nothing
    best = scores.max(-1)
    order = best.values.argsort(descending=True, stable=True).tolist()
    found = [query for query in order if best.values[query] >= 0.5] or order[:1]
    how |= dict(says=lambda inputs: apart(model(**inputs))[0], outputs=found, reads=torch.eye(len(scores))[found])
    names = [*model.config.labels, "nothing"]
    return Question(**how, choices=best.indices[found].tolist(), spell=names.__getitem__)


def ask_captioner(loaded: ImageCaptioner, how: dict[str, Any], target: Sequence[int] | None) -> Question:
    """What it writes at each place, <eos> too; the caption is the model's own or the given tokens."""
    pieces, marks = loaded.tokenizer.pieces, loaded.generation
    ids = loaded.caption_pixels(list(how["inputs"]["pixels"].numpy()))[0][0].ids if target is None else target
    written = torch.tensor([[marks["decoder_start"], *ids]])
    how["inputs"] |= {"target": written}
    how |= dict(outputs=list(range(written.shape[1])), reads=torch.eye(written.shape[1]))
    return Question(
        **how, says=lambda inputs: loaded.model(**inputs), before=pieces(written[0].tolist()),
        choices=[*ids, ends_of(marks["eos"])[0]], spell=lambda id: pieces([id])[0],
    )  # fmt: skip
