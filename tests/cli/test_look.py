"""`regard look` at pictures: what is printed, what is drawn, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from regard.data.images import Preparation
from regard.hub.checkpoint import save_model
from regard.hub.images import save_preparation
from tests.cli.calling import call, fails, rows, said
from tests.inside.seeing import detr, swin, vit


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    models = {"vit": vit(labels=("no", "yes")), "swin": swin(), "detr": detr()}
    for name, model in models.items():
        save_model(model, folder / name)
        side = model.config.image
        size = (side, side) if isinstance(side, int) else side
        save_preparation(folder / name, Preparation(channels=1, size=size, mean=(0.5,), std=(0.5,)))
    pixels = np.random.default_rng(3).integers(0, 256, (37, 29, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    (folder / "text.png").write_text("no picture")
    return folder


def test_a_picture_of_any_size_and_colour_is_looked_at_as_the_model_sees_it(runs, tmp_path, capsys):
    image = runs / "image.png"
    (row,) = rows(capsys, "look", runs / "vit", image, "--at", "1,3")
    assert row["size"] == [12, 20] and row["patches"] == [3, 5] and row["query"] == [1, 3]
    assert [len(layer["heads"]) for layer in row["layers"]] == [2, 2] and row["label"] in ("no", "yes")
    lines = said(capsys, "look", runs / "vit", image, "--view", "heads")
    assert lines[1].startswith("what the class token looks at") and len(lines) == 3 + 4
    assert said(capsys, "look", runs / "vit", image, "--view", "rollout")[1].startswith("rollout from the class token")
    shown = said(capsys, "look", runs / "vit", image, "--layer", "1", "--head", "0")
    assert len(shown) == 3 + 1 + 3 and len(shown[-1]) == 10  # one head: its places as shades
    assert "shifted by 2" in said(capsys, "look", runs / "swin", image, "--view", "windows")[2]
    for name, view in (("vit", "heads"), ("vit", "rollout"), ("swin", "windows"), ("detr", "queries")):
        call("look", runs / name, image, "--view", view, "--out", tmp_path / "look.png")
        assert (tmp_path / "look.png").stat().st_size > 5000
        (tmp_path / "look.png").unlink()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("run", "words", "wanted"),
    [
        ("vit", ["twenty-five"], "no such image: twenty-five"),
        ("vit", ["text.png"], "is no image in a format that is known"),
        ("vit", ["image.png", "--layer", "2"], "no attention layer 2: the model has 2, 0 to 1"),
        ("vit", ["image.png", "--head", "5"], "has no head 5: it has 2, 0 to 1"),
        ("vit", ["image.png", "--at", "3,0"], "no patch 3,0: the picture has 3 × 5, 0,0 to 2,4"),
        ("vit", ["image.png", "--at", "up"], "--at takes the row and column of a patch, such as 2,5; got 'up'"),
        ("vit", ["image.png", "--view", "lines"], "a ViT has no view 'lines'; use heads or rollout"),
        ("vit", ["image.png", "--view", "rollout", "--head", "0"], "the mean of all heads; leave out the head"),
        ("vit", ["image.png", "image.png"], "looks at one picture at a time, got 2"),
        ("vit", ["image.png", "--word", "cat"], "reads pictures; leave out --target and --word"),
        ("vit", ["image.png", "--out", "x.gif"], "cannot draw to 'x.gif'"),
        ("swin", ["image.png", "--view", "windows", "--at", "0,0"], "the view windows has no use for at"),
    ],
)
def test_mistakes(runs, capsys, monkeypatch, run, words, wanted):
    monkeypatch.chdir(runs)
    assert wanted in fails(capsys, "look", run, *words)


def test_a_picture_for_a_model_that_reads_texts(tiny, runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert "image.png is a picture; choose a model that sees" in fails(capsys, "look", tiny.run("lm"), "image.png")
    assert "--layer 1 is for pictures" in fails(capsys, "look", tiny.run("lm"), "a cat", "--layer", "1")
    assert "--view windows is for pictures" in fails(capsys, "look", tiny.run("lm"), "a cat", "--view", "windows")


@pytest.mark.parametrize("view", ["rollout", "gradient", "ablation", "lens", "agreement"])
def test_what_an_output_rests_on(tiny, view, tmp_path, capsys):
    (row,) = rows(capsys, "look", tiny.run("lm"), "The red cat", "--view", view, "--at", "-1")
    assert row["view"] == view and len(row["outputs"]) == 1 and row["text"] == "The red cat"
    assert said(capsys, "look", tiny.run("lm"), "The red cat", "--view", view, "--out", tmp_path / "view.svg")
    assert (tmp_path / "view.svg").stat().st_size > 5000


def test_a_patch_between_two_texts(tiny, capsys):
    run, text = tiny.run("classify"), "The red cat sees a cat in May."
    assert "--view patch goes with --against" in fails(capsys, "look", run, text, "--view", "patch")
    assert "add --view gradient or" in fails(capsys, "look", run, text, "--token", "red")
    wanted = "the first text has "
    assert wanted in fails(capsys, "look", run, text, "--view", "patch", "--against", "The red", "--token", "red")
    assert "no label 'redd'; did you mean" in fails(capsys, "look", run, text, "--view", "gradient", "--token", "redd")
    assert "--at takes the place of an output" in fails(capsys, "look", run, text, "--view", "lens", "--at", "1,2")


def test_the_head_that_aligns_is_named(tiny, tmp_path, capsys):
    words = ("look", tiny.run("t5"), "colour: red cat", "--target", "red", "--out", tmp_path / "heads.png")
    (line,) = said(capsys, *words)
    assert line.startswith("best alignment: decoder.blocks.0.cross head ")
    (row,) = rows(capsys, *words)
    assert [one["layer"] for one in row["aligners"]] == ["decoder.blocks.0.cross"] * 2


def test_views_of_what_a_label_rests_on(runs, tmp_path, capsys):
    (row,) = rows(capsys, "look", runs / "vit", runs / "image.png", "--view", "ablation")
    assert row["outputs"][0] in ("no", "yes") and [len(one["heads"]) for one in row["layers"]] == [2, 2]
    assert "has no labels to explain" in fails(capsys, "look", runs / "swin", runs / "image.png", "--view", "lens")


def test_a_published_checkpoint(tmp_path, runs, capsys):
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    config = transformers.ViTConfig(
        hidden_size=12, num_attention_heads=3, num_hidden_layers=2, intermediate_size=17, image_size=16, patch_size=4
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "theirs")
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "theirs")
    (row,) = rows(capsys, "look", tmp_path / "theirs", runs / "image.png", "--layer", "-1")
    assert row["patches"] == [4, 4] and [one["layer"] for one in row["layers"]] == [1]
    assert [head["head"] for head in row["layers"][0]["heads"]] == [0, 1, 2]
