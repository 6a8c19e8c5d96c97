"""Captions from files as users have them, and scenes; bad data names file, line and cure."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.generated.scenes import scenes
from regard.data.readers.image_lists import list_captioned
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.augment import Augmentation
from regard.data.sets.batches import IGNORE
from regard.data.sets.captioned_images import CaptionedImages, CaptionsConfig, CaptionStream


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(12):
        Image.new("RGB", (10, 8), (20 * number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
    return tmp_path


def table(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


WAYS = {
    "a.csv": 'image,caption\nimages/0.png,"one, two"\nimages/1.png,three\nimages/0.png,four\n',
    "b.csv": 'Caption_1,id,File_Name,caption 2\n"one, two",7,images/0.png,four\nthree,8,images/1.png,\n',
    "c.tsv": "images/0.png\tone, two\nimages/1.png\tthree\nimages/0.png\tfour\n",
    "d.tsv": "images/0.png\tone, two\tfour\nimages/1.png\tthree\t\n",
    "e.jsonl": '{"path": "images/0.png", "captions": ["one, two", "four"]}\n\n'
    '{"filename": "images/1.png", "text": "three"}\n',
    "g.csv": 'title,path,captions,caption2\nbad,images/0.png,"one, two",four\nworse,images/1.png,three,\n',
    "h.jsonl": '{"comment": "bad", "path": "images/0.png", "captions": ["one, two", "four"]}\n'
    '{"title": "worse", "path": "images/1.png", "text": "three"}\n',
    "f.csv": '\ufeffpath,sentence\r\nimages/0.png,"one, two"\r\nimages/1.png,three\r\nimages/0.png,four\r\n',
}


@pytest.mark.parametrize("name", WAYS)
def test_tables(folder, name):
    listed, captions = list_captioned(table(folder, name, WAYS[name]))
    assert [one.path.name for one in listed] == ["0.png", "1.png"]
    assert captions == [("one, two", "four"), ("three",)]


WRONG = {
    "a.csv": ("image,caption\nimages/0.png,one\nimages/77.png,two\n", "line 3: no such image: .*77.png; paths are"),
    "b.csv": ("image,caption\nimages/0.png,one\nimages/1.png,  \n", "line 3: the caption is empty; fill it"),
    "c.csv": ("image,caption\n", "not one image; a header alone is no data"),
    "d.csv": ("", "the file is empty"),
    "e.csv": ("image,label\nimages/0.png,one\n", "line 1: the header has no caption, only 'image', 'label'; call"),
    "f.csv": ("where,caption\nimages/0.png,one\n", "line 1: the header has no path, only 'where', 'caption'; call"),
    "g.csv": (
        "image,caption\nimages/0.png,one, two\n",
        "line 2: got 3 columns, but 2 in the first line; put captions",
    ),
    "h.csv": ("images/0.png\n", "line 1: got one column; give the path and the caption"),
    "i.jsonl": ('{"path": "images/0.png"}\n', "line 1: no caption, only 'path'; call its column caption or text"),
    "j.jsonl": ('{"caption": "one"}\n', "line 1: no path, only 'caption'"),
    "k.jsonl": ('{"path": "images/0.png", "caption": 3}\n', "line 1: a caption is a text or a list of texts"),
    "l.jsonl": ('{"path": "images/0.png", "caption": []}\n', "line 1: the caption is empty"),
    "m.jsonl": ("[1]\n", "line 1: not an object"),
    "n.txt": ("x", "images with captions are a table"),
    "o.csv": ('image,caption\nimages/0.png,"one\n', "line 2: not CSV"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_tables(folder, name):
    text, message = WRONG[name]
    path = table(folder, name, text)
    with pytest.raises(ValueError, match=message) as error:
        list_captioned(path)
    assert str(path) in str(error.value)


def test_no_table_and_no_picture(folder):
    with pytest.raises(ValueError, match="nowhere.csv: no such file; check the path"):
        CaptionsConfig(images="nowhere.csv").shape()
    (folder / "bad.png").write_text("text")
    path = table(folder, "p.csv", "image,caption\nbad.png,one\nimages/1.png,two\n")
    with pytest.raises(ValueError, match=r"p.csv, line 2: .*bad.png is no image"):
        CaptionsConfig(images=str(path)).split()


def test_own_pictures_are_split_by_picture(folder):
    lines = [f"images/{n}.png,about {n}\nimages/{n}.png,again {n}\n" for n in range(12)]
    config = CaptionsConfig(images=str(table(folder, "all.csv", "path,caption\n" + "".join(lines))))
    assert config.shape() == (8, 10, 3) and not config.embedded
    train, valid = config.split()
    assert len(train) == 10 and [one[0] for one in valid.captions] == ["about 1", "about 11"]
    assert valid.captions[0] == ("about 1", "again 1") and valid.pixels[0, 0, 0].tolist() == [20, 0, 0]
    assert config.held_out().captions == valid.captions
    sized = CaptionsConfig(images=config.images, test=config.images, size=16, channels=1)
    assert sized.held_out().pixels.shape == (12, 16, 16, 1)
    assert CaptionsConfig(images=config.images, valid=config.images).split()[1].pixels.shape == (12, 8, 10, 3)
    alone = table(folder, "one.csv", "path,caption\nimages/0.png,one\n")
    with pytest.raises(ValueError, match="one image cannot be split; give --data.valid"):
        CaptionsConfig(images=str(alone)).split()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(valid="x.csv"), "validation images without training images"),
        (dict(channels=2), "channels=2 must be 1"),
        (dict(count=1), "count must be at least 2"),
        (dict(most=7), "most=7: a scene has 1 to 6 objects"),
        (dict(zoom=1.5), "zoom=1.5 must be below 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        CaptionsConfig(**fields)


def test_scenes():
    config = CaptionsConfig(size=32, most=2, count=30)
    train = config.read(None)
    assert config.embedded and train.pixels.shape == (30, 32, 32, 3) and train.pixels.dtype == np.uint8
    wanted = scenes("train", 30, 32, 2)
    assert train.captions == [(one.caption,) for one in wanted]
    assert np.array_equal(train.pixels[7], wanted[7].pixels)
    assert {*train.captions} - {*config.read(None, "test").take(slice(30)).captions}
    assert CaptionsConfig(size=32, channels=1).read(None, "valid").pixels.shape == (500, 32, 32, 1)
    assert CaptionsConfig().shape() == (64, 64, 3)


def stream(count=7, rows=3, **more):
    pixels = np.random.default_rng(2).integers(0, 256, (count, 6, 5, 3)).astype(np.uint8)
    ids = [[[10 + i] * (1 + i % 3), [20 + i]] for i in range(count)]
    found = CaptionedImages(pixels, [("a", "b")] * count)
    return CaptionStream(found, ids, Preprocessing(size=(6, 5)), Augmentation(**more), (1, 2, 0), rows=rows, seed=3)


def test_a_batch_has_pictures_and_shifted_captions():
    one = stream()
    assert one.count() == 3
    epoch = [batch for _, (_, _, batch) in zip(range(3), one.batches(), strict=False)]
    assert sorted(i for batch in epoch for i in batch.examples) == list(range(7))
    for batch in epoch:
        for row, number in enumerate(batch.examples):
            read, write = batch.inputs["target"][row].tolist(), batch.targets[row].tolist()
            said = write[: write.index(2)]
            assert said in one.ids[number] and read[: len(said) + 1] == [1, *said]
            assert set(read[len(said) + 1 :]) <= {0} and set(write[len(said) + 1 :]) <= {IGNORE}
            shown = torch.from_numpy(one.images.pixels[number]).movedim(-1, 0) / 255
            torch.testing.assert_close(batch.inputs["pixels"][row], shown)


def test_it_goes_on_where_it_stood():
    one = stream(shift=0.2, zoom=0.1)
    places = [place for place, _ in zip(one.batches(), range(7), strict=False)]
    epoch, index, _ = places[3]
    for (_, _, again), (_, _, batch) in zip(one.batches(epoch, index), places[4:], strict=False):
        assert again.examples == batch.examples and torch.equal(again.targets, batch.targets)
        assert torch.equal(again.inputs["pixels"], batch.inputs["pixels"])


def test_each_caption_once_for_validation():
    one = stream()
    batches = list(one.once(one.images, one.ids))
    assert sum(len(batch.targets) for batch in batches) == 14
    assert batches[0].examples[:4] == (0, 0, 1, 1)
