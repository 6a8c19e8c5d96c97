"""Commands to try after training: examples that are no texts are saved as their modality says."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from regard.eval.report import commands_of
from regard.modalities import Modality
from regard.registry import modalities, tasks
from regard.tasks import Samples, Task
from regard.tasks.base import Example


class Wave(Task):
    inputs = ("wave",)


@pytest.fixture
def wave(monkeypatch):
    monkeypatch.setattr(modalities, "_entries", dict(modalities.entries()))
    record = Modality(
        name="wave", suffixes=(".csv",), types=(np.ndarray,), unit="steps", field="wave", file="scale.txt",
        load=lambda path, config: 1.0, save=lambda reader, path: None, read=lambda item: item,
    )  # fmt: skip
    return modalities.register("wave")(record)


def test_an_array_of_a_plugin_is_no_image(wave, tmp_path, monkeypatch):
    samples = Samples(commands=["regard period RUN wave.csv"], examples=[Example(inputs=(np.ones((9, 1)),))])
    assert commands_of(Wave(), samples, tmp_path) == samples.commands and not list(tmp_path.iterdir())

    def write(item, folder):
        np.savetxt(folder / "wave.csv", item, delimiter=",")
        return folder / "wave.csv"

    modalities._entries["wave"] = replace(wave, write=write)
    path = tmp_path / "wave.csv"
    assert commands_of(Wave(), samples, tmp_path) == [f"regard period RUN {path}", f"regard look {tmp_path} {path}"]
    assert len(path.read_text().split()) == 9


def test_an_image_is_saved_and_named(tmp_path):
    out = tmp_path / "my run"
    out.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 1), dtype=np.uint8)
    samples = Samples(commands=["regard classify RUN image.png"], examples=[Example(inputs=(pixels,), label="3")])
    commands = commands_of(object.__new__(tasks["classify-images"]), samples, out)
    assert shlex.split(commands[0])[-1] == shlex.split(commands[1])[-1] == str(out / "image.png")
    assert np.array_equal(np.asarray(Image.open(out / "image.png")), pixels[..., 0])
