"""Boxes in YOLO's format: data.yaml (first byte "y") and the .txt of an image."""

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import FOLDER, put
from regard.data.readers.yolo import list_yolo, yolo_parts

READS = ("regard.data.readers.yolo",)
SETTINGS = b"path: .\ntrain: images\nval: images\nnc: 2\nnames: [bird, horse]\n"
WORDS = [
    b"names:",
    b"train:",
    b"nc:",
    b"path:",
    b"  0: bird\n",
    b"- bird\n",
    b"names: {0: a}",
    b"*",
    b"..",
    b"nan",
    b"inf",
]


def seeds() -> list[bytes]:
    """Return settings in two styles, and boxes."""
    return [
        b"y" + SETTINGS,
        b"ytrain: images\nnames:\n  0: bird\n  1: horse\n",
        b"b0 0.5 0.5 0.2 0.3\n1 0.1 0.1 0.1 0.1\n",
    ]


def run(data: bytes) -> None:
    """Read the set as its settings say, and its images."""
    put("yolo/images/a.png", images()[0])
    put("yolo/data.yaml", data[1:] if data[:1] == b"y" else SETTINGS)
    put("yolo/labels/a.txt", b"0 0.5 0.5 0.2 0.3\n" if data[:1] == b"y" else data[1:])
    source = str(FOLDER / "yolo" / "data.yaml")
    yolo_parts(source)
    for image in list_yolo(source)[0]:
        image.read()
