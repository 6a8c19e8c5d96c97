"""`preprocessor_config.json` in and out, against the processors of `transformers` that work with Pillow."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.hub.preprocessor import PREPROCESSOR, PROCESSOR, load_preprocessing, save_preprocessing
from regard.models import ViTConfig

transformers = pytest.importorskip("transformers")
CLOSE = 1e-5


def picture(rows, columns, mode="RGB", seed=3):
    """Smooth enough that filters agree about something, rough enough that they differ."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((columns, rows), Image.Resampling.BICUBIC)
    noise = rng.integers(0, 60, (rows, columns, 3))
    return Image.fromarray((np.asarray(image) * 0.7 + noise).astype(np.uint8)).convert(mode)


def processor(name, **changes):
    return getattr(transformers, f"{name}ImageProcessorPil")(**changes)


CASES = [
    ("ViT", {}),
    ("ViT", dict(size={"height": 37, "width": 53}, resample=3, image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7])),
    ("ViT", dict(size={"height": 23, "width": 23}, resample=0, do_normalize=False)),
    ("ViT", dict(do_resize=False, do_rescale=False)),
    ("ViT", dict(size={"height": 23, "width": 23}, resample=1, rescale_factor=1 / 127.5)),
    ("DeiT", {}),
    ("DeiT", dict(size={"height": 21, "width": 31}, crop_size={"height": 26, "width": 17})),
    ("CLIP", {}),
    ("CLIP", dict(size={"shortest_edge": 41}, crop_size={"height": 33, "width": 45}, resample=2)),
]
CONFIG = ViTConfig(image=224)


@pytest.mark.parametrize(("name", "changes"), CASES)
@pytest.mark.parametrize("size", [(61, 97), (97, 61), (300, 224), (1, 1), (19, 400)])
def test_pixels_are_theirs(tmp_path, name, changes, size):
    theirs, image = processor(name, **changes), picture(*size)
    theirs.save_pretrained(tmp_path)
    ours = load_preprocessing(tmp_path, CONFIG)
    wanted = theirs(image, return_tensors="pt").pixel_values[0]
    found = torch.from_numpy(ours(image))
    assert found.shape == wanted.shape and found.dtype == torch.float32
    assert (found - wanted).abs().max() <= CLOSE

    save_preprocessing(tmp_path / "again", ours)
    assert load_preprocessing(tmp_path / "again", CONFIG) == ours
    kind = getattr(
        transformers, json.loads((tmp_path / "again" / PREPROCESSOR).read_text())["image_processor_type"] + "Pil"
    )
    again = kind.from_pretrained(tmp_path / "again")(image, return_tensors="pt").pixel_values[0]
    assert (again - wanted).abs().max() <= CLOSE


def test_grey(tmp_path):
    ours = Preprocessing(channels=1, size=(17, 11), mean=(0.2,), std=(0.4,))
    save_preprocessing(tmp_path, ours)
    image = picture(40, 30, "L")
    theirs = transformers.ViTImageProcessorPil.from_pretrained(tmp_path)
    wanted = theirs(image, return_tensors="np").pixel_values[0]
    assert ours(image).shape == (1, 17, 11) and np.abs(ours(image) - wanted).max() <= CLOSE
    assert load_preprocessing(tmp_path, ViTConfig(image=16, channels=1)) == ours


def test_colours_are_made_of_grey_and_grey_of_colours():
    assert Preprocessing(channels=3)(picture(5, 7, "L")).shape == (3, 5, 7)
    assert Preprocessing(channels=1)(picture(5, 7)).shape == (1, 5, 7)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        (dict(feature_extractor_type="ViTFeatureExtractor", size=384, resample=2),
         Preprocessing(size=(384, 384), mean=(0.5,) * 3, std=(0.5,) * 3)),
        (dict(feature_extractor_type="CLIPFeatureExtractor", size=224, crop_size=224, image_mean=[0.1] * 3,
              image_std=[1] * 3),
         Preprocessing(shortest=224, crop=(224, 224), filter="bicubic", mean=(0.1,) * 3, std=(1.0,) * 3)),
        (dict(image_processor_type="ViTImageProcessorFast", image_mean=0.5, image_std=0.25),
         Preprocessing(size=(224, 224), mean=(0.5,) * 3, std=(0.25,) * 3)),
        (dict(size=[64, 48]), Preprocessing(size=(64, 48), mean=(0.5,) * 3, std=(0.5,) * 3)),
    ],
)  # fmt: skip
def test_older_and_newer_files(tmp_path, fields, wanted):
    (tmp_path / PREPROCESSOR).write_text(json.dumps(fields))
    assert load_preprocessing(tmp_path, CONFIG) == wanted


def test_without_a_file_the_model_says_its_size(tmp_path):
    wanted = Preprocessing(channels=1, size=(8, 6), mean=(0.5,), std=(0.5,))
    assert load_preprocessing(tmp_path, ViTConfig(image=(8, 6), patch=2, channels=1)) == wanted


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(image_processor_type="SamImageProcessor"), "image_processor_type='SamImageProcessor' is not known"),
        (dict(do_pad=True), "do_pad=True cannot be read"),
        (dict(size={"longest_edge": 5}), "size=.*longest_edge.* cannot be read"),
        (dict(resample=9), "resample=9 is not known"),
        (dict(image_mean=[0.5], image_std=[0.5]), "must have a number for each of 3 channels"),
        (dict(image_std=[0, 1, 1]), "must be above 0"),
        (dict(size=[64, 48, 3]), "size=.* cannot be read here; give height and width, or shortest_edge"),
        (dict(size="large"), "size=large cannot be read"),
        (dict(size={"height": "a", "width": 5}), "size.height takes a whole number, got 'a'"),
        (dict(size={"height": 0, "width": 5}), "size=.* cannot be read here; give .*, above 0"),
        (dict(do_center_crop=True, crop_size={"shortest_edge": 5}), "crop_size=.* give height and width, above 0"),
        (dict(resample=[3]), r"resample=\[3\] is not known"),
        (dict(rescale_factor="x"), "rescale_factor takes a number, got 'x'"),
        (dict(image_mean=[None] * 3), "image_mean takes a number,…, got"),
    ],
)
def test_what_cannot_be_read(tmp_path, fields, message):
    (tmp_path / PREPROCESSOR).write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=f"{PREPROCESSOR}: .*{message}"):
        load_preprocessing(tmp_path, CONFIG)


def test_a_part_that_is_no_object(tmp_path):
    (tmp_path / PROCESSOR).write_text(json.dumps(dict(image_processor="ViT")))
    with pytest.raises(ValueError, match=f"{PROCESSOR}: image_processor='ViT' is no object"):
        load_preprocessing(tmp_path, CONFIG)
