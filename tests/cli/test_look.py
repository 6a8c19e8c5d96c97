"""`regard look` at pictures: what is printed, what is drawn, and what is refused."""

import numpy as np
import pytest
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.hub.checkpoint import save_model
from regard.hub.preprocessor import save_preprocessing
from regard.serve import model_store, run
from tests.cli.calling import call, fails, rows, said
from tests.inside.seeing import detr, swin, vit
from tests.serve.made import model_of, save


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    models = {"vit": vit(labels=("no", "yes")), "swin": swin(), "detr": detr()}
    for name, model in models.items():
        save_model(model, folder / name)
        side = model.config.image
        size = (side, side) if isinstance(side, int) else side
        save_preprocessing(folder / name, Preprocessing(channels=1, size=size, mean=(0.5,), std=(0.5,)))
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
    assert lines[1].startswith("what the class token attends to") and len(lines) == 3 + 4
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
        ("vit", ["image.png", "--at", "3,0"], "no patch 3,0: the image has 3 × 5, 0,0 to 2,4"),
        ("vit", ["image.png", "--at", "up"], "--at takes the row and column of a patch, such as 2,5; got 'up'"),
        ("vit", ["image.png", "--view", "lines"], "a ViT has no view 'lines' of this input; use heads or rollout"),
        ("vit", ["image.png", "--view", "lines", "--out", "x.html"], "has no view 'lines' of this input; use heads or"),
        ("vit", ["image.png", "--view", "heads", "--out", "x.html"], "a page shows every kind, layer and head; leave"),
        ("vit", ["image.png", "--view", "rollout", "--head", "0"], "--head goes with --view heads; leave it out"),
        ("vit", ["image.png", "image.png"], "reads one image at a time, got 2"),
        ("vit", ["image.png", "image.png", "--view", "lens"], "reads one image at a time, got 2"),
        (
            "vit",
            ["image.png", "--word", "cat"],
            "a word is compared between texts; give a list of at least two",
        ),
        ("vit", ["image.png", "--out", "x.gif"], "cannot draw to 'x.gif'"),
        ("swin", ["image.png", "--view", "windows", "--at", "0,0"], "--at goes with --view heads or rollout"),
    ],
)
def test_mistakes(runs, capsys, monkeypatch, run, words, wanted):
    monkeypatch.chdir(runs)
    assert wanted in fails(capsys, "look", run, *words)


def test_a_picture_for_a_model_that_reads_texts(tiny, runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    assert "image.png is an image; choose a model for it" in fails(capsys, "look", tiny.run("lm"), "image.png")
    assert "--layer has no effect on this model and input" in fails(
        capsys, "look", tiny.run("lm"), "a cat", "--layer", "1"
    )
    assert "a GPT has no view 'windows' of this input; use heads or lines" in fails(
        capsys, "look", tiny.run("lm"), "a cat", "--view", "windows"
    )


@pytest.mark.parametrize("view", ["rollout", "gradient", "ablation", "lens", "agreement"])
def test_what_an_output_rests_on(tiny, view, tmp_path, capsys):
    (row,) = rows(capsys, "look", tiny.run("lm"), "The red cat", "--view", view, "--at", "-1")
    assert row["view"] == view and len(row["outputs"]) == 1 and row["text"] == "The red cat"
    assert said(capsys, "look", tiny.run("lm"), "The red cat", "--view", view, "--out", tmp_path / "view.svg")
    assert (tmp_path / "view.svg").stat().st_size > 5000


def test_a_patch_between_two_texts(tiny, capsys):
    run, text = tiny.run("classify"), "The red cat sees a cat in May."
    assert "--view patch goes with --against" in fails(capsys, "look", run, text, "--view", "patch")
    assert "--token goes with --view rollout or gradient or" in fails(capsys, "look", run, text, "--token", "red")
    wanted = "the first text has "
    assert wanted in fails(capsys, "look", run, text, "--view", "patch", "--against", "The red", "--token", "red")
    assert "no label 'redd'; did you mean" in fails(capsys, "look", run, text, "--view", "gradient", "--token", "redd")
    assert "--at takes the position of an output" in fails(capsys, "look", run, text, "--view", "lens", "--at", "1,2")


def test_the_head_that_aligns_is_named(tiny, tmp_path, capsys):
    words = ("look", tiny.run("t5"), "colour: red cat", "--target", "red", "--out", tmp_path / "heads.png")
    (line,) = said(capsys, *words)
    (row,) = rows(capsys, *words)
    assert [one["layer"] for one in row["aligners"]] == ["decoder.blocks.0.cross"] * 2
    assert line.startswith("best alignment: ") and ("cross head" in line) == (row["aligners"][0]["outputs"] > 0)


def test_views_of_what_a_label_rests_on(runs, tmp_path, capsys):
    (row,) = rows(capsys, "look", runs / "vit", runs / "image.png", "--view", "ablation")
    assert row["outputs"][0] in ("no", "yes") and [len(one["heads"]) for one in row["layers"]] == [2, 2]
    assert "a Swin has no view 'lens' of this input; use heads or rollout or windows or ablation" in fails(
        capsys, "look", runs / "swin", runs / "image.png", "--view", "lens"
    )


def test_weights_as_json_and_in_lines_leave_no_file(tiny, tmp_path, capsys, monkeypatch):
    text = "The red cat"
    monkeypatch.chdir(tmp_path)
    for words in ((), ("--view", "heads")):
        (row,) = rows(capsys, "look", tiny.run("lm"), text, *words)
        assert row["text"] == text and row["rows"] == row["columns"] and len(row["layers"]) > 0
        assert np.allclose(np.array(row["layers"][0]["heads"]).sum(-1), 1, atol=1e-4)
    (row,) = rows(capsys, "look", tiny.run("lm"), text, "--view", "lines")
    assert len(row["layers"]) == 1
    lines = said(capsys, "look", tiny.run("lm"), text, "--view", "heads")
    assert lines[0].startswith("what each token attends to") and " → " in lines[-1]
    (row,) = rows(capsys, "look", tiny.run("t5"), "colour: red cat", "--target", "red")
    shape = np.array(row["layers"][0]["heads"]).shape
    assert row["kind"] == "cross" and shape[1:] == (len(row["rows"]), len(row["columns"])) and row["aligners"]
    (row,) = rows(capsys, "look", tiny.run("t5"), "colour: red cat", "--kind", "decoder")
    assert row["rows"] == row["columns"] and "aligners" not in row
    assert not list(tmp_path.iterdir())
    call("look", tiny.run("lm"), text, "--json", "--out", "heads.png")
    assert capsys.readouterr().out.startswith("{") and (tmp_path / "heads.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("run", "words", "wanted"),
    [
        ("lm", ["a cat", "--target", "x"], "only a translator has a --target; leave it out"),
        ("lm", ["a cat", "--kind", "cross"], "a GPT has one kind of attention; leave out --kind"),
        ("lm", ["a cat", "--view", "lens", "--kind", "cross"], "--kind goes with --view heads or lines"),
        (
            "t5",
            ["a cat", "--view", "lens", "--kind", "cross"],
            "--kind goes with --view heads or lines; leave it out",
        ),
        ("t5", ["a cat", "a dog", "--view", "heads"], "a T5 reads one text at a time, got 2"),
        ("t5", ["a cat", "--word", "cat"], "a word is compared between texts; give a list of at least two"),
        ("lm", ["a cat", "a dog", "--view", "heads"], "a GPT reads one text at a time, got 2"),
        ("classify", ["a", "b", "c", "--view", "heads"], "a Bert reads one text or pair at a time, got 3"),
        ("classify", ["a cat", "cat", "--word", "cat", "--view", "lens"], "--word compares one word's vectors; leave"),
        ("lm", ["a cat", "--at", "1"], "--at goes with --view rollout or gradient or"),
        ("lm", ["a cat", "--view", "lens", "--against", "a dog"], "--against goes with --view patch; leave it out"),
        (
            "lm",
            ["a cat", "--layer", "1", "--out", "x.html"],
            "a page shows every kind, layer and head; leave out --layer",
        ),
        ("t5", ["a cat", "--kind", "cross", "--out", "x.html"], "a page shows every kind, layer and head; leave out"),
        ("lm", ["a cat", "--json", "--out", "x.html"], "a page shows every kind, layer and head; leave out --json"),
        ("lm", ["cat " * 600, "--out", "x.png"], "tokens, the model's context is"),
        ("lm", ["cat " * 600, "a cat", "--word", "cat"], "tokens, the model's context is"),
        ("classify", ["cat " * 600, "--view", "gradient"], "tokens, the model's context is"),
        ("t5", ["cat " * 600, "--target", "red", "--out", "x.png"], "tokens, the model's context is"),
    ],
)
def test_what_would_have_no_effect_is_refused(tiny, capsys, tmp_path, monkeypatch, run, words, wanted):
    monkeypatch.chdir(tmp_path)
    assert wanted in fails(capsys, "look", tiny.run(run), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--view", "gradient", "--layer", "1"], "--layer goes with --view heads or rollout"),
        (["--view", "agreement", "--head", "1"], "--head goes with --view heads"),
        (["--view", "rollout", "--token", "yes"], "--token goes with --view gradient or"),
        (["--target", "x"], "only a translator has a --target; leave it out"),
    ],
)
def test_what_would_have_no_effect_on_a_picture_is_refused(runs, capsys, monkeypatch, words, wanted):
    monkeypatch.chdir(runs)
    assert wanted in fails(capsys, "look", "vit", "image.png", *words)


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


def test_a_kernel_without_weights_is_told_with_what_it_has(tmp_path, capsys):
    path = save(tmp_path / "blind", model_of("bert", 1, task="classify", labels=["no", "yes"], kernel="linformer",
                                             max_len=64, position="learned"))  # fmt: skip
    for options in (["--view", "heads"], ["--view", "rollout"], ["--out", tmp_path / "heads.png"]):
        told = fails(capsys, "look", path, "a cat", *options)
        assert "kernel 'linformer' has no weights to show; use --view lens or ablation, or a page" in told
    assert said(capsys, "look", path, "a cat", "--view", "lens")
    call("look", path, "a cat", "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000


def test_the_page_is_served_by_the_model_that_is_there(tmp_path, monkeypatch):
    path = save(tmp_path / "gpt", model_of("gpt", 1, max_len=64), bos=1, eos=2)
    count, stores = [], []
    monkeypatch.setattr(model_store, "load", lambda *words: count.append(words))

    def serve(models, settings, *, loaded, opening, **how):
        stores.append(model_store.ModelStore(models, settings, loaded))
        assert opening == ("a cat",)

    monkeypatch.setattr(run, "serve", serve)
    call("look", path, "a cat")
    (served,) = stores[0]
    served.load()
    assert count == [] and served.task.tokenizer.decode(served.task.prompt_ids("a cat")) == "a cat"
    assert served.engine is not None and served.engine.model is served.task.model
