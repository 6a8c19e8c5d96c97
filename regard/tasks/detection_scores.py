"""Average precision of detected objects by pycocotools: over all, by size, and by label."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Detection:
    """A detected object: its label, the probability, and its box (left, top, right, bottom) in pixels."""

    label: str
    score: float
    box: tuple[float, float, float, float]


def detection_results(
    detections: Sequence[Sequence[Detection]], labels: Sequence[np.ndarray], boxes: Sequence[np.ndarray],
    names: Sequence[str], crowds: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """Return average precision by pycocotools, in percent: over overlaps from 50 to 95, of 50, and of 75 percent, and
    of small, medium and large objects (COCO's bounds: 32² and 96² pixels; where there are none, None); and a table of
    the labels.

    `labels` (indices into `names`) and `boxes` (left, top, right, bottom) are the true objects of each image;
    detections inside its `crowds` (labels and boxes) are ignored.
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
    index = {name: i for i, name in enumerate(names)}
    detected = [
        record(image, index[detection.label], detection.box, score=detection.score)
        for image, rows in enumerate(detections)
        for detection in rows
        if detection.label in index
    ]
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": image} for image in range(len(detections))],
        "annotations": [detection | {"id": number} for number, detection in enumerate(wanted, 1)],
        "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
    }
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(detected) if detected else COCO(), "bbox")
        if not detected:
            judge.cocoDt.dataset = truth.dataset | {"annotations": []}
            judge.cocoDt.createIndex()
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    names_of = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    values = dict(zip(names_of, map(percent, judge.stats[:6]), strict=True))
    scores = {name: (value or 0.0) if name in names_of[:3] else value for name, value in values.items()}
    return scores | {"examples": len(detections)}, label_rows(judge.eval["precision"], names, wanted)


def percent(value: float) -> float | None:
    """A share in percent; None for pycocotools' -1, which says that there were no such objects."""
    return round(100 * float(value), 2) if value > -1 else None


def label_rows(precision: np.ndarray, names: Sequence[str], wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average precision of each label that occurs, and the number of its objects, from pycocotools' table of
    (overlap, recall, label, size, detections)."""
    rows = []
    for i, name in enumerate(names):
        count = sum(each["category_id"] == i and not each["iscrowd"] for each in wanted)
        whole, half = precision[:, :, i, 0, -1], precision[0, :, i, 0, -1]
        if count:
            shares = (percent(float(part[part > -1].mean())) for part in (whole, half))
            rows.append({"label": name} | dict(zip(("ap", "ap50"), shares, strict=True)) | {"count": count})
    return rows
