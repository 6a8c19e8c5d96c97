"""Boxes and captions in COCO's JSON, with the images that they name."""

import json

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import put
from regard.data.readers.annotations import list_coco
from regard.data.readers.image_lists import list_captioned

READS = ("regard.data.readers.annotations", "regard.data.readers.coco_captions", "regard.data.readers.image_lists")


def seeds() -> list[bytes]:
    """Return boxes and captions of two images."""
    files = [{"id": 1, "file_name": "a.png", "width": 7, "height": 5}, {"id": 2, "file_name": "b.png"}]
    boxes = [
        {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 1, 3, 2.5], "iscrowd": 0, "area": 7.5},
        {"id": 2, "image_id": 2, "category_id": 4, "bbox": [0, 0, 7, 5]},
    ]
    names = [{"id": 3, "name": "bird"}, {"id": 4, "name": "horse"}]
    captions = [{"image_id": 1, "id": 1, "caption": "a bird"}, {"image_id": 2, "id": 2, "caption": "a horse"}]
    return [
        json.dumps(dict(images=files, annotations=boxes, categories=names)).encode(),
        json.dumps(dict(images=files, annotations=captions)).encode(),
    ]


def run(data: bytes) -> None:
    """Read the file as what it says it is, and its images."""
    for name, image in zip("ab", images(), strict=False):
        put(f"coco/{name}.png", image)
    path = put("coco/annotations.json", data)
    if b'"caption"' in data:
        for file in list_captioned(path)[0]:
            file.read()
    else:
        for image in list_coco(path)[0]:
            image.read()
