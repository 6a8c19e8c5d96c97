"""Images without labels: found wherever they lie, and batches that hide patches or show each image twice."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.sets.augment import Augmentation
from regard.data.sets.image_data import preprocessing_for
from regard.data.sets.labelled_images import LabelledImages
from regard.data.sets.unlabelled_images import HiddenStream, UnlabelledConfig, ViewStream


@pytest.fixture
def images():
    pixels = np.random.default_rng(3).integers(0, 255, (11, 6, 9, 1), dtype=np.uint8)
    return LabelledImages(pixels, np.zeros(11, dtype=np.int64), ("",))


def test_where_pictures_come_from(tmp_path):
    nothing = UnlabelledConfig()
    assert [len(part) for part in nothing.split()] == [1257, 180] and len(nothing.held_out()) == 360
    assert UnlabelledConfig(size=12).split()[0].pixels.shape == (1257, 12, 12, 1)
    for number in range(20):
        (tmp_path / str(number % 3)).mkdir(exist_ok=True)
        Image.new("L", (5, 4), number).save(tmp_path / str(number % 3) / f"{number}.png")
    train, valid = UnlabelledConfig(images=str(tmp_path)).split()
    assert train.pixels.shape == (18, 4, 5, 1) and len(valid) == 2
    assert len(UnlabelledConfig(images=str(tmp_path), valid=str(tmp_path / "1")).split()[1]) == 7
    np.savez(tmp_path / "a.npz", x_train=np.zeros((30, 4, 4), np.uint8), x_test=np.full((7, 4, 4), 2, np.uint8))
    for fields in (dict(), dict(test=str(tmp_path / "a.npz"))):
        assert UnlabelledConfig(images=str(tmp_path / "a.npz"), **fields).held_out().pixels.sum() == 7 * 32
    assert len(UnlabelledConfig(images=str(tmp_path), valid=str(tmp_path / "a.npz")).split()[1]) == 7
    np.savez(tmp_path / "large.npz", x=np.zeros((9, 100, 100), bool))
    assert UnlabelledConfig(images=str(tmp_path / "large.npz")).split()[0].pixels.shape == (8, 64, 64, 1)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1/1.png\n1/4.png\n"),
        ("b.csv", "path\n1/1.png\n1/4.png\n"),
        ("c.csv", "path,caption\n1/1.png,one\n1/1.png,again\n1/4.png,four\n"),
        ("d.csv", "1/1.png,one,two\n1/4.png,four,five\n"),
        ("e.csv", "label,path\n,1/1.png\na,1/4.png\n"),
        ("f.jsonl", '{"path": "1/1.png"}\n{"path": "1/4.png", "label": 3}\n'),
    ],
)
def test_a_table_needs_no_labels(tmp_path, name, text):
    (tmp_path / "1").mkdir()
    for number in (1, 4):
        Image.new("L", (5, 4), number).save(tmp_path / "1" / f"{number}.png")
    (tmp_path / name).write_text(text)
    assert UnlabelledConfig().read(str(tmp_path / name)).pixels[:, 0, 0, 0].tolist() == [1, 4]


def test_mistakes(tmp_path):
    def split(**fields):
        return UnlabelledConfig(**fields).split()

    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("text")
    np.savez(tmp_path / "y.npz", y=np.zeros(3))
    np.savez(tmp_path / "one.npz", x=np.zeros((1, 4, 4), np.uint8))
    for fields, message in [
        (dict(images=str(tmp_path / "empty")), "holds no images"),
        (dict(images=str(tmp_path / "nowhere")), "no such folder"),
        (dict(images=str(tmp_path / "nowhere.npz")), "no such file"),
        (dict(images=str(tmp_path / "text.npz")), "cannot be read as .npz|allow_pickle|no array"),
        (dict(images=str(tmp_path / "y.npz")), "no array x, only y"),
        (dict(images=str(tmp_path / "one.npz")), "one image cannot be split"),
        (dict(valid="somewhere"), "give --data.images too"),
        (dict(channels=2), r"must be 1 \(grey\) or 3"),
        (dict(size=0), "must be at least 1"),
        (dict(zoom=1.5), "must be below 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            split(**fields)


def test_patches_get_their_noise_anew_and_again(images):
    stream = HiddenStream(images, preprocessing_for(images), Augmentation(), 4, patches=6)
    several = [batch for _, (_, _, batch) in zip(range(5), stream.batches(), strict=False)]
    noises = [batch.inputs["noise"] for batch in several]
    assert [noise.shape for noise in noises] == [(4, 6), (4, 6), (3, 6), (4, 6), (4, 6)]
    assert not any(torch.equal(noises[0], other) for other in (noises[1], noises[3]))
    _, _, again = next(stream.batches(1, 0))
    assert torch.equal(again.inputs["noise"], noises[3])
    one, two = (torch.cat([batch.inputs["noise"] for batch in stream.once(images)]) for _ in range(2))
    assert one.shape == (11, 6) and torch.equal(one, two)


def test_views_are_two_of_the_same_picture(images):
    how = preprocessing_for(images)
    same = ViewStream(images, how, Augmentation(), 4)
    _, _, batch = next(same.batches())
    first, second = batch.inputs["pixels"].chunk(2)
    assert torch.equal(first, second) and batch.tokens == 4
    wanted = torch.from_numpy(how.numbers(images.pixels[list(batch.examples)]))
    torch.testing.assert_close(first, wanted)
    changed = ViewStream(images, how, Augmentation(shift=0.2, colour=0.3), 4)
    _, _, batch = next(changed.batches())
    first, second = batch.inputs["pixels"].chunk(2)
    assert not torch.equal(first, second) and not torch.equal(first, wanted)
    for one, two in zip(changed.once(images), changed.once(images), strict=True):
        assert torch.equal(one.inputs["pixels"], two.inputs["pixels"])
    assert sum(len(batch.inputs["pixels"]) for batch in changed.once(images)) == 22
