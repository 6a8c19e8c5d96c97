"""What is asked for has an effect, or is refused: fields that the data decides, or another field."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from regard.config import flatten
from regard.data.sets.labelled_images import ImagesConfig
from regard.recipes import Recipe, fit, recipe
from tests.cli.calling import call, fails

SMALL = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1, "train.steps": 2, "train.warmup": 1,
    "train.eval_every": 2, "train.save_every": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "field", "value", "cure"),
    [
        *((name, "model.image", 16, "follows from the images; use --data.size")
          for name in ("vit", "swin", "mvit", "captioner", "clip", "mae", "simclr", "detr")),
        *((name, "model.channels", 3, "follows from the images; use --data.channels")
          for name in ("vit", "cnn-attention", "mae", "simclr")),
        *((name, "model.channels", 1, "follows from the images; use --data.channels")
          for name in ("captioner", "clip", "detr")),
        *((name, "model.labels", "a,b", "follows from the images; leave it out")
          for name in ("vit", "swin", "detr", "simclr")),
        ("captioner", "model.vocab-size", 50, "follows from the texts; use --data.vocab-size"),
        ("clip", "model.vocab_size", 50, "follows from the texts; use --data.vocab-size"),
        *((name, "model.vocab_size", 50, "follows from the texts; use --data.vocab-size")
          for name in ("lm", "bert", "translate", "t5", "classify")),
        ("pixel", "model.vocab_size", 50, "follows from the colours; use --data.levels"),
        ("pixel", "model.max_len", 50, "follows from the images; use --data.size"),
        *((name, "train.smoothing", 0.1, "has no effect where nothing is labelled; leave it out")
          for name in ("mae", "simclr", "clip")),
    ],
)  # fmt: skip
def test_what_the_data_decides_is_not_asked_for(name, field, value, cure):
    with pytest.raises(ValueError, match=f"^--{field.replace('_', '-')} {cure}$"):
        recipe(name, {field: value})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("vit", {"data.size": 16, "model.image": 16}),
        ("vit", {"train.smoothing": 0.2}),
        ("mae", {"train.smoothing": 0.0}),
        ("pixel", {"model.vocab_size": 17, "model.max_len": 64}),
        ("captioner", {"model.image": "64", "model.max_len": 80}),
        ("cnn-attention", {"model.attention": 0, "model.dim": 16}),
        ("swinv2", {"model.trained_windows": "2,2"}),
        ("lm", {"data.vocab_size": 500, "data.kind": "word"}),
        ("captioner", {"data.count": 100, "data.most": 2}),
        ("detr", {"data.scenes": 5, "data.objects": 1}),
    ],
)
def test_what_agrees_or_counts_is_accepted(name, changes):
    fields = flatten(recipe(name, changes))
    assert all(fields[key] == value for key, value in changes.items() if not isinstance(value, str))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("cnn-attention", {"model.attention": 0, "model.heads": 2}, "heads has no effect with --model.attention 0"),
        ("swin", {"model.trained_windows": "2,2"}, "--model.trained-windows has no effect with --model.offsets learn"),
        ("captioner", {"model.ffn_dim": 8}, "--model.ffn-dim has no effect with --model.decoder recurrent"),
        ("vit", {"model.max_len": 7}, "--model.max-len has no effect with --model.image 8; leave"),
        ("vit", {"data.rank": 3}, "--data.rank has no effect with --data.tune all; leave it out"),
        ("classify", {"data.rank": 3}, "--data.rank has no effect with --data.tune all"),
        ("lm", {"data.tokenizer": "a.json", "data.kind": "char"}, "kind has no effect with --data.tokenizer a.json"),
        ("clip", {"data.tokenizer": "a.json", "data.vocab_size": 9}, "vocab-size has no effect with --data.tokenizer"),
        ("detr", {"data.coco": "a.json", "data.objects": 1}, "--data.objects has no effect with --data.coco a.json"),
        ("detr", {"data.voc": "a", "data.scenes": 5}, "--data.scenes has no effect with --data.voc a"),
    ],
)  # fmt: skip
def test_what_another_field_switches_off_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        recipe(name, changes)


def test_scenes_are_not_counted_where_pictures_are_given(tmp_path):
    Image.new("RGB", (12, 12)).save(tmp_path / "a.png")
    (tmp_path / "a.csv").write_text("path,caption\na.png,a thing\na.png,black\n")
    for field in ("count", "most"):
        with pytest.raises(ValueError, match=f"--data.{field} has no effect with --data.images"):
            recipe("captioner", {"data.images": str(tmp_path / "a.csv"), f"data.{field}": 2})


def test_a_batch_has_as_many_pictures_whatever_their_size():
    def pictures(**changes):
        plan = recipe("detr", {f"data.{key}": value for key, value in changes.items()})
        return plan.train.batch_tokens / plan.model.tokens

    assert pictures() == pictures(size=128) == pictures(size=256) == pictures(coco="a.json", size=200) == 32
    assert pictures(size=512) == 8 and pictures(size=2048) == 4  # memory


def test_a_place_that_is_taken_is_known_before_anything_is_read(tmp_path):
    (tmp_path / "recipe.toml").write_text("")
    plan = replace(recipe("vit"), data=ImagesConfig(images="nowhere"))
    with pytest.raises(ValueError, match="holds a run already; go on with --resume"):
        fit(plan, tmp_path, quiet=True)


def test_a_model_with_less_room_than_its_texts(tmp_path):
    for name in ("captioner", "clip"):
        assert recipe(name, {"data.max_len": 100}).model.max_len == 100
        with pytest.raises(ValueError, match="--model.max-len 16 is less than --data.max-len 64; use one for both"):
            fit(recipe(name, {"model.max_len": 16}), tmp_path / name, quiet=True)


def test_a_stored_recipe_says_what_followed_from_its_data(capsys, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((12, 12), 40 * i, np.uint8)).save(tmp_path / "set" / name / f"{i}.png")
    fit(recipe("vit", SMALL | {"data.images": str(tmp_path / "set")}), tmp_path / "run", quiet=True)
    stored = tmp_path / "run" / "recipe.toml"
    call("train", "vit", "--config", stored, "--out", tmp_path / "again", "--quiet")
    assert Recipe.load(tmp_path / "again" / "recipe.toml") == Recipe.load(stored)
    capsys.readouterr()
    cure = "--model.image follows from the images; use --data.size"
    where = ("--out", tmp_path / "run")
    assert cure in fails(capsys, "train", "vit", "--config", stored, "--model.image", 20)
    assert cure in fails(capsys, "train", "vit", "--resume", "--model.image", 20, *where)
    (tmp_path / "own.toml").write_text("[model]\nimage = 20\n")
    assert cure in fails(capsys, "train", "vit", "--config", tmp_path / "own.toml")
