"""Images that do not fit into memory: read from disk, in the same order and with the same values; damaged files."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from regard.data.notices import listening
from regard.data.readers import stored_images
from regard.data.readers.stored_images import DiskImages
from regard.data.sets.image_data import preprocessing_for
from regard.data.sets.labelled_images import ImagesConfig, ImageStream


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def folder(path, count=40, side=(24, 32), suffix="jpg"):
    """Images of two classes: dark on the left, or bright."""
    rng = np.random.default_rng(1)
    for i in range(count):
        pixels = rng.integers(0, 256, (*side, 3), dtype=np.uint8)
        pixels[:, : side[1] // 2] //= 4 if i % 2 else 1
        (path / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path / "ab"[i % 2] / f"{i:03}.{suffix}")
    return path


def config(path, **fields):
    return ImagesConfig(images=str(path), size=16, resize="crop", crop=0.4, flip=True, colour=0.2, **fields)


def stream(data):
    images, valid = data.split(crops=data.crop)
    made = ImageStream(images, preprocessing_for(images, data.preprocessing), data, 8, seed=3, crop=data.crop)
    return made, valid


def first(made, count, epoch=0, index=0):
    """(epoch, index, pixels, targets) of some batches."""
    batches = made.batches(epoch, index)
    return [
        (e, i, b.inputs["pixels"].numpy(), b.targets.numpy())
        for _, (e, i, b) in zip(range(count), batches, strict=False)
    ]


def equal(left, right):
    return all(np.array_equal(a, b) for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True))


def test_from_disk_is_as_from_memory(tmp_path, cache):
    path = folder(tmp_path / "set")
    memory, valid = stream(config(path))
    assert isinstance(memory.images.pixels, np.ndarray) and not cache.exists()
    disk, held = stream(config(path, memory=0.0))
    assert isinstance(disk.images.pixels, DiskImages) and isinstance(held.pixels, DiskImages)
    assert disk.images.pixels.shape == memory.images.pixels.shape == (36, 24, 24, 3), "as fine as the originals"
    assert equal(first(memory, 12), first(disk, 12))
    assert np.array_equal(valid.pixels, held.pixels[:]) and np.array_equal(valid.labels, held.labels)
    assert equal(first(memory, 6, 1, 2), first(disk, 12)[7:][:0] + first(disk, 6, 1, 2)), "from any position on"


def test_decoded_images_are_found_again_until_a_file_changes(tmp_path, cache, monkeypatch):
    path, made = folder(tmp_path / "set"), []
    monkeypatch.setattr(
        stored_images, "write_decoded", lambda *a, real=stored_images.write_decoded: made.append(real(*a))
    )
    for _ in range(2):
        config(path, memory=0.0).split()
    assert len(made) == 2, "one file of decoded images for training, one for validation"
    Image.new("RGB", (32, 24)).save(path / "a" / "000.jpg")
    config(path, memory=0.0).split()
    assert len(made) == 3 and not list(cache.glob("*.draft*"))


def test_decoding_to_disk_takes_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_images, "CHUNK", 4)
    peaks = []
    for name in (
        "first",
        "second",
    ):  # what a thread or a first import allocates meanwhile is counted too, but not twice
        path = folder(tmp_path / name, count=400, side=(64, 64), suffix="png")
        data = ImagesConfig(images=str(path), size=60, memory=0.0)
        tracemalloc.start()
        try:
            images = data.split()[0]
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert min(peaks) < np.prod(images.pixels.shape) / 3


def test_without_room_on_the_disk_images_are_decoded_on_access(tmp_path, monkeypatch):
    path = folder(tmp_path / "set")
    memory, _ = stream(config(path))
    monkeypatch.setattr(stored_images, "SPARE", 0.0)
    said = []
    with listening(lambda text, passing: said.append(text)):
        disk, _ = stream(config(path, memory=0.0))
    assert "36 images are decoded anew in every epoch" in said[0]
    pixels = memory.images.pixels
    assert np.array_equal(disk.images.pixels[[3, 1]], pixels[[3, 1]]) and np.array_equal(
        disk.images.pixels[2], pixels[2]
    )


@pytest.mark.parametrize(("memory", "spare"), [(1.0, 0.5), (0.0, 0.5), (0.0, 0.0)])
def test_a_damaged_file_is_skipped_and_counted(tmp_path, memory, spare, monkeypatch):
    monkeypatch.setattr(stored_images, "SPARE", spare)
    path = folder(tmp_path / "set")
    bad = path / "b" / "003.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    said = []
    with listening(lambda text, passing: said.append(text) if "damaged file" in text else None):
        images, valid = config(path, memory=memory).split()
    assert len(images) + len(valid) == 39 and len(images.labels) == len(images.pixels)
    assert images.pixels[:].max((1, 2, 3)).min() > 0 and set(images.ratios.tolist()) == {32 / 24}
    assert any("1 damaged file is skipped" in line and "--data.strict" in line for line in said)
    with pytest.raises(ValueError, match=r"003.jpg is cut short or damaged"):
        config(path, memory=memory, strict=True).split()


def test_many_damaged_files_are_an_error(tmp_path):
    path = folder(tmp_path / "set")
    for i in range(0, 40, 4):
        (path / "a" / f"{i:03}.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r".jpg is no image"):
        config(path).split()


def test_the_centre_is_cropped_and_crops_keep_the_shape_of_things(tmp_path):
    wide = np.zeros((32, 96, 3), dtype=np.uint8)
    wide[:, 32:64] = 255
    for name in "ab":
        for i in range(2):
            (tmp_path / "set" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(wide).save(tmp_path / "set" / name / f"{i}.png")
    data = config(tmp_path / "set")
    assert data.preprocessing.crop == (16, 16) and data.preprocessing.shortest == 16
    images, valid = data.split(crops=0.4)
    assert valid.pixels[0].min() > 200, "squashed, a third would be white"
    assert images.ratios.tolist() == [3.0, 3.0, 3.0] and images.pixels.shape[1:] == (26, 26, 3)
    squashed = ImagesConfig(images=str(tmp_path / "set"), size=16)
    assert squashed.preprocessing.size == (16, 16) and squashed.split()[1].pixels[0].mean() < 100
    made, _ = stream(data)
    share = np.mean([batch[2].shape[-2:] == (16, 16) for batch in first(made, 4)])
    assert share == 1


TRAIN = "from regard.cli import main; main()"


@pytest.mark.slow
def test_killed_and_resumed_is_as_if_nothing_had_happened(tmp_path):
    path = folder(tmp_path / "set", count=80)
    steps = ["--train.steps", "24", "--train.save-every", "4", "--train.eval-every", "12", "--no-score"]
    command = [sys.executable, "-m", "regard", "train", "vit", "--data.images", str(path), "--data.memory", "0"]
    command += ["--data.size", "16", "--model.dim", "16", "--model.depth", "1", "--train.batch-tokens", "400", *steps]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    known = "--no-score" in subprocess.run([*command[:4], "--help"], capture_output=True, text=True).stdout
    command = command if known else command[:-1]
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    child = subprocess.Popen([*command, "--out", str(broken)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(broken.glob("checkpoints/step-*")) and child.poll() is None:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    subprocess.run([*command, "--out", str(broken), "--resume"], check=True, capture_output=True)
    left, right = (load_file(run / "checkpoints" / "step-00000024" / "model.safetensors") for run in (whole, broken))
    assert left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
