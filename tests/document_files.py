"""The files that the commands of README and docs name: texts, tables, images, checkpoints, modules of a user's."""

import csv
import gzip
import json
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from tests.documents import ROOT, steps_of
from tests.recipes.tiny import FACTS, Tiny

SENTENCES = [f"The {colour} {animal} sees a {animal} in May." for colour, animal in FACTS]
MODULE = """
import torch
from torch import nn

def make_model():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.Sequential(nn.Embedding(20, 16), layer, nn.Linear(16, 20))
    return model, (torch.randint(20, (2, 7)),)
"""


def provide(folder: Path) -> None:
    """Write every file that documents name into a folder, small."""

    def lines(*names: str, rows=SENTENCES) -> None:
        for name in names:
            (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")

    (folder / "made").mkdir()
    tiny = Tiny(folder / "made")
    lines("book.txt", "input.txt", "corpus.txt", "sentences.txt", "big.txt", "more.txt", "texts.txt", "my_texts.txt")
    lines("train.en", "valid.en", "test.en", "a.en", "dev.en", "new.en")
    lines(
        "train.de",
        "valid.de",
        "test.de",
        "a.de",
        "dev.de",
        "new.de",
        rows=[row.replace("The", "Der") for row in SENTENCES],
    )
    labelled = [f"{text}\t{'good' if i % 2 else 'bad'}" for i, text in enumerate(SENTENCES)]
    lines("train.tsv", "dev.tsv", "test.tsv", rows=labelled)
    for name in ("reviews.csv", "train.csv", "test.csv", "new.csv"):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *(row.split("\t") for row in labelled)])
    lines("pairs.tsv", "tasks.tsv", rows=[f"colour: {c} {a}\t{c}" for c, a in FACTS])
    lines("prompts.jsonl", rows=[json.dumps({"prompt": f"colour of {c} {a}", "answer": c}) for c, a in FACTS])
    shutil.copy(tiny.files["tag"]["data.train"], folder / "train.conll")
    shutil.copy(tiny.files["answer"]["data.train"], folder / "train.jsonl")
    (folder / "my_module.py").write_text(MODULE, encoding="utf-8")
    for name in ("app.py", "more.py"):
        (folder / name).write_text(MODULE * 20, encoding="utf-8")
    bases = np.random.default_rng(1).choice(list("ACGT"), (60, 80))
    lines("proteins.fasta", rows=[">p", *("MKTAYIAKQRQISFVKSHFSRQ" for _ in range(60))])
    (folder / "genome.fa.gz").write_bytes(gzip.compress("\n".join([">chr", *map("".join, bases)]).encode()))
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(folder / "photo.bmp")
    (folder / "my_kernels.py").write_text(own_kernel(), encoding="utf-8")
    images(folder)
    shutil.copytree(tiny.run("bert"), folder / "CHECKPOINT")


def own_kernel() -> str:
    """The kernel of docs/own-kernel.md, and `mine`, which README names."""
    text = next(step.text for step in steps_of(ROOT / "docs" / "own-kernel.md") if step.language == "python")
    return text + "\n\nmine = Votes\n"


def images(folder: Path) -> None:
    """Folders of images by class, boxes, captions, an array of digits, and single images."""
    rng = np.random.default_rng(0)
    for place in ("FOLDER", "OTHER_FOLDER", "photos"):
        for label in ("light", "dark"):
            (folder / place / label).mkdir(parents=True)
            for number in range(12):
                pixels = rng.integers(128, 255, (32, 32, 3)) // (1 if label == "light" else 3)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / place / label / f"{label}{number}.png")
    Image.fromarray(rng.integers(0, 255, (8, 8)).astype(np.uint8)).save(folder / "digit.png")
    for name in ("scene.png", "image.png", "image.jpg", "photo.jpg"):
        Image.fromarray(rng.integers(0, 255, (64, 64, 3)).astype(np.uint8)).save(folder / name)
    x, y = rng.integers(0, 255, (300, 28, 28)).astype(np.uint8), np.arange(300) % 10
    np.savez(folder / "mnist.npz", x=x, y=y)
    files = sorted(str(path.relative_to(folder)) for path in (folder / "FOLDER").rglob("*.png"))
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [("path", "caption"), *((name, f"a {Path(name).parent.name} image") for name in files)]
        )
    boxes = [
        {"id": i, "image_id": i, "category_id": 1 + i % 2, "bbox": [4, 5, 12, 10], "area": 120, "iscrowd": 0}
        for i in range(len(files))
    ]
    coco = {
        "images": [{"id": i, "file_name": name, "width": 32, "height": 32} for i, name in enumerate(files)],
        "annotations": boxes,
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
    }
    (folder / "annotations.json").write_text(json.dumps(coco), encoding="utf-8")
