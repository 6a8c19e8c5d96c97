"""Sets of labelled images: folders, tables, arrays, digits; and batches that resume."""

import itertools
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers import arrays
from regard.data.readers.preprocessing import Preprocessing
from regard.data.readers.stored_images import DiskImages
from regard.data.sets.augment import Augmentation
from regard.data.sets.captioned_images import CaptionsConfig
from regard.data.sets.image_data import preprocessing_for
from regard.data.sets.labelled_images import ImagesConfig, ImageStream, LabelledImages, digits


def paint(path, colour, size=(9, 7), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        paint(tmp_path / "set" / "red" / f"{number:02}.png", (200 + number, 0, 0))
        paint(tmp_path / "set" / "blue" / "more" / f"{number:02}.jpg", (0, 0, 200 + number))
    (tmp_path / "set" / "red" / "notes.txt").write_text("no image")
    (tmp_path / "set" / ".hidden").mkdir()
    return tmp_path / "set"


def test_a_folder_of_classes(folder):
    train, valid = ImagesConfig(images=str(folder)).split()
    assert train.names == ("blue", "red") and (len(train), len(valid)) == (21, 3)
    assert train.pixels.shape == (21, 7, 9, 3) and train.pixels.dtype == np.uint8
    for one in (train, valid):
        channel = np.where(one.labels == 0, 2, 0)
        assert (one.pixels[np.arange(len(one)), 3, 4, channel] > 190).all()
        assert (one.pixels[np.arange(len(one)), 3, 4, 2 - channel] < 10).all()


def test_hidden_files_are_no_pictures(folder):
    (folder / "red" / "._00.png").write_bytes(b"a copy's notes")
    paint(folder / "red" / ".ipynb_checkpoints" / "00.png", "red")
    assert len(ImagesConfig(images=str(folder)).read(str(folder))) == 24


def test_folders_of_folders_are_no_classes(folder, tmp_path):
    for part in ("one", "two"):
        (tmp_path / "all" / part).mkdir(parents=True)
        (tmp_path / "all" / part / "red").symlink_to(folder / "red")
        paint(tmp_path / "all" / part / "blue" / "1.png", "blue")
    with pytest.raises(ValueError, match=r"\(one, two\) hold folders, no images; .*--data.images .*one, and others"):
        ImagesConfig(images=str(tmp_path / "all")).split()


def test_held_out_classes_have_the_numbers_of_training(folder, tmp_path):
    x = np.zeros((6, 5, 5), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(6) % 3, x_test=x[:4], y_test=np.array([1, 2, 1, 2]))
    for valid in (None, str(tmp_path / "a.npz")):
        found = ImagesConfig(images=str(tmp_path / "a.npz"), valid=valid).held_out()
        assert found.names == ("0", "1", "2") and found.labels.tolist() == [1, 2, 1, 2]
    for fields in (dict(test=str(tmp_path / "a.npz")), dict(valid=str(tmp_path / "a.npz"))):
        data = ImagesConfig(images=str(tmp_path / "b.npz"), **fields)
        np.savez(tmp_path / "b.npz", x=x, y=np.arange(6) % 3)
        assert data.held_out().labels.tolist() == [1, 2, 1, 2], "a file that is named for scores gives its test set"
    assert len(ImagesConfig(images=str(tmp_path / "a.npz"), test=str(tmp_path / "b.npz")).held_out()) == 6
    paint(tmp_path / "test" / "red" / "1.png", "red", (9, 7))
    found = ImagesConfig(images=str(folder), test=str(tmp_path / "test")).held_out()
    assert found.names == ("blue", "red") and found.labels.tolist() == [1]


@pytest.mark.parametrize("name", ["nowhere", "nowhere.csv", "nowhere.npz"])
def test_what_does_not_exist(name):
    with pytest.raises(ValueError, match=f"no such (file|folder): {name}; give an? "):
        ImagesConfig(images=name).split()


def test_suffixes_may_be_capitals(folder):
    (folder / "LIST.CSV").write_text("path,label\nred/00.png,warm\nblue/more/00.jpg,cold\n")
    assert len(ImagesConfig().read(str(folder / "LIST.CSV"))) == 2


@pytest.mark.parametrize("header", ["path,label\n", "label,image\n", "", "filepath,class\n", "Image_Path,Category\n"])
def test_a_table_of_paths(folder, header):
    rows = [("red/00.png", "warm"), ("blue/more/00.jpg", "cold")] * 5
    order = (lambda pair: pair[::-1]) if header.startswith("label") else tuple
    (folder / "list.csv").write_text(header + "".join(",".join(order(row)) + "\n" for row in rows))
    found = ImagesConfig(images=str(folder / "list.csv")).read(str(folder / "list.csv"))
    assert found.names == ("cold", "warm") and found.labels.tolist() == [1, 0] * 5
    assert (found.pixels[::2, 3, 3, 0] > 190).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("where,what\nred/00.png,warm\n", "line 1: the header has no path, only 'where', 'what'; call its column"),
        ("where,label\nred/00.png,warm\n", "line 1: the header has no path, only 'where', 'label'; call its column"),
        ("path,said\nred/00.png,warm\n", "line 1: the header has no label, only 'path', 'said'; call its column label"),
        ("path,label\nred/00.png,\n", "line 2: the label is empty; fill it, or leave out the line"),
        ("red/00.png,warm,light\n", "line 1: got 3 columns; give the path and the label"),
        ("path,label\n", "not one image; a header alone is no data"),
    ],
)  # fmt: skip
def test_bad_tables_speak_of_pictures(folder, text, message):
    (folder / "list.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        ImagesConfig(images=str(folder / "list.csv")).split()
    assert "text" not in str(caught.value)


def test_objects_have_labels_that_may_be_numbers(folder):
    (folder / "list.jsonl").write_text('{"img": "red/00.png", "class": 3}\n{"path": "red/01.png", "label": "a"}\n')
    assert ImagesConfig().read(str(folder / "list.jsonl")).names == ("3", "a")
    (folder / "list.jsonl").write_text('{"img": "red/00.png", "class": 0.5}\n')
    with pytest.raises(ValueError, match="line 1: a label is a text or a whole number; put it in quotes"):
        ImagesConfig().read(str(folder / "list.jsonl"))


def test_sizes_and_channels(folder, tmp_path):
    assert ImagesConfig(images=str(folder)).shape() == (7, 9, 3)
    assert ImagesConfig(images=str(folder), size=5, channels=1).shape() == (5, 5, 1)
    paint(folder / "red" / "wide.png", "red", (30, 20))
    assert ImagesConfig(images=str(folder)).shape() == (64, 64, 3)
    paint(tmp_path / "grey" / "a" / "1.png", 7, (100, 100), "L")
    paint(tmp_path / "grey" / "b" / "1.png", 9, (100, 100), "L")
    assert ImagesConfig(images=str(tmp_path / "grey")).shape() == (64, 64, 1)
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 100, 90), np.uint8), y=np.arange(3))
    assert ImagesConfig(images=str(tmp_path / "a.npz")).shape() == (64, 64, 1)
    assert ImagesConfig().shape() == (8, 8, 1) and ImagesConfig(size=12).split()[0].pixels.shape[1:] == (12, 12, 1)


@pytest.mark.parametrize("layout", ["N Y X", "N Y X C", "N C Y X"])
@pytest.mark.parametrize("kind", ["bytes", "fractions", "whole"])
def test_arrays(tmp_path, layout, kind):
    channels = 1 if layout == "N Y X" else 3
    pixels = np.random.default_rng(1).integers(0, 256, (20, 5, 7, channels), dtype=np.uint8)
    pixels[0, 0, 0, 0] = 255
    x = {"bytes": pixels, "fractions": (pixels / 255).astype(np.float32), "whole": pixels.astype(np.int64)}[kind]
    x = {"N Y X": lambda: x[..., 0], "N Y X C": lambda: x, "N C Y X": lambda: np.moveaxis(x, -1, 1)}[layout]()
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(20) % 4 * 10)
    found = ImagesConfig(images=str(tmp_path / "a.npz")).read(str(tmp_path / "a.npz"))
    assert np.array_equal(found.pixels, pixels)
    assert found.names == ("0", "10", "20", "30") and found.labels.tolist() == [i % 4 for i in range(20)]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.int64, np.float32])
def test_masks_are_black_and_white(tmp_path, kind):
    mask = np.random.default_rng(1).integers(0, 2, (6, 5, 7)).astype(kind)
    np.savez(tmp_path / "a.npz", x=mask, y=np.arange(6) % 2)
    found = ImagesConfig().read(str(tmp_path / "a.npz"), preprocessing=Preprocessing(channels=1))
    assert np.array_equal(found.pixels[..., 0], mask * 255.0)


def test_fractions_may_be_a_rounding_above_one(tmp_path):
    x = np.linspace(0, 1.0001, 6 * 5 * 7).reshape(6, 5, 7)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(6) % 2)
    found = ImagesConfig().read(str(tmp_path / "a.npz"), preprocessing=Preprocessing(channels=1))
    assert np.abs(found.pixels[..., 0] - x * 255).max() < 1


def test_other_things_than_arrays(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as stored:
        stored.writestr("x", b"no array")
        stored.writestr("y", b"none")
    with pytest.raises(ValueError, match="a.npz: x is no array"):
        ImagesConfig(images=str(tmp_path / "a.npz")).split()


def test_arrays_are_decoded_once(tmp_path, monkeypatch):
    path, x = tmp_path / "a.npz", np.zeros((20, 6, 6), np.uint8)
    np.savez(path, x_train=x, y_train=np.arange(20) % 2, x_test=x[:7], y_test=np.arange(7) % 2)
    seen = []
    monkeypatch.setattr(arrays, "as_bytes", lambda x, of=arrays.as_bytes: seen.append(len(x)) or of(x))
    assert len(ImagesConfig(images=str(path)).held_out(Preprocessing(channels=1, size=(6, 6)))) == 7 and seen == [7]


def test_arrays_with_a_test_set_and_names(tmp_path):
    path, rng = tmp_path / "a.npz", np.random.default_rng(1)
    x, y = rng.integers(0, 256, (30, 6, 6), dtype=np.uint8), rng.integers(0, 3, 30)
    np.savez(path, x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:], labels=np.array(["a", "b", "c"]))
    data = ImagesConfig(images=str(path))
    assert np.array_equal(data.held_out().pixels[..., 0], x[20:]) and data.held_out().names == ("a", "b", "c")
    assert len(data.split()[0]) == 18


def test_digits_are_split_once_and_for_all():
    parts = [digits(split) for split in ("train", "valid", "test")]
    assert [len(part) for part in parts] == [1257, 180, 360]
    everything = np.concatenate([part.pixels.reshape(len(part), -1) for part in parts])
    assert len(everything) == 1797 and set(np.unique(everything)) <= {round(i * 255 / 16) for i in range(17)}
    sums = [int(part.pixels.sum(dtype=np.int64)) for part in parts]
    assert sums == [int(part.pixels.sum(dtype=np.int64)) for part in (digits("train"), digits("valid"), digits("test"))]
    assert all(len(np.unique(part.labels)) == 10 for part in parts)


def bad(tmp_path, what):
    """A set that has something wrong with it."""
    if what == "empty class":
        paint(tmp_path / "a" / "1.png", "red")
        (tmp_path / "b").mkdir()
        return tmp_path
    if what == "no classes":
        paint(tmp_path / "1.png", "red")
        return tmp_path
    if what == "beside":
        for path in ("a/1.png", "b/2.png", "loose.png", "more.png"):
            paint(tmp_path / path, "red")
        return tmp_path
    if what == "one class":
        paint(tmp_path / "a" / "1.png", "red")
        return tmp_path
    if what == "text":
        paint(tmp_path / "a" / "1.png", "red")
        (tmp_path / "b").mkdir()
        (tmp_path / "b" / "2.png").write_text("text")
        return tmp_path
    if what == "missing file":
        paint(tmp_path / "1.png", "red")
        (tmp_path / "list.csv").write_text("path,label\n1.png,a\n2.png,b\n")
        return tmp_path / "list.csv"
    if what == "nothing":
        return tmp_path / "nowhere"
    if what == "other kind":
        (tmp_path / "set.rar").write_text("")
        return tmp_path / "set.rar"
    if what == "no zip":
        (tmp_path / "a.npz").write_text("text")
    elif what == "one array":
        np.save(tmp_path / "a.npy", np.zeros((2, 3, 3)))
        (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    elif what == "pickle":
        np.savez(tmp_path / "a.npz", x=np.array([object()]), y=np.zeros(1, int))
    elif what == "names":
        np.savez(tmp_path / "a.npz", images=np.zeros((2, 3, 3)))
    elif what == "shape":
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.zeros(2, int))
    elif what == "range":
        np.savez(tmp_path / "a.npz", x=np.full((2, 3, 3), -1.0), y=np.zeros(2, int))
    elif what == "labels":
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 3)), y=np.zeros(3, int))
    return tmp_path / "a.npz"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("empty class", r"b holds no images \(.png.*; fill it or remove it"),
        ("no classes", "has no folders; put the images of each class into a folder"),
        ("beside", r"2 images lie beside its folders \(loose.png\); put each into the folder of its class"),
        ("one class", "has only the class 'a'"),
        ("text", r"2.png is no image"),
        ("missing file", r"list.csv, line 3: no such image: .*2.png"),
        ("nothing", "no such folder: .*nowhere"),
        ("other kind", "set.rar: images are a folder"),
        ("no zip", "a.npz cannot be read as .npz"),
        ("one array", "a.npz cannot be read as .npz"),
        ("pickle", "a.npz: .*[Oo]bject arrays"),
        ("names", "a.npz: no arrays x and y, only images"),
        ("shape", r"a.npz: x has shape \(2, 3\)"),
        ("range", "a.npz: x holds other numbers"),
        ("labels", "a.npz: y has shape"),
    ],
)
def test_bad_sets(tmp_path, what, message):
    with pytest.raises(ValueError, match=message) as caught:
        ImagesConfig(images=str(bad(tmp_path, what))).split()
    assert "\n" not in str(caught.value)


def test_a_class_that_training_never_shows(folder, tmp_path):
    paint(tmp_path / "other" / "green" / "1.png", "green")
    with pytest.raises(ValueError, match="the class 'green' does not occur in training; known: blue, red"):
        ImagesConfig(images=str(folder), valid=str(tmp_path / "other")).split()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(valid="x"), "validation images without training images"),
        (dict(tune="lora"), "needs weights to start from"),
        (dict(channels=2), "channels=2 must be 1"),
        (dict(size=0), "size=0 must be at least 1"),
        (dict(zoom=1.0), "zoom=1.0 must be below 1"),
        (dict(mixup=-0.1), "mixup=-0.1 must not be negative"),
    ],
)
def test_fields_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        ImagesConfig(**fields)


def stream(rows=50, **changes):
    data = ImagesConfig(**changes)
    images = digits("valid")
    mixing = dict(mixup=data.mixup, cutmix=data.cutmix)
    return ImageStream(images, preprocessing_for(images), data, rows, seed=3, **mixing)


def first(one, count, **start):
    return list(itertools.islice(one.batches(**start), count))


@pytest.mark.parametrize("changes", [{}, dict(mixup=0.5, cutmix=0.5, turn=10.0, flip=True, colour=0.3)])
def test_a_stream_resumes_to_the_same_batch(changes):
    one = stream(**changes)
    batches = first(one, 7)
    assert one.count() == 4 and [(epoch, index) for epoch, index, _ in batches[3:5]] == [(0, 4), (1, 1)]
    torch.manual_seed(1)
    for (epoch, index, was), (_, _, again) in zip(
        batches[5:], first(stream(**changes), 2, epoch=1, index=1), strict=True
    ):
        assert epoch == 1 and index > 1
        assert torch.equal(was.inputs["pixels"], again.inputs["pixels"]) and torch.equal(was.targets, again.targets)
    seen = [place for _, _, batch in batches[:4] for place in batch.examples]
    assert sorted(seen) == list(range(180))


def test_pictures_are_centred_and_validated_as_they_are():
    one = stream(shift=0.0, zoom=0.0)
    everything = next(iter(one.once(one.images, 200)))
    pixels = everything.inputs["pixels"]
    assert pixels.shape == (180, 1, 8, 8) and everything.tokens == 180
    assert abs(pixels.mean()) < 1e-2 and abs(pixels.std() - 1) < 1e-2
    batch = first(one, 1)[0][2]
    assert torch.allclose(batch.inputs["pixels"], pixels[list(batch.examples)], atol=1e-5)
    assert torch.equal(batch.targets, everything.targets[list(batch.examples)])


def test_no_class_is_held_out_whole(tmp_path):
    """Rows in any order, a class of one: each class keeps nine tenths, the only image stays."""
    labels = np.array(([0] + [1, 2] * 30)[:61])
    labels = labels[np.random.default_rng(1).permutation(61)]
    np.savez(tmp_path / "a.npz", x=np.zeros((61, 4, 4), np.uint8), y=labels)
    train, valid = ImagesConfig(images=str(tmp_path / "a.npz")).split()
    assert np.bincount(train.labels).tolist() == [1, 27, 27] and np.bincount(valid.labels).tolist() == [0, 3, 3]
    np.savez(tmp_path / "b.npz", x=np.zeros((13, 4, 4), np.uint8), y=np.array([1, 0] * 2 + [2] * 9))
    train, valid = ImagesConfig(images=str(tmp_path / "b.npz")).split()
    assert set(train.labels) == {0, 1, 2} and len(valid) == 2
    np.savez(tmp_path / "c.npz", x=np.zeros((3, 4, 4), np.uint8), y=np.arange(3))
    with pytest.raises(ValueError, match="one image of each class cannot be split; give --data.valid"):
        ImagesConfig(images=str(tmp_path / "c.npz")).split()


def peak(function):
    """Most bytes that were held beyond what there was."""
    tracemalloc.start()
    try:
        found = function()
        return tracemalloc.get_traced_memory()[1], found
    finally:
        tracemalloc.stop()


def test_pictures_are_held_once():
    most, drawn = peak(lambda: CaptionsConfig(size=32, count=300).read(None))
    assert most < 1.5 * drawn.pixels.nbytes + 500_000
    pixels = np.zeros((3000, 16, 16, 3), np.uint8)
    images = LabelledImages(pixels, np.zeros(3000, np.int64), ("",))
    one = ImageStream(images, preprocessing_for(images), Augmentation(), 8)
    assert peak(lambda: first(one, 2))[0] < pixels.nbytes / 2


def test_what_does_not_fit_is_counted_as_it_is_held(folder, tmp_path, monkeypatch):
    """Files beyond --data.memory are read from disk; arrays are in memory, and those that are enlarged count twice."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    bytes_ = 21 * 7 * 9 * 3
    for room, kind in ((bytes_, np.ndarray), (bytes_ - 1, DiskImages)):
        images = ImagesConfig(images=str(folder), memory=room / 2**30).split()[0]
        assert len(images) == 21 and isinstance(images.pixels, kind)
    monkeypatch.setattr("regard.data.sets.image_data.ROOM", 2 * 9 * 64 * 64 - 1)
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 8, 8), np.uint8), y=np.arange(9) % 2)
    with pytest.raises(ValueError, match="9 images of 64 × 64 take"):
        ImagesConfig(images=str(tmp_path / "a.npz"), size=64).split()
