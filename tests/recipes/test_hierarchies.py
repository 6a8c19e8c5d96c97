"""Swin, MViT and a CNN with attention: planned for the pictures, trained, and taught other pictures at another size."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.cli.catalogue import show_fields
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.labelled_images import digits
from regard.eval.scores import evaluate
from regard.hub.adapter import begin_from
from regard.hub.checkpoint import load_model, save_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import MAE, MAEConfig, ViT, build, fitting, preset
from regard.recipes import Recipe, fit, recipe
from regard.registry import models
from regard.tasks import load
from tests.cli.calling import call, fails, options

RECIPES = ("swin", "swinv2", "mvit", "cnn-attention", "lr-net")
FAMILIES = ("vit", "swin", "mvit", "cnn-attention", "lr-net")
FEW = {"train.steps": 3, "train.warmup": 1, "train.eval_every": 3, "train.save_every": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each recipe, hardly trained."""
    where = tmp_path_factory.mktemp("runs")
    for name in RECIPES:
        fit(recipe(name, FEW | {"model.dim": 12, "train.batch_tokens": 256}), where / name, quiet=True)
    return where


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """Some digits of 16 × 16 pixels, of which five kinds."""
    images = digits("valid")
    images = images.take(images.labels < 5)
    path = tmp_path_factory.mktemp("data") / "larger.npz"
    np.savez(path, x=images.pixels.repeat(2, axis=1).repeat(2, axis=2)[:60], y=images.labels[:60])
    return path


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [(8, 8), (28, 28), (64, 64), (12, 16), (48, 64), (33, 100), (5, 9), (1, 1)])
def test_sizes_follow_from_the_pictures(family, size):
    config = preset(family, "tiny", image=size, channels=1, labels=("a", "b"), **fitting(family, *size))
    assert build(family, config).eval()(torch.randn(2, 1, *size)).shape == (2, 2)
    assert 1 <= config.tokens <= 1 + 50 * 17


def test_stages_end_with_one_window():
    for side, window, stages in ((8, 2, 2), (28, 7, 2), (64, 4, 3), (96, 6, 3), (224, 7, 4)):
        found = fitting("swin", side, side)
        assert (found["window"], len(found["depths"]), len(found["heads"])) == (window, stages, stages)
        assert -(-side // found["patch"]) == window * 2 ** (stages - 1)


def test_help_shows_every_field():
    shown = show_fields(recipe("swin"))
    assert "--model.depths" in shown and "Blocks of each stage." in shown and "; 2,2]" in shown


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_is_whole(runs, name):
    plan = Recipe.load(runs / name / "recipe.toml")
    assert plan.name == name and plan.model.labels == tuple("0123456789") and plan.model.image == 8
    assert (plan.family, getattr(plan.model, "offsets", None)) == {
        "swin": ("swin", "learned"), "swinv2": ("swin", "log"),
    }.get(name, (name, None))  # fmt: skip
    assert evaluate(runs / name, {}, limit=20).scores["examples"] == 20
    assert len(load(runs / name).classify_arrays(digits("test").take(slice(3)).pixels)) == 3


def test_a_plain_cnn_is_one_field_away():
    plan = recipe("cnn-attention", {"model.attention": 0})
    assert "attention" not in " ".join(dict(build(plan.family, plan.model).named_modules()))


@pytest.mark.parametrize(
    ("name", "tune"),
    [("swin", "all"), ("swinv2", "lora"), ("mvit", "all"), ("mvit", "head"), ("cnn-attention", "lora")],
)
def test_it_is_taught_other_pictures_at_another_size(runs, larger, tmp_path, name, tune):
    words = options(FEW | {"data.images": larger})
    call("finetune", runs / name, "--tune", tune, "--data.size", 16, "--out", tmp_path / "out", "--quiet", *words)
    model, base = load(tmp_path / "out").model, load_model(runs / name)
    assert (model.config.image, model.config.labels) == (16, tuple("01234"))
    named = dict(base.named_parameters())
    query = next(key for key in named if key.endswith("attention.query.weight"))
    assert torch.equal(named[query], dict(model.named_parameters())[query]) == (tune == "head")
    assert (tmp_path / "out" / "adapter.safetensors").exists() == (tune != "all")
    assert evaluate(tmp_path / "out", {}).scores["examples"] > 0


def test_a_cnn_without_attention_has_no_detours(larger, tmp_path, capsys):
    fit(recipe("cnn-attention", FEW | {"model.attention": 0, "model.dim": 8}), tmp_path / "cnn", quiet=True)
    words = ["--data.images", larger, "--out", tmp_path / "out", "--quiet"]
    said = fails(capsys, "finetune", tmp_path / "cnn", "--tune", "lora", *words)
    assert "no attention to add LoRA adapters to; use --data.tune all or head" in said


@pytest.mark.parametrize("tune", ["all", "head", "lora"])
def test_an_autoencoder_gives_its_encoder(larger, tmp_path, tune):
    base = MAE(MAEConfig(image=8, channels=1, patch=2, dim=16, depth=1, heads=2, ffn_dim=24, decoder_dim=8,
                         decoder_depth=1, decoder_heads=2, decoder_ffn_dim=16))  # fmt: skip
    save_model(base, tmp_path / "mae")
    save_preprocessing(tmp_path / "mae", Preprocessing(channels=1, size=(8, 8)))
    fields = FEW | {"data.images": str(larger), "data.base": str(tmp_path / "mae"), "data.tune": tune, "data.size": 16}
    fit(recipe("vit", fields), tmp_path / "out", quiet=True)
    model = load(tmp_path / "out").model
    assert isinstance(model, ViT) and model.config.image == 16 and model.config.labels == tuple("01234")
    same = torch.equal(
        model.encoder.blocks[0].attention.query.weight, base.vit.encoder.blocks[0].attention.query.weight
    )
    assert same == (tune == "head")


CONFIGS = {
    "vit": dict(dim=8, heads=2, ffn_dim=12, depth=1, patch=3),
    "swin": dict(dim=6, depths=(2, 1), heads=(2, 3), window=2, patch=3),
    "swin, version 2": dict(dim=6, depths=(2, 1), heads=(2, 3), window=2, patch=3, offsets="log", kernel="cosine",
                            norm_place="post"),
    "mvit": dict(dim=6, depths=(1, 2), key_stride=2, patch=3),
    "mvit, version 1": dict(dim=6, depths=(1, 2), key_stride=2, patch=3, position="learned", residual=False),
    "cnn-attention": dict(dim=6, depths=(1, 1), heads=2, patch=3),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [(26, 20), (13, 19)])
def test_stretched_beforehand_is_stretched_on_the_way(name, size):
    """A model for another size, started from a base, answers as the base does for pictures of that size."""
    cls = models[name.partition(",")[0]]
    base = cls(cls.config_class(image=(13, 19), channels=1, labels=("a", "b"), **CONFIGS[name])).double().eval()
    started = begin_from(base, replace(base.config, image=size)).double().eval()
    pixels = torch.randn(2, 1, *size, dtype=torch.float64)
    torch.testing.assert_close(started(pixels), base(pixels), atol=1e-5, rtol=1e-5)  # weights went through float32


def test_offsets_in_other_windows():
    """Of learned numbers those in between; a network is asked on the scale that it was trained on."""
    cls = models["swin"]
    sizes = dict(image=24, channels=1, dim=6, depths=(2,), heads=(2,), patch=2)
    base = cls(cls.config_class(**sizes, window=3)).eval()
    table = base.stages[0].blocks[0].position.table
    with torch.no_grad():
        table.copy_(torch.arange(5.0).repeat(5)[:, None] + torch.zeros(2))  # how far to the right
    found = begin_from(base, replace(base.config, window=5)).stages[0].blocks[0].position.table.detach()
    rows = found.unflatten(0, (9, 9))
    torch.testing.assert_close(rows, rows[:1].expand_as(rows))
    assert rows[0, 4, 0] == pytest.approx(2) and (rows[0].diff(dim=0) > 0).all()

    narrow = cls.config_class(**sizes, window=3, offsets="log")
    wide = replace(narrow, window=5, trained_windows=narrow.known_windows)
    small, large = (cls(one).stages[0].blocks[0].position.offsets for one in (narrow, wide))
    torch.testing.assert_close(large.unflatten(0, (9, 9))[2:7, 2:7], small.unflatten(0, (5, 5)))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RECIPES)
def test_digits_are_learned(name, tmp_path):
    """The docstring's figures, with a little room for another machine; whole numbers cost half a point at most."""
    fit(recipe(name), tmp_path, quiet=True)
    plain, whole = (evaluate(tmp_path, {}, quantize=how).scores["accuracy"] for how in (None, "int8"))
    assert plain >= 98 and whole >= plain - 0.5


def test_the_budget_decides_how_much_images_are_augmented(tmp_path):
    """Few passes over many images need no mixing, many passes over few do; a field that is set stays as it is."""
    pixels, classes = np.zeros((6000, 28, 28, 3), dtype=np.uint8), np.arange(6000) % 3
    np.savez(tmp_path / "a.npz", x=pixels, y=classes)
    images = {"data.images": str(tmp_path / "a.npz")}
    brief, lengthy = (recipe("cnn-attention", images | {"train.steps": steps}) for steps in (500, 5000))
    short, long = brief.data, lengthy.data
    assert (short.mixup, short.colour, short.flip, short.shift, short.zoom) == (0.0, 0.0, True, 0.1, 0.0)
    assert (long.mixup, long.colour, long.zoom) == (0.2, 0.2, 0.1)
    assert (brief.train.smoothing, lengthy.train.smoothing) == (0.0, 0.1)
    assert recipe("cnn-attention", images | {"train.minutes": 0.5}).data == short  # 30,000 images at the usual speed
    minutes = recipe("vit", images | {"train.minutes": 2.0, "data.mixup": 0.3}).data
    assert (minutes.mixup, minutes.colour) == (0.3, 0.0) and minutes.resize == "crop"
    assert fitting("cnn-attention", 28, 28) == dict(patch=1, depths=(1, 1, 1), dim=16)


def test_the_number_of_images_decides_how_long_a_run_is(tmp_path):
    """Few images are seen often, many for as long as patience lasts; there are some validations, not hundreds."""
    for count, steps in ((60, 1500), (6000, 2813), (20_000, 5000)):
        np.savez(tmp_path / "a.npz", x=np.zeros((count, 24, 24), dtype=np.uint8), y=np.arange(count) % 3)
        train = recipe("cnn-attention", {"data.images": str(tmp_path / "a.npz")}).train
        assert (train.steps, train.optimizer) == (steps, "muon-conv")
        assert train.eval_every == -(-steps // 6)
    assert recipe("cnn-attention").train.optimizer == "muon"  # the embedded digits
    grey = recipe("cnn-attention", {"data.images": str(tmp_path / "a.npz"), "train.epochs": 40.0}).data
    assert (grey.turn, grey.mixup, grey.flip) == (0.0, 0.2, False)
