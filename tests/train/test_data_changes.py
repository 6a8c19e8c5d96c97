"""A run knows its data: what has changed since is said when it is resumed or evaluated."""

import os
from dataclasses import dataclass
from typing import ClassVar

import pytest
from PIL import Image

from regard.data import checksums
from regard.data.checksums import checksum
from regard.data.sets.base import Data
from regard.data.sets.boxed_images import BoxesConfig
from regard.data.sets.captioned_images import CaptionsConfig
from regard.data.sets.labelled_images import ImagesConfig
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.running_text import TextConfig
from regard.data.sets.text_pairs import PairsConfig
from regard.eval.scores import evaluate
from regard.recipes import fit


def flip(path):
    """Another content of the same size and time."""
    content, stat = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture
def changed(small, pairs, tmp_path):
    """A recipe and a run whose file has changed since by one letter."""
    copy = tmp_path / "pairs.tsv"
    copy.write_bytes(pairs.read_bytes())
    plan = small(data__pairs=str(copy), train__steps=2)
    fit(plan, tmp_path / "run", quiet=True)
    fit(plan, tmp_path / "run", quiet=True, resume=True)
    copy.write_text(copy.read_text().replace("red number 3", "rot number 3"))
    return plan, tmp_path / "run", copy


def test_resuming_with_other_data_is_an_error_of_one_line(changed):
    plan, run, path = changed
    with pytest.raises(ValueError) as raised:
        fit(plan, run, resume=True, quiet=True)
    assert str(raised.value).startswith(f"{path} changed since {run} was trained on it; put the old data back")
    (run / "data.json").unlink()  # as in the runs of older versions
    fit(plan, run, resume=True, quiet=True)


def test_evaluating_on_changed_data_says_so(changed, capsys):
    _, run, path = changed
    evaluate(run, {}, limit=2)
    said = [line for line in capsys.readouterr().err.splitlines() if "has changed" in line]
    assert said == [f"{path} has changed since {run} was trained: held-out examples may be others"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fruits(Data):
    """A plugin's data: nothing but the names of its fields is declared."""

    own: ClassVar[tuple[str, ...]] = ("fruits",)

    fruits: str | None = None


def test_every_kind_of_data_has_checksums(tmp_path):
    """One changed byte in any file, also in an image that a table only names, changes the checksum of its source."""
    text, image = tmp_path / "a.txt", tmp_path / "elsewhere" / "red" / "a.png"
    text.write_text("some text\n" * 9)
    image.parent.mkdir(parents=True)
    Image.new("RGB", (4, 4), "red").save(image)
    (tmp_path / "table.csv").write_text(f"path,label,caption\n{image},red,a red image\n")
    (tmp_path / "boxes.json").write_text(
        '{"images": [{"id": 1, "file_name": "a.png", "width": 4, "height": 4}], "categories": [{"id": 1, "name": "x"}],'
        ' "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2]}]}'
    )
    table, boxes, lines = (str(tmp_path / name) for name in ("table.csv", "boxes.json", "a.txt"))
    cases = [
        (TextConfig(text=(lines,)), text),
        (PairsConfig(source=table, target=lines), text),
        (ExamplesConfig(train=table, test=lines), text),
        (Fruits(fruits=str(tmp_path)), text),
        (ImagesConfig(images=str(image.parents[1])), image),
        (ImagesConfig(images=table), image),
        (CaptionsConfig(images=table), image),
        (BoxesConfig(coco=boxes, images=str(image.parent)), image),
    ]
    for data, path in cases:
        before = data.checksums()
        assert before and before == data.checksums()
        flip(path)
        assert data.checksums() != before, data
        flip(path)
        assert data.checksums() == before
    assert TextConfig().checksums() == {}


def test_large_folders_are_sampled(tmp_path, monkeypatch):
    """Names and sizes of all files count, and contents as far as they are read: never more than the samples."""
    for number in range(40):
        (tmp_path / f"{number:02}.bin").write_bytes(bytes([number]) * 1000)
    whole = checksum(tmp_path)
    monkeypatch.setattr(checksums, "LIMIT", 10_000)
    monkeypatch.setattr(checksums, "BLOCKS", 20)
    monkeypatch.setattr(checksums, "BLOCK", 100)
    sampled = checksum(tmp_path)
    assert sampled != whole and sampled == checksum(tmp_path)
    for change in (
        lambda: (tmp_path / "00.bin").write_bytes(bytes(99) + b"x" + bytes(900)),  # in a sample
        lambda: (tmp_path / "01.bin").write_bytes(bytes(999)),  # a size
        lambda: (tmp_path / "02.bin").rename(tmp_path / "02.new"),  # a name
    ):
        change()
        assert checksum(tmp_path) != sampled
        sampled = checksum(tmp_path)


def test_links_are_followed_and_what_tools_leave_is_not_read(tmp_path):
    real, folder = tmp_path / "real", tmp_path / "images"
    real.mkdir()
    folder.mkdir()
    (real / "a.png").write_bytes(b"one")
    (folder / "cats").symlink_to(real)
    (folder / "loop").symlink_to(folder)
    before = checksum(folder)
    (folder / "run").mkdir()
    for name in ("Thumbs.db", "labels.cache", "run/recipe.toml", "run/model.safetensors"):
        (folder / name).write_bytes(b"more")
    assert checksum(folder) == before
    (real / "a.png").write_bytes(b"two")
    assert checksum(folder) != before
