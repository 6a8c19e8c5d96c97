"""Pictures without labels: hidden patches, two views, pixels one by one; and what a linear probe reads off them."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.batches import Batch
from regard.data.sets.labelled_images import digits
from regard.data.sets.unlabelled_images import UnlabelledConfig
from regard.eval.probe import features, probe
from regard.eval.scores import evaluate
from regard.hub import load_model
from regard.models import build, preset
from regard.objectives.views import two_views
from regard.recipes import Recipe, fit, recipe
from regard.recipes.pixel import PixelConfig, check_room, machine_memory
from regard.runs.fit import prepare
from regard.runs.recipe import configure
from regard.tasks import ImageEncoder, ImageRestorer, PixelModel, load
from regard.tasks.image_restorer import BLANK
from regard.tasks.metrics import histogram_nats
from regard.tokens.pixel_tokenizer import PixelTokenizer
from regard.train.progress import Line
from tests.cli.calling import call, fails, options, rows, said

STEPS = {"train.steps": 6, "train.eval_every": 3, "train.save_every": 3, "train.warmup": 2}
SMALL = STEPS | {"model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 2}
LIGHT = {"model.decoder_dim": 12, "model.decoder_heads": 2, "model.decoder_ffn_dim": 16, "model.decoder_depth": 1}
PLANS = {
    "mae": SMALL | LIGHT | {"train.batch_tokens": 340},
    "simclr": SMALL | {"train.batch_tokens": 320},
    "pixel": SMALL | {"train.batch_tokens": 1024},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each recipe on the digits, trained a little."""
    where = tmp_path_factory.mktemp("runs")
    for name, plan in PLANS.items():
        fit(recipe(name, plan), where / name, quiet=True)
    lstm = STEPS | {"model": "lstm", "model.dim": 12, "train.batch_tokens": 1024}
    fit(recipe("pixel", lstm), where / "lstm", quiet=True)
    return where


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures in one heap, some of them deeper, none with a class."""
    where, rng = tmp_path_factory.mktemp("heap"), np.random.default_rng(2)
    (where / "more").mkdir()
    for number in range(12):
        noise = Image.fromarray(rng.integers(0, 255, (8, 12, 3), dtype=np.uint8))
        noise.save(where / ("more" if number % 3 else ".") / f"{number}.png")
    return where


@pytest.mark.parametrize("name", ["mae", "simclr"])
def test_an_encoder_is_left_that_embeds_and_can_be_taught(runs, name, tmp_path):
    loaded = load(runs / name)
    assert type(loaded) is {"mae": ImageRestorer, "simclr": ImageEncoder}[name]
    vectors = loaded.embed([Image.fromarray(one[..., 0]) for one in digits("test").pixels[:3]])
    assert vectors.shape == (3, 16) and vectors.norm(dim=1).tolist() == pytest.approx([1] * 3, abs=1e-5)
    assert load_model(runs / name).config.image == 8
    if name == "simclr":  # another's recipe knows a plain vit
        images = digits("valid").take(slice(40))
        np.savez(tmp_path / "some.npz", x=images.pixels, y=images.labels)
        fields = options(STEPS | {"data.images": tmp_path / "some.npz"})
        call("finetune", runs / name, "--out", tmp_path / "taught", "--quiet", *fields)
        assert len(load(tmp_path / "taught").model.config.labels) == 10


@pytest.mark.parametrize("name", list(PLANS))
def test_a_heap_of_pictures_is_enough(folder, name, tmp_path):
    plan = recipe(name, PLANS[name] | {"data.images": str(folder), "train.steps": 2, "train.warmup": 1})
    assert plan.data.shape() == (8, 12, 3)
    fit(plan, tmp_path / "out", quiet=True)
    assert Recipe.load(tmp_path / "out" / "recipe.toml").data.images == str(folder)
    np.savez(tmp_path / "plain.npz", x=np.zeros((20, 8, 8), np.uint8))
    assert recipe(name, {"data.images": str(tmp_path / "plain.npz")}).data.split()[0].pixels.shape == (18, 8, 8, 1)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(runs, tmp_path):
    for name in ("mae", "simclr", "pixel"):
        plan = PLANS[name] | {"train.schedule": "constant"}
        fit(recipe(name, plan), tmp_path / name / "whole", quiet=True)
        fit(recipe(name, plan | {"train.steps": 3}), tmp_path / name / "parts", quiet=True)
        fit(recipe(name, plan), tmp_path / name / "parts", resume=True, quiet=True)
        one, other = (load_model(tmp_path / name / part).state_dict() for part in ("whole", "parts"))
        assert all(torch.equal(one[key], other[key]) for key in one), name


def test_a_run_from_before_the_batch_norms_of_the_head_goes_on_without_them(tmp_path):
    plan = PLANS["simclr"] | {"train.schedule": "constant", "data.norm": False}
    fit(recipe("simclr", plan), tmp_path / "whole", quiet=True)
    fit(recipe("simclr", plan | {"train.steps": 3}), tmp_path / "old", quiet=True)
    stored = tmp_path / "old/recipe.toml"
    stored.write_text(stored.read_text().replace("norm = false\n", ""))
    assert "norm = false" not in stored.read_text() and recipe("simclr").data.norm
    fit(configure(Recipe.load(stored), {"train.steps": 6}), tmp_path / "old", resume=True, quiet=True)
    one, other = (load_model(tmp_path / part).state_dict() for part in ("whole", "old"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_two_views_by_the_paper():
    """ℓ(i, j) = −log(exp(s_ij/τ) / Σ_{k≠i} exp(s_ik/τ)), view by view."""
    views = torch.randn(10, 7, dtype=torch.float64)
    batch = Batch({"views": views}, torch.zeros(5), tuple(range(5)))
    loss, count = two_views(lambda views: views, batch, temperature=0.3)
    s = (F.normalize(views, dim=1) @ F.normalize(views, dim=1).T / 0.3).numpy()
    total = 0.0
    for i in range(10):
        rest = [k for k in range(10) if k != i]
        total -= s[i, (i + 5) % 10] - np.log(np.exp(s[i, rest]).sum())
    assert count == 10 and loss.item() == pytest.approx(total)


@pytest.mark.parametrize("name", ["mae", "simclr"])
def test_every_layer_is_probed(runs, name, capsys):
    found = probe(runs / name, {}, labels=200, limit=100)
    assert [row["layer"] for row in found["probe"]] == ["pixels", "patches", "block 1", "block 2", "vector"]
    assert found["labels"] == 200 and found["examples"] == 100
    assert found["probe"][0]["error"] < 15  # ten classes from 64 pixels; nothing of ours
    best = next(row for row in found["probe"] if row["layer"] == found["best"])
    assert best["error"] == found["error"] == min(row["error"] for row in found["probe"][1:])
    words = ("eval", runs / name, "--probe", "--labels", 200, "--limit", 100)
    assert rows(capsys, *words)[0]["probe"] == found["probe"]  # seeded
    shown = said(capsys, *words)
    assert shown[0].split() == ["layer", "width", "error", "untrained"]
    assert sum(line.endswith("cut here") for line in shown) == 1


def test_hierarchies_are_probed_too(tmp_path):
    for family in ("swin", "mvit"):
        plan = STEPS | {"model": family, "model.dim": 8, "model.patch": 2, "model.depths": "1,1"}
        plan |= {"model.heads": "1,2", "model.window": 2} if family == "swin" else {"model.heads": 1}
        fit(recipe("simclr", plan | {"train.steps": 2, "train.batch_tokens": 64}), tmp_path / family, quiet=True)
        layers = [row["width"] for row in probe(tmp_path / family, {}, labels=60, limit=50)["probe"]]
        assert layers == [64, 16 * 8, 16 * 8, 4 * 16, 16], "all positions of a layer side by side"


def test_the_tower_of_a_larger_model_is_probed():
    """Only layers that a picture passes through are listed."""
    config = preset(
        "clip", "tiny", image=8, patch=4, channels=1, dim=12, heads=2, depth=2, ffn_dim=8, text_depth=3, embedding_dim=5
    )
    found = features(ImageEncoder(build("clip", config), Preprocessing(channels=1)), digits("test").pixels[:3])
    assert {name: rows.shape[1] for name, rows in found.items()} == {
        "patches": 4 * 12, "block 1": 5 * 12, "block 2": 5 * 12, "vector": 5
    }  # fmt: skip


def test_mistakes_of_a_probe(capsys, runs, folder, tmp_path):
    assert "a probe is for encoders of images" in fails(capsys, "eval", runs / "pixel", "--probe")
    assert "add --probe" in fails(capsys, "eval", runs / "mae", "--labels", 10)
    assert "regard eval --probe" in fails(capsys, "eval", runs / "mae")
    words = ("train", "mae", "--probe", "--data.images", folder, "--out", tmp_path / "none")
    assert "4 images lie beside its folders" in fails(capsys, *words, *options(STEPS))
    shutil.copytree(folder, tmp_path / "one" / "class")
    words = ("train", "mae", "--probe", "--data.images", tmp_path / "one", "--out", tmp_path / "none")
    assert "has fewer than two classes" in fails(capsys, *words, *options(STEPS))
    assert not (tmp_path / "none").exists()
    assert "leave out --probe" in fails(capsys, "train", "lm", "--probe", "--out", tmp_path / "none")


def test_pixels_become_tokens_and_tokens_pixels(tmp_path):
    for size in (
        PixelTokenizer(rows=3, columns=5, channels=1, levels=7),
        PixelTokenizer(rows=2, columns=3, channels=3, levels=4),
    ):
        shape = (4, size.rows, size.columns, size.channels)
        pictures = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
        ids = size.encode(pictures)
        assert ids.shape == (4, len(size)) and 0 <= ids.min() <= ids.max() < size.start == size.vocab_size - 1
        near = size.decode(ids).astype(int) - pictures
        assert np.abs(near).max() <= 255 / (size.levels - 1) / 2 + 1
        assert np.array_equal(size.encode(size.decode(ids)), ids)
        ends = np.stack([np.zeros(shape[1:], np.uint8), np.full(shape[1:], 255, np.uint8)])
        assert np.array_equal(size.decode(size.encode(ends)), ends)
        size.save(tmp_path)
        assert PixelTokenizer.load(tmp_path) == size
    with pytest.raises(ValueError, match="1,000,000 colours"):
        PixelTokenizer(rows=1, columns=1, channels=3, levels=100)


@pytest.mark.parametrize("name", ["pixel", "lstm"])
def test_a_picture_is_completed(runs, name):
    """Through the engine, as it would be one pixel after the other."""
    painter = load(runs / name)
    assert isinstance(painter, PixelModel)
    given = digits("test").pixels[:3]
    painted = painter.complete(given, rows=5)
    ids = painter.pixels.encode(given)
    assert painted.shape == (3, 1, 8, 8, 1)
    assert np.array_equal(painter.pixels.encode(painted[:, 0])[:, :40], ids[:, :40])
    row = [painter.pixels.start, *ids[1, :40].tolist()]
    with torch.no_grad():
        while len(row) < 65:
            row.append(int(painter.model(torch.tensor([row]))[0, -1, : painter.pixels.colours].argmax()))
    assert painter.pixels.encode(painted[1]).tolist() == [row[1:]]
    assert painter.paint(2).shape == (2, 8, 8, 1)
    with pytest.raises(ValueError, match="leaves nothing to generate"):
        painter.complete(given, rows=8)


def test_bits_per_dimension_are_the_models_own(runs):
    scores = evaluate(runs / "pixel", {}, limit=20).scores
    painter, pictures = load(runs / "pixel"), UnlabelledConfig().held_out().sample(20, 0).pixels
    ids = torch.from_numpy(painter.pixels.encode(pictures))
    start = torch.full((20, 1), painter.pixels.start)
    with torch.no_grad():
        told = painter.model(torch.cat([start, ids[:, :-1]], dim=1)).log_softmax(-1)
    bits = -told.gather(2, ids[:, :, None]).mean().item() / np.log(2)
    assert scores["bits_per_dimension"] == pytest.approx(bits, abs=1e-4) and scores["examples"] == 20
    size = PixelTokenizer(rows=1, columns=2, channels=1, levels=2)  # by hand: 3 of 4, then 1 of 2
    known, new = np.array([[0, 0], [0, 0], [1, 1]]), np.array([[0, 1]])
    assert histogram_nats(known, new, size) == pytest.approx(-(np.log(2.5 / 4) + np.log(1.5 / 4)) / 2)


def test_completing_at_the_command_line(capsys, runs, tmp_path):
    Image.fromarray(digits("test").pixels[0, ..., 0]).save(tmp_path / "a.png")
    words = ("complete", runs / "pixel", tmp_path / "a.png", "--count", 3, "--seed", 1, "--out")
    for name in ("one.png", "two.png"):
        call(*words, tmp_path / name)
    one, two = (np.asarray(Image.open(tmp_path / name)) for name in ("one.png", "two.png"))
    assert np.array_equal(one, two) and one.shape[1] > one.shape[0] * 4  # kept, three, the picture
    call("complete", runs / "lstm", "--count", 2, "--out", tmp_path / "nothing.png")
    capsys.readouterr()
    assert "leaves nothing to generate" in fails(capsys, *words, tmp_path / "c.png", "--rows", 8)
    assert "no suffix of an image" in fails(capsys, *words, tmp_path / "c.txt")
    assert "no such image" in fails(capsys, "complete", runs / "pixel", "none.png")
    assert "it does not complete" in fails(capsys, "complete", runs / "simclr", tmp_path / "a.png")
    assert "completes images, it does not generate" in fails(capsys, "generate", runs / "pixel", "a")
    assert "a model of pixels has no layout" in fails(capsys, "convert", runs / "pixel", tmp_path / "hf", "--to", "hf")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pixels.json").write_text(json.dumps({"rows": 2}))
    with pytest.raises(ValueError, match="pixels.json: not complete or damaged .no 'columns'."):
        PixelTokenizer.load(tmp_path / "broken")


@pytest.mark.parametrize("normalized", [False, True])
def test_hidden_patches_are_guessed_and_the_others_stay(normalized):
    config = preset("mae", "tiny", image=(9, 12), channels=3, dim=16, heads=2, ffn_dim=24, normalized=normalized)
    restorer = ImageRestorer(
        build("mae", config), Preprocessing(size=(9, 12), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    )
    given = np.random.default_rng(1).integers(100, 255, (2, 9, 12, 3), dtype=np.uint8)  # not as dark as blanks
    found = restorer.complete(given, count=3, seed=5)
    for picture, pairs in zip(given, found, strict=True):
        for shown, whole in pairs:
            hidden = (shown == BLANK).all(-1)
            patches = hidden[:8].reshape(2, 4, 3, 4).swapaxes(1, 2)
            assert (patches == patches[:, :, :1, :1]).all() and not hidden[8].any()  # not the rest below
            assert patches[:, :, 0, 0].sum() == 5  # of 6: int(6 · 0.25) is 1
            assert (shown[~hidden] == picture[~hidden]).all() and (whole[~hidden] == picture[~hidden]).all()
            assert (whole[hidden] != picture[hidden]).mean() > 0.9
    assert len({shown.tobytes() for shown, _ in found[0]}) > 1
    again = restorer.complete([Image.fromarray(one) for one in given], count=3, seed=5)
    assert all(np.array_equal(a, b) for x, y in zip(found, again, strict=True) for a, b in zip(x, y, strict=True))


def test_perfect_guesses_give_the_picture_back():
    """Whatever a patch's mean and variance, and whatever the numbers that a model reads."""
    config = preset("mae", "tiny", image=8, channels=3, normalized=True)
    how = Preprocessing(size=(8, 8), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    restorer = ImageRestorer(build("mae", config), how)
    restorer.model.forward = lambda pixels, noise: restorer.model.targets(pixels)
    given = np.random.default_rng(1).integers(0, 255, (1, 8, 8, 3), dtype=np.uint8)
    assert np.array_equal(restorer.complete(given)[0][0][1], given[0])


def test_restoring_at_the_command_line(capsys, runs, tmp_path):
    Image.fromarray(digits("test").pixels[0, ..., 0]).save(tmp_path / "a.png")
    words = ("complete", runs / "mae", tmp_path / "a.png", "--out", tmp_path / "done.png")
    call(*words, "--count", 2)
    assert np.asarray(Image.open(tmp_path / "done.png")).shape == (
        104,
        504,
        3,
    )  # 5 pictures
    capsys.readouterr()
    assert "leave out --rows" in fails(capsys, *words, "--rows", 3)
    assert "leave out --temperature" in fails(capsys, *words, "--temperature", 0.5)
    assert "give an IMAGE" in fails(capsys, "complete", runs / "mae")


def test_what_would_not_fit_is_refused_before_it_is_tried(capsys, tmp_path):
    found = rows(capsys, "cost", "pixel", "--image", 128)[0]
    assert found["length"] == 128**2 and found["memory"]["attention_matrices"] == {"self": 768 * 2**30}
    assert any("768.00 GiB" in line for line in said(capsys, "cost", "pixel", "--image", 128))
    large = ("--data.size", 128, "--model.depth", 48, "--model.heads", 16, "--model.dim", 15360)
    line = fails(capsys, "train", "pixel", *large, "--out", tmp_path / "none")
    assert "16,384 tokens an image" in line and "768.00 GiB more" in line and "this machine has" in line
    assert not (tmp_path / "none").exists()
    room = machine_memory()
    assert room is None or room > 1 << 28
    check_room(preset("gpt", "tiny", max_len=64, vocab_size=17), (8, 8), 4096)
    assert PixelConfig(image=(3, 5)).tokens == 15


def job_of(tmp_path, **changes):
    plan = recipe("pixel", {key.replace("__", "."): value for key, value in changes.items()})
    return prepare(plan.data, plan, tmp_path, False, Line(True))


def test_what_would_never_end_is_refused_before_it_is_tried(capsys, tmp_path):
    line = fails(capsys, "train", "pixel", "--data.size", 128, "--out", tmp_path / "none")
    assert "16,384 tokens an image, would take about 4 hours, more than 3; use --data.size 64, --train.steps 5" in line
    assert "--train.minutes" in line and not (tmp_path / "none").exists()
    for size in (8, 16, 28, 64):
        job_of(tmp_path, data__size=size)
    with pytest.raises(ValueError, match=r"8 × 8 .* hours, more than 3; use --train.steps \d+, patches"):
        job_of(tmp_path, train__steps=100_000)
    with pytest.raises(ValueError, match="hours"):
        job_of(tmp_path, data__size=28, train__epochs=1000)
    job_of(tmp_path, data__size=28, train__batch_tokens=784, train__steps=30_000)  # of one picture each
    with pytest.raises(ValueError, match="levels=0 .* use 2 to"):
        job_of(tmp_path, data__levels=0)
    long = job_of(tmp_path, data__size=128, train__minutes=600)  # who insists is believed
    assert sum(len(batch.targets) for batch in long.valid()) == 75  # of 180; the hundred steps before it see 100


def test_columns_of_positions_are_those_of_the_pictures(tmp_path):
    assert job_of(tmp_path, model__position="grid").recipe.model.position == "grid:columns=8"
    with pytest.raises(ValueError, match="position=grid:columns=5, but there are 8 columns; use --model.position"):
        job_of(tmp_path, model__position="grid:columns=5")


def test_validation_sees_all_where_it_can(tmp_path):
    assert sum(len(batch.targets) for batch in job_of(tmp_path).valid()) == 180
    few = job_of(tmp_path, data__size=28, train__eval_every=10)
    seen = [int(batch.targets.sum()) for batch in few.valid()]
    assert sum(len(batch.targets) for batch in few.valid()) == 37 and len(set(seen)) > 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pixels_of_digits_are_learned(tmp_path):
    """Fewer bits than each pixel's own histogram, and than an LSTM of as many parameters in as many steps."""
    found = {}
    for name in ("gpt", "lstm"):
        fit(recipe("pixel", {"model": name}), tmp_path / name, quiet=True)
        found[name] = evaluate(tmp_path / name, {}).scores
    sizes = [sum(p.numel() for p in load_model(tmp_path / name).parameters()) for name in found]
    assert max(sizes) / min(sizes) < 1.02
    bits = {name: one["bits_per_dimension"] for name, one in found.items()}
    assert bits["gpt"] < bits["lstm"] < found["gpt"]["histograms"] and bits["gpt"] < 1.75, found
