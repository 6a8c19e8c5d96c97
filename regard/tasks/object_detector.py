"""Object detection: the objects in each image with their boxes, and average precision."""

import contextlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from torch import Tensor

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.boxed_images import BoxesConfig
from regard.objectives.matching import best_objects, corners
from regard.tasks.base import EvalSet, Option, Samples, Scored, Verb, register_task
from regard.tasks.image_encoder import ImageEncoder, ImageInput, opened
from regard.tasks.prepared_image import read_scene
from regard.tasks.single import one_or_many


@dataclass(frozen=True, slots=True)
class Detection:
    """A detected object: its label, the probability, and its box (left, top, right, bottom) in pixels."""

    label: str
    score: float
    box: tuple[float, float, float, float]


def objects_as_json(objects: Sequence[Detection]) -> dict[str, Any]:
    """The objects of one image."""
    rows = [(item.label, round(item.score, 6), [round(side, 2) for side in item.box]) for item in objects]
    return {"objects": [{"label": label, "probability": score, "box": box} for label, score, box in rows]}


def render_objects(answer: dict[str, Any]) -> str:
    """A line for each object."""
    lines = []
    for row in answer["objects"]:
        box = " ".join(f"{side:.1f}" for side in row["box"])
        lines.append(f"{row['label']}\t{row['probability']:.1%}\t{box}")
    return "\n".join(lines or ["(nothing)"])


@register_task("detect")
class ObjectDetector(ImageEncoder):
    """Finds objects in images."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="detect", does="finds objects in images", ability="images", as_json=objects_as_json,
            render=render_objects,
            options=(Option(name="threshold", kind=float, default=0.5, limits=(0, 1), help="Least probability."),),
        ),
    )  # fmt: skip

    data: ClassVar[tuple[type, ...]] = (BoxesConfig,)

    @one_or_many
    def detect(self, images: Sequence[ImageInput], *, threshold: float = 0.5) -> list[list[Detection]]:
        """The objects in each image with at least this probability, the most probable first."""
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold={threshold} is no probability; use a number from 0 to 1")
        files = opened(images)
        sizes = [(image.size[1], image.size[0]) for image in files]
        return self.detections(self.outputs(self.model, self.pixels(files)), sizes, threshold)

    def detect_arrays(self, arrays: Sequence[np.ndarray], *, threshold: float = 0.0) -> list[list[Detection]]:
        """The objects in each uint8 image of (rows, columns, channels), already of the model's size."""
        pixels = [self.preprocessing.numbers(array) for array in arrays]
        return self.detections(self.outputs(self.model, pixels), [array.shape[:2] for array in arrays], threshold)

    read = read_scene

    def detections(
        self, outputs: Sequence[Tensor], sizes: Sequence[tuple[int, ...]], threshold: float
    ) -> list[list[Detection]]:
        """The model's outputs as objects with boxes in pixels of images of these sizes."""
        labels, results = self.model.config.labels, []
        for row, size in zip(outputs, sizes, strict=True):
            scores, indices, boxes = best_objects(row.float(), size)
            order = scores.argsort(descending=True, stable=True)
            kept = [i for i in order.tolist() if scores[i] >= threshold]
            results.append([Detection(labels[indices[i]], scores[i].item(), tuple(boxes[i].tolist())) for i in kept])
        return results

    def eval_preprocessing(self) -> Preprocessing:
        return self.preprocessing

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        detections, labels, boxes = [], [], []
        for batch in batches:
            square = [(1000, 1000)] * len(batch.targets)  # boxes are shares of an image's sides
            detections += self.detections(list(self.model(**batch.inputs)), square, 0.0)
            known = [row[row[:, 0] != IGNORE] for row in batch.targets]
            labels += [row[:, 0].int().numpy() for row in known]
            boxes += [1000 * corners(row[:, 1:]).numpy() for row in known]
        return {"ap50": detection_scores(detections, labels, boxes, self.model.config.labels)["ap50"]}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        boxes = self.test_images(test, names=self.model.config.labels)
        predicted = self.detect_arrays([image.pixels for image in boxes.images])
        truth = [image.labels for image in boxes.images], [image.boxes for image in boxes.images]
        outputs = ["; ".join(f"{x.label} {x.score:.2f}" for x in row if x.score >= 0.5) for row in predicted]
        crowds = [image.crowds for image in boxes.images]
        return Scored(scores=detection_scores(predicted, *truth, boxes.names, crowds), outputs=outputs)

    def samples(self, test: EvalSet, run: Path) -> Samples:
        images, labels = self.test_images(replace(test, limit=3)).images, self.model.config.labels
        predicted = self.detect_arrays([image.pixels for image in images], threshold=0.5)
        inputs = ["an image of " + (", ".join(labels[i] for i in image.labels) or "nothing") for image in images]
        outputs = [", ".join(f"{item.label} {item.score:.0%}" for item in row) or "nothing" for row in predicted]
        return Samples(
            rows=list(zip(inputs, outputs, strict=True)),
            commands=[
                f"regard detect {run} image.png --out boxes.png",
                f"regard eval {run} --data.coco annotations.json",
            ],
            views={"boxes.png": ("boxes", Image.fromarray(images[0].pixels.squeeze()))},
        )


def detection_scores(
    detections: Sequence[Sequence[Detection]], labels: Sequence[np.ndarray], boxes: Sequence[np.ndarray],
    names: Sequence[str], crowds: Sequence[tuple[np.ndarray, np.ndarray]] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return average precision by pycocotools, in percent: over overlaps from 50 to 95, of 50, and of 75 percent.

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
    ap, ap50, ap75 = (round(100 * max(0.0, float(value)), 2) for value in judge.stats[:3])
    return {"ap": ap, "ap50": ap50, "ap75": ap75, "examples": len(detections)}
