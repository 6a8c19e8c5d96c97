"""Examples of any kind: read as what they are, refused in a line that names the cure."""

import numpy as np
import pytest
from PIL import Image

from regard.data.sets.collection import Examples, find_examples


def test_texts_of_every_kind(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\ngood,1\nbad,0\n")
    (tmp_path / "a.tsv").write_text("good\t1\nbad\t0\n")
    (tmp_path / "a.jsonl").write_text('{"text": "good", "label": 1}\n{"text": "bad", "label": 0}\n')
    (tmp_path / "a.txt").write_text("good\n\nbad\n")
    for kind in ("csv", "tsv", "jsonl"):
        found = find_examples(tmp_path / f"a.{kind}", ["text"])
        assert (found.items, found.labels, found.images) == (["good", "bad"], ["1", "0"], False)
    found = find_examples(tmp_path / "a.txt", ["text"])
    assert (found.items, found.labels) == (["good", "bad"], [])


def test_pictures_of_every_kind(tmp_path):
    pixels = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    for i, one in enumerate(pixels):
        for folder in (tmp_path / "classes" / "ab"[i % 2], tmp_path / "heap"):
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(one).save(folder / f"{i}.png")
    np.savez(tmp_path / "named.npz", x=pixels, y=np.array(["a", "b", "a", "b"]))
    np.savez(tmp_path / "plain.npz", x=pixels)
    (tmp_path / "table.csv").write_text("path,label\nheap/0.png,a\nheap/1.png,b\n")
    Image.fromarray(pixels[0]).save(tmp_path / "0.png")
    labels = {"classes": ["a", "a", "b", "b"], "heap": [], "named.npz": ["a", "b"] * 2, "plain.npz": []}
    for name, wanted in (labels | {"table.csv": ["a", "b"]}).items():
        found = find_examples(tmp_path / name, ["image"])
        assert found.images and found.labels == wanted
    assert len(find_examples(tmp_path, ["image"])) == 9, "what lies beside folders, too"
    both = find_examples(tmp_path / "table.csv", ("image", "text"))
    assert both.images, "a model that does both takes a table of image files for images"
    assert (np.asarray(find_examples(tmp_path / "plain.npz", ["image"]).items[3]) == pixels[3]).all()


def test_embedded_examples_have_labels():
    assert set(find_examples(None, ["image"]).labels) == set("0123456789")
    assert "Turkish" in find_examples(None, ["text"]).labels


def test_drawing_keeps_order_and_pairs():
    every = Examples(
        list(range(50)), [str(i) for i in range(50)], ["odd" if i % 2 else "even" for i in range(50)], False
    )
    some = every.sample(20)
    assert len(some) == 20 and some.items == sorted(some.items) == every.sample(20).items
    assert all(label == ("odd" if item % 2 else "even") for item, label in zip(some.items, some.labels, strict=True))
    assert some.items != every.items[:20], "the first of a sorted file would be one class"
    assert [every.items[i] for i in every.with_label("odd")] == every.items[1::2]


def test_mistakes(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    (tmp_path / "a.docx").write_text("text\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="no such file or folder"):
        find_examples(tmp_path / "b.txt", ("image", "text"))
    with pytest.raises(ValueError, match="examples are a .txt"):
        find_examples(tmp_path / "a.docx", ("image", "text"))
    with pytest.raises(ValueError, match="holds images, and the model reads texts"):
        find_examples(tmp_path / "folder", ["text"])
    with pytest.raises(ValueError, match="holds texts, and the model reads images"):
        find_examples(tmp_path / "a.txt", ["image"])
    with pytest.raises(ValueError, match="no images"):
        find_examples(tmp_path / "folder", ["image"])
    texts = find_examples(tmp_path / "a.txt", ("image", "text"))
    with pytest.raises(ValueError, match="have no labels"):
        texts.with_label("good")
    with pytest.raises(ValueError, match="one kind for both"):
        texts.joined(Examples([1], ["1"], [], True), ("a", "b"))
