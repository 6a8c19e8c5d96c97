"""Pictures from folder to label: train, resume, load, classify, score, convert, start from another's weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.labelled_images import digits
from regard.eval.scores import evaluate
from regard.hub import export_model, load_model
from regard.hub.checkpoint import save_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import ViT, ViTConfig
from regard.recipes import Recipe, fit, recipe
from regard.tasks import ImageClassifier, ImageEncoder, load
from tests.cli.calling import call, fails, rows, said

SMALL = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1, "train.steps": 6,
    "train.batch_tokens": 272, "train.eval_every": 3, "train.save_every": 3, "train.warmup": 2,
}  # fmt: skip
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 50, 210)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Noisy squares of three colours, 12 × 16."""
    where, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    for name, colour in COLOURS.items():
        (where / name).mkdir()
        for number in range(20):
            noise = rng.integers(-30, 30, (12, 16, 3))
            Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(
                where / name / f"{number}.png"
            )
    return where


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "colours"
    fit(recipe("vit", SMALL | {"data.images": str(folder), "train.steps": 60, "train.lr": 1e-2}), out, quiet=True)
    return out


def test_the_model_follows_from_the_pictures(folder, tmp_path):
    plan = recipe("vit", {"data.images": str(folder)})
    assert (plan.model.image, plan.model.channels, plan.model.patch) == ((12, 16), 3, 2) and plan.data.flip
    assert recipe("vit", {"data.images": str(folder), "data.size": 48}).model.patch == 6
    given = recipe("vit", {"data.images": str(folder), "model.patch": 4, "model.depth": 3, "data.flip": False})
    assert (given.model.patch, given.model.depth, given.data.flip) == (4, 3, False)
    digits = recipe("vit")
    assert (digits.model.image, digits.model.channels, digits.model.patch, digits.data.flip) == (8, 1, 2, False)
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 28, 28), np.uint8), y=np.arange(4))
    assert recipe("vit", {"data.images": str(tmp_path / "a.npz")}).model.patch == 4


def test_a_batch_has_so_many_pictures_whatever_the_patch():
    for changes in ({}, {"model.patch": 1}, {"model.patch": 4}, {"data.size": 24}):
        plan = recipe("vit", changes)
        assert plan.train.batch_tokens == 64 * plan.model.tokens
    assert recipe("vit", {"model.patch": 4, "train.batch_tokens": 99}).train.batch_tokens == 99
    plan = recipe("simclr", {"model": "swin"})
    assert plan.model.image == 8 and plan.train.batch_tokens == 128 * plan.model.tokens


def test_what_it_starts_from_says_how_pictures_are_read(run, folder, tmp_path):
    """12 × 16 as before, not squares, and on the scale that its weights know."""
    small = {"data.base": str(run), "data.images": str(folder), "train.steps": 2, "train.warmup": 1}
    for changes, size in (({}, (12, 16)), ({"data.size": 20}, (20, 20))):
        out = tmp_path / str(size[0])
        fit(recipe("vit", small | changes), out, quiet=True)
        was, now = load(run).preprocessing, load(out).preprocessing
        assert now.size == size and (now.mean, now.std) == (was.mean, was.std)
    darker = tmp_path / "dark"
    for name in COLOURS:
        (darker / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 12), tuple(c // 4 for c in COLOURS[name])).save(darker / name / f"{number}.png")
    fit(recipe("vit", small | {"data.images": str(darker)}), tmp_path / "on", quiet=True)
    assert load(tmp_path / "on").preprocessing.mean == load(run).preprocessing.mean


def test_a_run_is_loaded_and_knows_colours(run, folder):
    loaded = load(run)
    assert isinstance(loaded, ImageClassifier) and loaded.model.config.labels == ("blue", "green", "red")
    files = [folder / name / "3.png" for name in COLOURS]
    assert [best[0].label for best in loaded.classify(files)] == list(COLOURS)
    for labels in loaded.classify([Image.new("RGB", (5, 9), "red"), files[2]]):
        assert sum(one.probability for one in labels) == pytest.approx(1, abs=1e-5)
    assert loaded.embed(files).norm(dim=1).tolist() == pytest.approx([1] * 3, abs=1e-5)
    for image in (
        files[1],
        str(files[1]),
        files[1].read_bytes(),
        Image.open(files[1]),
        np.asarray(Image.open(files[1])),
    ):
        assert loaded.classify(image) == loaded.classify(files[1:2])[0], "one image, one result"
    assert loaded.embed(files[1]).shape == (loaded.width,)
    assert evaluate(run, {}).scores["examples"] == 6
    assert evaluate(run, {"data.images": str(folder)}).scores["examples"] == 6, "it was trained on the others"


def test_what_is_named_is_scored(run, folder, tmp_path):
    """All of another set, the test set of arrays, and never a class that the model cannot say."""
    pixels = np.zeros((9, 12, 16, 3), np.uint8)
    (tmp_path / "set").mkdir()
    for name in ("red", "green"):
        (tmp_path / "set" / name).symlink_to(folder / name)
    assert evaluate(run, {"data.images": str(tmp_path / "set")}).scores["examples"] == 40
    drawn = evaluate(run, {"data.images": str(tmp_path / "set")}, limit=6)
    assert len(drawn.outputs) == 6 and set(drawn.outputs) == {"red", "green"}, "the first would be of one class"
    pixels[:3, ..., 0] = 200
    pixels[3:, ..., 1] = 200
    names = np.array(["red"] * 3 + ["green"] * 6)
    np.savez(tmp_path / "both.npz", x=pixels[:3], y=names[:3], x_test=pixels[3:], y_test=names[3:])
    for field in ("images", "valid", "test"):
        assert evaluate(run, {f"data.{field}": str(tmp_path / "both.npz")}).scores["examples"] == 6
    np.savez(tmp_path / "all.npz", x=pixels, y=names)
    assert evaluate(run, {"data.images": str(tmp_path / "all.npz")}).scores["examples"] == 9
    np.savez(tmp_path / "numbers.npz", x=pixels, y=np.arange(9) % 2)
    with pytest.raises(ValueError, match="numbers.npz: the class '0' does not occur in training; known: blue, green"):
        evaluate(run, {"data.images": str(tmp_path / "numbers.npz")})


def test_at_the_command_line(capsys, run, folder, tmp_path):
    red, blue = (folder / name / "3.png" for name in ("red", "blue"))
    assert said(capsys, "classify", run, red)[0].startswith("red\t")
    found = rows(capsys, "classify", run, red, blue)
    assert [row["labels"][0]["label"] for row in found] == ["red", "blue"]
    scores = rows(capsys, "eval", run, "--data.images", folder)[0]
    assert scores["examples"] == 6 and scores["accuracy"] > 80
    (tmp_path / "text.png").write_text("text")
    assert "text.png is no image" in fails(capsys, "classify", run, tmp_path / "text.png")
    assert "no such image: nowhere.png" in fails(capsys, "classify", run, "nowhere.png")
    assert "it does not tag; choose another model" in fails(capsys, "tag", run, red)
    line = fails(capsys, "finetune", run)
    assert "is a vit; give the data that it is to learn from: --data.images" in line
    assert "head" in "\n".join(said(capsys, "look", run, red, "--view", "heads"))


def test_converted_it_is_read_by_others(run, folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    call("convert", str(run), str(tmp_path / "theirs"))
    image = Image.open(folder / "green" / "3.png")
    pixels = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "theirs")(image, return_tensors="pt")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        wanted = theirs(**pixels).logits.softmax(-1)[0]
    found = {one.label: one.probability for one in load(run).classify([image])[0]}
    assert [found[theirs.config.id2label[i]] for i in range(3)] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert load(tmp_path / "theirs").preprocessing == load(run).preprocessing


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(folder, tmp_path):
    plan = SMALL | {"data.images": str(folder), "data.mixup": 0.4, "train.schedule": "constant"}
    fit(recipe("vit", plan), tmp_path / "whole", quiet=True)
    fit(recipe("vit", plan | {"train.steps": 3}), tmp_path / "parts", quiet=True)
    fit(recipe("vit", plan), tmp_path / "parts", resume=True, quiet=True)
    one, other = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert Recipe.load(tmp_path / "whole" / "recipe.toml").model.labels == ("blue", "green", "red")


@pytest.mark.parametrize("tune", ["all", "head", "lora"])
def test_a_model_is_taught_other_pictures_at_another_size(run, tmp_path, tune):
    images = digits("valid").take(slice(40))
    np.savez(tmp_path / "digits.npz", x=np.repeat(images.pixels, 3, axis=3), y=images.labels)
    fields = {"train.steps": 4, "train.warmup": 1, "train.eval_every": 2, "train.save_every": 2, "data.size": 24}
    words = [word for key, value in fields.items() for word in (f"--{key}", str(value))]
    out = tmp_path / "out"
    call("finetune", run, "--tune", tune, "--data.images", tmp_path / "digits.npz", "--out", out, "--quiet", *words)
    loaded = load(out)
    assert loaded.model.config.image == 24 and loaded.model.grid == (12, 12) and len(loaded.model.config.labels) == 10
    kept, now = (load_model(one).state_dict()["encoder.blocks.0.attention.query.weight"] for one in (run, out))
    assert torch.equal(kept, now) == (tune == "head")


def test_a_checkpoint_without_labels_embeds_and_learns(tmp_path, folder):
    export_model(ViT(ViTConfig(image=12, patch=4, dim=16, heads=2, depth=1, ffn_dim=24)), tmp_path / "body")
    loaded = load(tmp_path / "body")
    assert type(loaded) is ImageEncoder and loaded.embed([folder / "red" / "1.png"]).shape == (1, 16)
    fields = {"data.images": str(folder), "data.base": str(tmp_path / "body"), "train.steps": 3, "train.warmup": 1}
    fit(recipe("vit", fields), tmp_path / "out", quiet=True)
    assert load(tmp_path / "out").model.config.labels == ("blue", "green", "red")


def test_pictures_are_read_as_by_what_one_starts_from(tmp_path, folder):
    """Resized and cut in its way, in proportion at another size."""
    model = ViT(ViTConfig(image=12, patch=4, dim=16, heads=2, depth=1, ffn_dim=24))
    how = Preprocessing(shortest=16, crop=(12, 12), filter="bicubic", mean=(0.5,) * 3, std=(0.25,) * 3)
    save_model(model, tmp_path / "body")
    save_preprocessing(tmp_path / "body", how)
    fields = {"data.images": str(folder), "data.base": str(tmp_path / "body"), "train.steps": 2, "train.warmup": 1}
    for size, wanted in ((None, how), (24, replace(how, shortest=32, crop=(24, 24)))):
        fit(recipe("vit", fields | ({"data.size": size} if size else {})), tmp_path / f"{size}", quiet=True)
        assert load(tmp_path / f"{size}").preprocessing == wanted
    whole = Preprocessing(size=(8, 8), filter="lanczos")
    assert whole.at((4, 6)) == replace(whole, size=(4, 6))
    assert replace(whole, crop=(6, 6)).at((12, 12)) == replace(whole, size=(16, 16), crop=(12, 12))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_digits_are_learned(tmp_path):
    """The docstring's figure, with a little room for another machine; whole numbers cost half a point at most."""
    fit(recipe("vit"), tmp_path, quiet=True)
    plain, whole = (evaluate(tmp_path, {}, quantize=how).scores["accuracy"] for how in (None, "int8"))
    assert plain >= 98 and whole >= plain - 0.5


def test_a_model_that_reads_is_given_no_picture(capsys, folder, tmp_path):
    plan = {"train.steps": 2, "train.warmup": 1, "model.dim": 16, "model.heads": 2, "model.ffn_dim": 16}
    fit(recipe("classify", plan | {"model.depth": 1, "data.epoch_size": 200}), tmp_path / "texts", quiet=True)
    picture = folder / "red" / "3.png"
    for verb in ("classify", "embed"):
        assert f"reads texts, and {picture} is an image" in fails(capsys, verb, tmp_path / "texts", picture)


def test_what_else_goes_wrong_is_said_in_a_line(capsys, run, folder, tmp_path):
    assert "does not translate; compare language models" in fails(capsys, "compare", run)
    assert "is a folder; name the image files in it" in fails(capsys, "classify", run, folder)
    (tmp_path / "table.csv").write_text("path,caption\na.png,red\n")
    line = fails(capsys, "train", "vit", "--data.images", tmp_path / "table.csv")
    assert "no label, only 'path', 'caption'; call its column label or class" in line
