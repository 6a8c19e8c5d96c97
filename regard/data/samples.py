"""Small data sets as files, in the formats that users have: what the examples of the documentation need.

Everything is generated, or comes with Python and scikit-learn; no network is needed. Training and test parts share no
example.
"""

import csv
import json
import random
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

PARTS = ("train", "test")
TEST_SHARE = 5
"""There is one test example for so many training examples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A data set that can be written to a folder."""

    about: str
    """A description of the data set and of its files."""
    write: Callable[[Path, str, int], int]
    """Write so many examples of a part, train or test, to a folder; returns how many there were."""
    count: int
    """Training examples, unless another number is asked for."""
    commands: tuple[str, ...]
    """Commands to try with it; {out} is its folder."""


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], delimiter: str) -> int:
    """Write a table with a header; returns the number of rows."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(header)
        rows = list(rows)
        writer.writerows(rows)
    return len(rows)


def write_objects(path: Path, rows: Iterable[dict[str, Any]]) -> int:
    """Write a JSON object a line; returns their number."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def write_image(path: Path, pixels: Any) -> None:
    """Write an array of bytes as PNG."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.squeeze()).save(path)


def write_digits(out: Path, part: str, count: int) -> int:
    from regard.data.sets.labelled_images import digits

    images = digits(part)
    for number, (pixels, label) in enumerate(zip(images.pixels[:count], images.labels[:count], strict=True)):
        write_image(out / part / images.names[label] / f"{number:04d}.png", pixels)
    return min(count, len(images))


def write_shapes(out: Path, part: str, count: int) -> int:
    from regard.data.generated.scenes import stream_scenes

    for number, scene in enumerate(islice(stream_scenes(part, most=1), count)):
        write_image(out / part / scene.objects[0].shape / f"{number:04d}.png", scene.pixels)
    return count


def write_captions(out: Path, part: str, count: int) -> int:
    from regard.data.generated.scenes import stream_scenes

    rows = []
    for number, scene in enumerate(islice(stream_scenes(part), count)):
        rows.append((f"{part}/{number:04d}.png", scene.caption))
        write_image(out / rows[-1][0], scene.pixels)
    return write_rows(out / f"{part}.csv", ("path", "caption"), rows, ",")


def write_boxes(out: Path, part: str, count: int) -> int:
    from regard.data.generated.scenes import SHAPES, stream_scenes

    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, scene in enumerate(islice(stream_scenes(part), count), 1):
        name = f"{number:04d}.png"
        write_image(out / part / name, scene.pixels)
        images.append({"id": number, "file_name": f"{part}/{name}", "width": scene.pixels.shape[1], "height":
                       scene.pixels.shape[0]})  # fmt: skip
        for item in scene.objects:
            left, top, right, bottom = (round(float(side), 2) for side in item.box)
            box = [left, top, round(right - left, 2), round(bottom - top, 2)]
            annotations.append({
                "id": len(annotations) + 1, "image_id": number, "category_id": SHAPES.index(item.shape) + 1,
                "bbox": box, "area": round(box[2] * box[3], 2), "iscrowd": 0,
            })  # fmt: skip
    categories = [{"id": number, "name": shape} for number, shape in enumerate(SHAPES, 1)]
    record = {"images": images, "annotations": annotations, "categories": categories}
    (out / f"{part}.json").write_text(json.dumps(record), encoding="utf-8")
    return count


THINGS = (
    "kettle", "lamp", "chair", "phone", "tent", "keyboard", "jacket", "blender", "bicycle", "camera", "backpack",
    "radio", "mattress", "watch", "printer", "umbrella", "headset", "pan", "drill", "heater",
)  # fmt: skip
WORDS = {
    "positive": ("works perfectly", "is a joy to use", "feels solid", "was worth every cent", "never let me down",
                 "looks better than in the photo", "is quiet and quick", "made my week"),
    "negative": ("broke after two days", "is a waste of money", "feels cheap", "arrived with a crack",
                 "never worked at all", "smells of burnt plastic", "is loud and slow", "went straight back"),
    "neutral": ("does what it says, no more", "is neither good nor bad", "came in a brown box", "is about average",
                "has the usual size", "replaces my old one", "arrived on the day they said", "is for my brother"),
}  # fmt: skip
FRAMES = (
    "The {thing} {words}.", "I bought this {thing} in spring, and it {words}.", "My new {thing} {words}!",
    "After a month: the {thing} {words}.", "Honestly, this {thing} {words}.", "{thing}: it {words}.",
    "We have had the {thing} for a year, and it {words}.", "The {thing} that I ordered {words}.",
)  # fmt: skip


def write_reviews(out: Path, part: str, count: int) -> int:
    every = [
        (frame.format(thing=thing, words=words), label)
        for label, phrases in WORDS.items()
        for words, thing, frame in product(phrases, THINGS, FRAMES)
    ]
    every = [(text[0].upper() + text[1:], label) for text, label in every]
    random.Random(7).shuffle(every)
    edge = len(every) * TEST_SHARE // (TEST_SHARE + 1)
    return write_rows(
        out / f"{part}.csv", ("text", "label"), every[:edge][:count] if part == "train" else every[edge:][:count], ","
    )


def write_pairs(out: Path, part: str, count: int) -> int:
    from regard.data.generated.phrases import phrases

    rows = [(phrase.source, phrase.target) for phrase in phrases(part, count)]
    text = "".join(f"{source}\t{target}\n" for source, target in rows)
    (out / f"{part}.tsv").write_text(text, encoding="utf-8")
    return len(rows)


def write_tags(out: Path, part: str, count: int) -> int:
    from regard.data.generated.facts import tagged

    lines = []
    for example in tagged(part, count):
        for word in re.finditer(r"\w+|[^\w\s]", example.text):
            inside = [span for span in example.entities if span.start <= word.start() < span.end]
            tag = "O" if not inside else f"{'B' if inside[0].start == word.start() else 'I'}-{inside[0].label}"
            lines.append(f"{word[0]} {tag}")
        lines.append("")
    (out / f"{part}.conll").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return count


def write_questions(out: Path, part: str, count: int) -> int:
    from regard.data.generated.facts import questions

    rows = ({"question": q.question, "passage": q.passage, "answer": q.answer} for q in questions(part, count))
    return write_objects(out / f"{part}.jsonl", rows)


def write_similar(out: Path, part: str, count: int) -> int:
    from regard.data.generated.facts import paraphrases

    rows = ((pair.a, pair.b, pair.score) for pair in paraphrases(part, count))
    return write_rows(out / f"{part}.tsv", ("a", "b", "score"), rows, "\t")


def write_instructions(out: Path, part: str, count: int) -> int:
    from regard.data.generated.text_tasks import tasks

    rows = ({"prompt": task.source, "answer": task.target} for task in tasks(part, count))
    return write_objects(out / f"{part}.jsonl", rows)


def write_book(out: Path, part: str, count: int) -> int:
    from regard.data.generated.docs import documentation

    text = documentation(part)[:count]
    (out / f"{part}.txt").write_text(text, encoding="utf-8")
    return len(text)


SAMPLES = {
    "digits": Sample(
        about="scanned digits: a folder for each class, train/3/0012.png", write=write_digits, count=1257,
        commands=("regard train vit --data.images {out}/train --data.test {out}/test --out runs/digits",),
    ),
    "scenes": Sample(
        about="drawings of one shape: a folder for each class, train/star/0012.png", write=write_shapes, count=1000,
        commands=("regard train vit --data.images {out}/train --data.test {out}/test --out runs/scenes",),
    ),
    "captions": Sample(
        about="drawings and captions: train.csv with path and caption", write=write_captions, count=2000,
        commands=("regard train captioner --data.images {out}/train.csv --data.test {out}/test.csv --out runs/captions",
                  "regard train clip --data.images {out}/train.csv --data.test {out}/test.csv --out runs/clip"),
    ),
    "boxes": Sample(
        about="drawings and boxes: COCO's train.json", write=write_boxes, count=1000,
        commands=("regard train detr --data.coco {out}/train.json --data.test {out}/test.json --out runs/boxes",),
    ),
    "reviews": Sample(
        about="short reviews, positive, negative or neutral: train.csv with text and label", write=write_reviews,
        count=1000,
        commands=("regard train classify --data.train {out}/train.csv --data.test {out}/test.csv --out runs/reviews",
                  'regard classify runs/reviews "The kettle feels cheap."'),
    ),
    "tags": Sample(
        about="sentences with names, places and amounts: train.conll", write=write_tags, count=1000,
        commands=("regard train tag --data.train {out}/train.conll --data.test {out}/test.conll --out runs/tags",),
    ),
    "questions": Sample(
        about="questions on short passages: train.jsonl", write=write_questions, count=1000,
        commands=("regard train answer --data.train {out}/train.jsonl --data.test {out}/test.jsonl"
                  " --out runs/questions",),
    ),
    "similar": Sample(
        about="pairs of sentences and their similarity: train.tsv", write=write_similar, count=1000,
        commands=("regard train embed --data.train {out}/train.tsv --data.test {out}/test.tsv --out runs/similar",),
    ),
    "instructions": Sample(
        about="prompts and answers: train.jsonl", write=write_instructions, count=2000,
        commands=("regard train instruct --data.train {out}/train.jsonl --data.test {out}/test.jsonl"
                  " --out runs/instructions",),
    ),
    "pairs": Sample(
        about="English phrases and their German translations: train.tsv", write=write_pairs, count=20_000,
        commands=("regard train translate --data.pairs {out}/train.tsv --out runs/pairs",
                  "regard eval runs/pairs --data.pairs {out}/test.tsv"),
    ),
    "book": Sample(
        about="running text, Python's own documentation: train.txt", write=write_book, count=2_000_000,
        commands=("regard train lm --data.text {out}/train.txt --out runs/book",
                  "regard eval runs/book --data.text {out}/test.txt"),
    ),
}  # fmt: skip
"""The data sets by name; the count of a book is in characters."""


def write_sample(name: str, out: Path, count: int | None = None) -> dict[str, Any]:
    """Write a data set to a new folder, whole or not at all; returns the number of examples of each part, and commands
    to try."""
    sample = SAMPLES[name]
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    draft.chmod(0o755)
    count = count or sample.count
    try:
        sizes = {part: sample.write(draft, part, size_of(part, count)) for part in PARTS}
        if out.exists():
            out.rmdir()
        draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    commands = [each.format(out=shlex.quote(str(out))) for each in sample.commands]
    return {"sample": name, "out": str(out), **sizes, "commands": commands}


def size_of(part: str, count: int) -> int:
    """The number of examples of a part, where there are `count` for training."""
    return count if part == "train" else max(1, count // TEST_SHARE)
