"""Receptive fields: what is known of convolutions, windows and causal masks comes out of the gradient."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from regard.bench.receptive import (
    ReceptiveConfig,
    draw_receptive,
    gradient_field,
    image_size,
    measure_receptive,
    middle,
    text_size,
)
from regard.hub import save_model
from regard.models import GPT, GPTConfig
from tests.cli.calling import call, fails


def test_the_field_of_convolutions_is_as_large_as_it_must_be():
    x = torch.randn(2, 3, 41, 41, requires_grad=True)
    y = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(5)))(x)
    unit, at = middle(y, 0, (41, 41))
    field = gradient_field(unit, x)
    found = image_size(field, at)
    assert at == (20, 20) and found["reach"] == 11 and 3 <= found["size"] < 11
    assert field.sum() == pytest.approx(1, abs=1e-5)


def test_sizes_by_hand():
    field = np.zeros((9, 9))
    field[4, 4], field[4, 5], field[0, 0] = 0.5, 0.42, 0.08
    assert {"size": 3, "reach": 9} == {key: image_size(field, (4.0, 4.0))[key] for key in ("size", "reach")}
    line = np.array([0.05, 0, 0, 0.5, 0.45, 0, 0])
    assert (text_size(line, (4.0,))["size"], text_size(line, (4.0,))["reach"]) == (2, 3)


def test_windows_grow_by_their_radius_and_masks_hide_the_future():
    names = ("gpt", "gpt:kernel=window:radius=4,position=none", "bert", "lstm")
    found = measure_receptive(ReceptiveConfig(models=names, length=41, inputs=2))["models"]
    assert [one["reach"] for one in found[names[0]]["blocks"]] == [21] * 4
    assert [one["reach"] for one in found[names[1]]["blocks"]] == [5, 9, 13, 17]
    assert [one["reach"] for one in found["bert"]["blocks"]] == [41] * len(found["bert"]["blocks"])
    assert len(found["lstm"]["blocks"]) == 1 and found["lstm"]["blocks"][0]["reach"] <= 21


def test_attention_reads_the_whole_image_at_once_and_a_cnn_does_not(tmp_path):
    result = measure_receptive(ReceptiveConfig(models=("cnn", "vit", "swin"), image=32, inputs=1))
    found = result["models"]
    assert found["vit"]["blocks"][0]["reach"] == 32 > found["cnn"]["blocks"][0]["reach"]
    assert found["swin"]["blocks"][0]["reach"] < found["swin"]["blocks"][-1]["reach"] == 32
    assert len(draw_receptive(result, tmp_path / "x.png").axes) == sum(len(one["blocks"]) for one in found.values())


def test_a_run_is_measured_before_and_after_training(tmp_path, capsys):
    torch.manual_seed(7)
    model = GPT(GPTConfig(vocab_size=11, dim=8, heads=2, depth=1, ffn_dim=8, max_len=16))
    save_model(model, tmp_path / "run")
    call("tokenizer", "train", write_text(tmp_path), "--vocab-size", 300, "--out", tmp_path / "run" / "tokenizer.json")
    capsys.readouterr()
    call("bench", "receptive", "--models", tmp_path / "run", "--inputs", 1, "--quiet", "--json")
    found = json.loads(capsys.readouterr().out)["models"]
    assert list(found) == [f"{tmp_path / 'run'}, untrained", str(tmp_path / "run")]
    assert found[str(tmp_path / "run")]["extent"] == 16


def write_text(folder):
    (folder / "text.txt").write_text("a few words " * 9)
    return folder / "text.txt"


def test_mistakes_are_one_line(capsys):
    for models, message in {
        "transformer": "a Transformer reads source, ",
        "vti": "vit",
        "": "nothing to measure",
        "gpt:kernle=full": "kernel",
    }.items():
        assert message in fails(capsys, "bench", "receptive", "--models", models, "--quiet")
