"""A trained model that finds things in pictures, and how well it does."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.nn.heads import apart
from regard.objectives.matching import corners
from regard.tasks.image_encoder import ImageEncoder, Picture, opened
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_image import read_scene


@dataclass(frozen=True, slots=True)
class Detection:
    """A thing that was found: its label, how sure that is, and its box (left, top, right, bottom) in pixels."""

    label: str
    score: float
    box: tuple[float, float, float, float]


class ObjectDetector(ImageEncoder):
    """Finds things in pictures."""

    def detect(self, pictures: Sequence[Picture], *, threshold: float = 0.5) -> list[list[Detection]]:
        """The things in each picture with at least this probability, the surest first."""
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold={threshold} is no probability; use a number from 0 to 1")
        images = opened(pictures)
        sizes = [(image.size[1], image.size[0]) for image in images]
        return self.named(self.outputs(self.model, self.pixels(images)), sizes, threshold)

    def detect_arrays(self, arrays: Sequence[np.ndarray], *, threshold: float = 0.0) -> list[list[Detection]]:
        """The same for bytes (rows, columns, channels) that have their size already."""
        pixels = [self.preparation.numbers(one) for one in arrays]
        return self.named(self.outputs(self.model, pixels), [one.shape[:2] for one in arrays], threshold)

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_scene(self, *inputs, **options)

    def named(
        self, answers: Sequence[Tensor], sizes: Sequence[tuple[int, ...]], threshold: float
    ) -> list[list[Detection]]:
        labels, results = self.model.config.labels, []
        for row, (rows, columns) in zip(answers, sizes, strict=True):
            scores, boxes = apart(row.float())
            best = scores.softmax(-1)[:, :-1].max(-1)
            places = corners(boxes).clamp(0, 1) * torch.tensor([columns, rows, columns, rows])
            order = best.values.argsort(descending=True, stable=True)
            kept = [i for i in order.tolist() if best.values[i] >= threshold]
            results.append(
                [Detection(labels[best.indices[i]], best.values[i].item(), tuple(places[i].tolist())) for i in kept]
            )
        return results


def detection_scores(
    found: Sequence[Sequence[Detection]], labels: Sequence[np.ndarray], boxes: Sequence[np.ndarray],
    names: Sequence[str], crowds: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Average precision by pycocotools, in percent: over overlaps from 50 to 95, of 50, and of 75 percent.

    `labels` (numbers of `names`) and `boxes` (left, top, right, bottom) are what each picture really shows; what is
    found in its `crowds`, labels and boxes too, counts neither way.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError:
        raise ImportError("scores of boxes need pycocotools: pip install 'regard[vision]'") from None

    def record(image: int, name: int, box: Any, **more: Any) -> dict[str, Any]:
        left, top, right, bottom = map(float, box)
        width, height = right - left, bottom - top
        return dict(image_id=image, category_id=name, bbox=[left, top, width, height], area=width * height) | more

    wanted = [
        record(image, int(label), box, iscrowd=crowd)
        for crowd, shown in enumerate((zip(labels, boxes, strict=True), crowds))
        for image, rows in enumerate(shown)
        for label, box in zip(*rows, strict=True)
    ]
    place = {name: i for i, name in enumerate(names)}
    said = [
        record(image, place[one.label], one.box, score=one.score)
        for image, rows in enumerate(found)
        for one in rows
        if one.label in place
    ]
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": image} for image in range(len(found))],
        "annotations": [one | {"id": number} for number, one in enumerate(wanted, 1)],
        "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
    }
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(said) if said else COCO(), "bbox")
        if not said:
            judge.cocoDt.dataset = truth.dataset | {"annotations": []}
            judge.cocoDt.createIndex()
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    ap, ap50, ap75 = (round(100 * max(0.0, float(value)), 2) for value in judge.stats[:3])
    return {"ap": ap, "ap50": ap50, "ap75": ap75, "examples": len(found)}
