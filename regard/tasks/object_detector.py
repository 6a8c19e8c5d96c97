"""Object detection: the objects in each image with their boxes, and average precision."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from torch import Tensor

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.boxed_images import BoxesConfig
from regard.objectives.matching import best_objects, corners
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Verb, register_task
from regard.tasks.baselines import mean_boxes
from regard.tasks.detection_scores import Detection, detection_results
from regard.tasks.image_encoder import ImageEncoder, ImageInput, at_most, opened
from regard.tasks.prepared_image import read_scene
from regard.tasks.single import one_or_many


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
        return {"ap50": detection_results(detections, labels, boxes, self.model.config.labels)[0]["ap50"]}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        whole = self.test_images(replace(test, limit=None), names=self.model.config.labels)
        boxes = at_most(whole, test.limit)
        predicted = self.detect_arrays([image.pixels for image in boxes.images])
        truth = [image.labels for image in boxes.images], [image.boxes for image in boxes.images]
        outputs = ["; ".join(f"{x.label} {x.score:.2f}" for x in row if x.score >= 0.5) for row in predicted]
        crowds = [image.crowds for image in boxes.images]
        scores, classes = detection_results(predicted, *truth, boxes.names, crowds)
        return Scored(
            scores=scores, outputs=outputs, expected=(*truth, boxes.names, crowds), classes=classes, total=len(whole),
            unit="images",
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The mean box of each label in every image, as probable as the label is frequent."""
        labels, boxes, names, _ = scored.expected
        usual = mean_boxes(labels, boxes).items()
        constant = [Detection(names[label], share, tuple(box.tolist())) for label, (share, box) in usual]
        scores = detection_results([constant] * len(labels), *scored.expected)[0]
        return {"the mean box of each label": {name: scores[name] for name in ("ap", "ap50", "ap75")}}

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
            examples=[
                Example(inputs=(image.pixels,), label=text.removeprefix("an image of "))
                for image, text in zip(images, inputs, strict=True)
            ],
        )
