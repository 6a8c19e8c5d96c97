"""Captions from table to words: train, resume, load, caption, score, draw; and what the recipe says that it reaches."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.generated.scenes import COLOURS, SHAPES, scenes
from regard.eval.scores import chosen_data, evaluate
from regard.hub import load_model
from regard.inside.views.captions import draw_words, gains, word_maps, words_of
from regard.recipes import Recipe, fit, recipe
from regard.tasks import ImageCaptioner, load
from regard.tasks.metrics import caption_scores
from tests.cli.calling import call, fails, rows, said

SMALL = {
    "model.dim": 16, "model.widths": (6, 8),
    "train.steps": 6, "train.batch_tokens": 512, "train.eval_every": 3, "train.save_every": 3, "train.warmup": 2,
}  # fmt: skip
BLOCKS = {"model.heads": 2, "model.ffn_dim": 24, "model.depth": 1}
DECODERS = {
    "recurrent": {"model.decoder": "recurrent"},
    "transformer": {"model.decoder": "transformer"} | BLOCKS,
}
PAINT = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 50, 210)}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Pictures of one colour, 12 × 16, with two captions each."""
    where, rng = tmp_path_factory.mktemp("captions"), np.random.default_rng(1)
    lines = ["image,caption"]
    for number in range(30):
        name = list(PAINT)[number % 3]
        noise = rng.integers(-30, 30, (12, 16, 3))
        Image.fromarray((np.array(PAINT[name]) + noise).clip(0, 255).astype(np.uint8)).save(where / f"{number}.png")
        lines += [f'{number}.png,"{name}, only {name}"', f"{number}.png,all of it is {name}"]
    (where / "captions.csv").write_text("\n".join(lines) + "\n")
    return where / "captions.csv"


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory):
    """A trained run for each decoder."""
    out = tmp_path_factory.mktemp("runs")
    for decoder, fields in DECODERS.items():
        data = {"data.images": str(table), "model.dropout": 0.0}
        train = {"train.steps": 100, "train.lr": 1e-2, "train.eval_every": 50, "train.save_every": 50}
        fit(recipe("captioner", SMALL | fields | data | train), out / decoder, quiet=True)
    return out


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_run_is_loaded_and_says_what_it_sees(runs, table, decoder):
    loaded = load(runs / decoder)
    assert isinstance(loaded, ImageCaptioner) and loaded.model.config.image == (12, 16)
    files = [table.parent / f"{number}.png" for number in range(3)]
    found = loaded.caption(files, beams=3, n_best=2)
    for name, captions in zip(PAINT, found, strict=True):
        assert captions[0].text in (f"{name}, only {name}", f"all of it is {name}")
        assert len(captions) == 2 and captions[0].score >= captions[1].score
    assert [one[0].text for one in loaded.caption([Image.open(files[2])], beams=1)] in (
        ["blue, only blue"], ["all of it is blue"],
    )  # fmt: skip
    assert loaded.embed(files).shape == (3, 16)
    assert loaded.caption(files[2], beams=1) == loaded.caption([files[2]], beams=1)[0], "one image, one result"
    assert loaded.caption(files[2], temperature=0.9, seed=3) == loaded.caption([files[2]], temperature=0.9, seed=3)[0]
    with pytest.raises(ValueError, match="sampling returns one caption"):
        from regard.decode import Sampling

        loaded.caption(files, sampling=Sampling(), n_best=2)
    scored = evaluate(runs / decoder, {})
    scores = scored.scores
    assert scores["images"] == 3 and scores["exact_match"] == 100 and scores["bleu_4"] == 100
    assert "BLEU-4 100.00   exact match 100.0 %" in scored.render() and "gain" not in scores
    again = table.with_name("again.csv")
    again.write_text(table.read_text())
    assert evaluate(runs / decoder, {"data.images": str(again)}, limit=20).scores["images"] == 20


def test_other_data_is_read_as_the_run_reads(tmp_path):
    plan = recipe("captioner", {"data.lowercase": False, "data.max_len": 30})
    own = plan.with_data(images="own.csv", valid="valid.csv").data
    other = chosen_data(own, None, {"data.images": "other.csv"})
    assert (other.images, other.valid, other.lowercase, other.max_len) == ("other.csv", None, False, 30)
    assert chosen_data(own, None, {"data.images": "./own.csv"}).valid == "valid.csv"


@pytest.mark.parametrize("decoder", DECODERS)
def test_where_it_looked_for_each_word(runs, table, decoder, tmp_path):
    loaded = load(runs / decoder)
    pixels = loaded.pixels([table.parent / f"{number}.png" for number in range(3)])
    captions = [loaded.tokenizer.encode(text) for text in ("red, only red", "all", "blue, only blue")]
    found = word_maps(loaded, pixels, captions)
    assert [words for words, _ in found] == [["red", ",", "only", "red"], ["all"], ["blue", ",", "only", "blue"]]
    for words, maps in found:
        assert maps.shape == (len(words), 3, 4)
        np.testing.assert_allclose(maps.sum((1, 2)), 1, atol=1e-5)
    alone = word_maps(loaded, pixels[2:], captions[2:])[0][1]
    np.testing.assert_allclose(alone, found[2][1], atol=1e-6)
    draw_words(loaded, table.parent / "0.png", tmp_path / "words.png")
    drawn = np.asarray(Image.open(tmp_path / "words.png").convert("RGB"))
    assert drawn.shape[1] > drawn.shape[0] > 100 and len(np.unique(drawn.reshape(-1, 3), axis=0)) > 50


def test_at_the_command_line(capsys, runs, table, tmp_path):
    red, blue, run = table.parent / "0.png", table.parent / "2.png", runs / "recurrent"
    assert "red" in said(capsys, "caption", run, red)[0]
    lines = said(capsys, "caption", run, red, blue, "--beam", 1)
    assert len(lines) == 2 and "blue" in lines[1] and lines[1].endswith(f"\t{blue}")
    assert len(said(capsys, "caption", run, red, "--n-best", 2)) == 2
    found = rows(capsys, "caption", run, red, "--temperature", 0.5, "--look", tmp_path / "w.png")[0]
    assert found["image"] == str(red) and "red" in found["captions"][0]["text"]
    assert (tmp_path / "w.png").stat().st_size > 1000
    assert rows(capsys, "eval", run, "--beam", 1, "--out", tmp_path / "said.txt")[0]["exact_match"] == 100
    assert len((tmp_path / "said.txt").read_text().splitlines()) == 3
    assert "BLEU-4" in said(capsys, "eval", run)[0]
    (tmp_path / "text.png").write_text("text")
    assert "text.png is no image" in fails(capsys, "caption", run, tmp_path / "text.png")
    assert "no such image: nowhere.png" in fails(capsys, "caption", run, "nowhere.png")
    assert "a figure ends in .png" in fails(capsys, "caption", run, red, "--look", "words.txt")
    assert "it does not translate; choose another model" in fails(capsys, "translate", run, "text")


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(table, tmp_path, decoder):
    plan = SMALL | DECODERS[decoder] | {"data.images": str(table), "train.schedule": "constant"}
    fit(recipe("captioner", plan), tmp_path / "whole", quiet=True)
    fit(recipe("captioner", plan | {"train.steps": 3}), tmp_path / "parts", quiet=True)
    fit(recipe("captioner", plan), tmp_path / "parts", resume=True, quiet=True)
    one, other = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_model_follows_from_the_pictures(table, tmp_path):
    plan = recipe("captioner", {"data.images": str(table)})
    assert (plan.model.image, plan.model.channels, plan.model.grid) == ((12, 16), 3, (2, 2))
    assert plan.model.dropout > 0 and recipe("captioner").model.dropout == 0
    assert recipe("captioner", {"data.images": str(table), "data.size": 224}).model.grid == (7, 7)
    plan = recipe("captioner", {"model.decoder": "transformer", "data.most": 2, "data.size": 32})
    assert plan.model.grid == (4, 4) and plan.data.embedded
    plan.save(tmp_path / "recipe.toml")
    assert Recipe.load(tmp_path / "recipe.toml") == plan


def test_captions_that_are_too_long_are_left_out(table, tmp_path, capsys):
    plan = SMALL | {"data.images": str(table), "data.max_len": 5}
    fit(recipe("captioner", plan), tmp_path / "out")
    assert "left out 27 captions that are longer than max_len=5 tokens" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no caption is shorter than max_len=4 tokens; raise --data.max-len"):
        fit(recipe("captioner", plan | {"data.max_len": 4}), tmp_path / "none", quiet=True)


def test_scenes_are_drawn_learned_and_scored(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("regard.data.sets.captioned_images.HELD_OUT", 4)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items() if name != "model.widths"]
    call("train", "captioner", "--out", tmp_path, "--model.widths", "6,8", "--data.count", 24, "--data.size", 16,
         "--data.most", 1,
         "--data.max-len", 12, "--model.max-len", 12, *words)  # fmt: skip
    shown = capsys.readouterr()
    assert "attention on what is named" in shown.out and "regard caption" in shown.out
    assert (tmp_path / "words.png").stat().st_size > 1000 and "words.png" in shown.err


def test_a_gain_is_the_share_of_attention_by_the_share_of_the_picture():
    scene = next(one for one in scenes("train", 40) if len(one.objects) == 2)
    words = scene.caption.replace(",", " ,").split()
    even = np.full((len(words), 8, 8), 1 / 64)
    assert gains(words, even, scene, 8) == pytest.approx([1] * 4)
    on = np.zeros((len(words), 64, 64))  # every word on the mask of its own thing, all others on the corner
    on[:, 0, 0] = 1
    order = [i for known in (COLOURS, SHAPES) for i, word in enumerate(words) if word in known]
    for i, mask in zip(order, [*scene.masks, *scene.masks], strict=True):
        on[i] = mask / mask.sum()
    wanted = [1 / mask.mean() for mask in scene.masks]
    assert gains(words, on, scene, 1) == pytest.approx(wanted * 2)
    assert gains(["a", "red"], on[[0, order[1]]], scene, 1) == [pytest.approx(0, abs=0.2)]  # on the other thing


def test_pieces_are_joined_to_words():
    assert words_of(["a", "·sma", "ll", "·star", ",", "·an", "d"]) == (
        ["a", "small", "star", ",", "and"], [[0], [1, 2], [3], [4], [5, 6]],
    )  # fmt: skip
    assert words_of([]) == ([], [])


def test_scores_know_several_captions():
    found = caption_scores(["a b c d e", "A cat sat on it"], [("a b c d e", "x"), ("a dog", "z", "a cat sat on it")])
    assert found["exact_match"] == 50 and found["bleu_4"] < 100 and "nrefs:var" in found["bleu_signature"]
    folded = caption_scores(["a b c d e", "A cat sat on it"], [("a b c d e",), ("a cat sat on it",)], lowercase=True)
    assert folded["exact_match"] == folded["bleu_4"] == 100


def test_fields_of_the_other_decoder_are_refused(capsys, tmp_path):
    words = ["train", "captioner", "--out", tmp_path / "none"]
    blocks, cell = ["--model.kernel", "window"], ["--model.decoder", "transformer", "--model.cell", "lstm"]
    assert "--model.kernel has no effect with --model.decoder recurrent; leave it out" in fails(capsys, *words, *blocks)
    assert "--model.cell has no effect with --model.decoder transformer" in fails(capsys, *words, *cell)
    assert recipe("captioner", {"model.cell": "lstm", "model.depth": 3}).model.cell == "lstm"  # as it is anyway


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("decoder", "gain"), [("recurrent", 12), ("transformer", 7)])
def test_scenes_are_captioned(tmp_path, decoder, gain):
    """The docstring's figures, with a little room for another machine."""
    fit(recipe("captioner", {"model.decoder": decoder}), tmp_path, quiet=True)
    scores = evaluate(tmp_path, {}).scores
    assert scores["bleu_4"] >= 95 and scores["gain"] >= gain and scores["images"] == 1000, scores
