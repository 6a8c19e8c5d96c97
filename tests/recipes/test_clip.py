"""Pictures and texts from table to search: train, resume, load, compare, find, score, convert."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from regard.cli.verbs import spread
from regard.data.generated.scenes import scenes
from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets import captioned_images as captions
from regard.data.sets.augment import Augmentation
from regard.data.sets.captioned_images import CaptionedImages
from regard.data.sets.image_text_pairs import LABELS, PairedConfig, PairStream
from regard.eval.scores import evaluate
from regard.hub import export_model, load_model
from regard.inside.capture.weights import look
from regard.models import ViT, ViTConfig
from regard.recipes import Recipe, fit, recipe
from regard.recipes.clip import END
from regard.tasks import ImageTextMatcher, load
from regard.tasks.metrics import recall_scores
from tests.cli.calling import call, fails, rows, said
from tests.recipes.test_pictures import COLOURS

SMALL = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1, "model.text_dim": 12,
    "model.text_heads": 2, "model.stem": [], "model.text_ffn_dim": 20, "model.text_depth": 1, "model.embedding_dim": 8,
    "train.steps": 6, "train.batch_tokens": 444, "train.eval_every": 3, "train.save_every": 3, "train.warmup": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Noisy pictures of three colours, 12 × 12, and a table of what they show, some with two captions."""
    where, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(1)
    lines = ["path,caption"]
    for number in range(60):
        name = list(COLOURS)[number % 3]
        noise = rng.integers(-30, 30, (12, 12, 3))
        Image.fromarray((np.array(COLOURS[name]) + noise).clip(0, 255).astype(np.uint8)).save(where / f"{number}.png")
        lines += [f"{number}.png,something {name}"] + [f"{number}.png,it is all {name}"] * (number % 4 == 0)
    (where / "table.csv").write_text("\n".join(lines) + "\n")
    return where


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "colours"
    changes = SMALL | {"data.images": str(folder / "table.csv"), "train.steps": 80, "train.lr": 1e-2}
    fit(recipe("clip", changes), out, quiet=True)
    return out


def test_the_model_follows_from_the_pictures(folder):
    plan = recipe("clip", {"data.images": str(folder / "table.csv")})
    assert (plan.model.image, plan.model.channels, plan.model.patch, plan.model.stem) == (12, 3, 2, (24,))
    scenes = recipe("clip")
    assert (scenes.model.image, scenes.model.patch, scenes.model.stem) == (64, 8, (24, 48, 96))
    assert scenes.train.smoothing == 0 and scenes.data.embedded
    assert recipe("clip", {"model.stem": "", "model.patch": 4}).model.stem == ()


def test_scenes_are_named_fully_and_briefly(monkeypatch):
    monkeypatch.setattr(captions, "HELD_OUT", 5)
    data = PairedConfig(count=9, size=32)
    train, valid = data.split()
    first = next(one for one in scenes("train", 9, 32, 3) if len(one.objects) == 2)
    full, brief, *each = train.captions[scenes("train", 9, 32, 3).index(first)]
    assert each == [f"a {thing.colour} {thing.shape}" for thing in first.objects] and brief == " and ".join(each)
    assert full == first.caption
    assert all(len(texts) == 1 for texts in valid.captions)
    alone, labels = data.single_objects(7)
    assert labels == LABELS and len(set(labels)) == 40
    assert len(alone) == 7 and all(texts[0] in labels for texts in alone.captions)
    wanted = scenes("test", 7, 32, 1)[3]
    assert np.array_equal(alone.pixels[3], wanted.pixels) and wanted.objects[0].colour in alone.captions[3][0]


def test_a_batch_says_which_texts_are_right_for_which_pictures():
    red, all_red, blue, green = [1, 5, 4], [1, 6, 7, 5, 4], [1, 8, 4], [1, 9, 4]
    ids = [[red, all_red], [blue], [red], [green, blue]]
    nothing = CaptionedImages(np.zeros((4, 8, 8, 3), np.uint8), [("",)] * 4)
    stream = PairStream(nothing, ids, Preprocessing(), Augmentation(), (1, 4, 0), rows=4)
    batch = stream.collate(torch.zeros(4, 3, 8, 8), [all_red, blue, red, green], [0, 1, 2, 3])
    assert batch.inputs["ids"].tolist() == [[1, 6, 7, 5, 4], [1, 8, 4, 0, 0], [1, 5, 4, 0, 0], [1, 9, 4, 0, 0]]
    assert batch.inputs["lengths"].tolist() == [5, 3, 3, 3] and batch.tokens == 4
    assert batch.targets.int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    held = stream.once(nothing.take([0, 1]), [[red, green], [green]])
    assert next(held).targets.int().tolist() == [[1, 1, 1], [1, 1, 1], [0, 1, 1]]


def test_a_run_is_loaded_and_compares(run, folder):
    loaded = load(run)
    assert isinstance(loaded, ImageTextMatcher) and loaded.tokenizer.names["eos"] == END and loaded.tokenizer.eos == 3
    files, texts = [folder / f"{number}.png" for number in (0, 1, 2)], [f"something {name}" for name in COLOURS]
    found = loaded.classify(files, texts)
    assert [best[0].label for best in found] == texts
    for labels in found:
        assert sum(one.probability for one in labels) == pytest.approx(1, abs=1e-5)
    seen, read = loaded.embed(files), loaded.embed_texts(texts)
    assert seen.shape == read.shape == (3, 8) and loaded.embed([]).shape == loaded.embed_texts([]).shape == (0, 8)
    for vectors in (seen, read):
        assert vectors.norm(dim=1).tolist() == pytest.approx([1] * 3, abs=1e-5)
    mixed = loaded.vectors([texts[0], str(files[1]), texts[2]])
    torch.testing.assert_close(mixed, torch.stack([read[0], seen[1], read[2]]))
    long = loaded.embed_texts(["red " * 500])
    assert long.isfinite().all(), "what is too long is cut"
    with pytest.raises(ValueError, match="has no labels of its own"):
        loaded.classify(files)
    with pytest.raises(ValueError, match="labels must differ"):
        loaded.classify(files, ["red", "red"])
    assert torch.equal(loaded.embed_texts("red"), loaded.embed_texts(["red"])[0]), "one text, one vector"
    assert loaded.classify(files[0], ["red", "blue"]) == loaded.classify(files[:1], ["red", "blue"])[0]


def test_search_by_words_or_by_a_picture(run, folder, tmp_path):
    loaded = load(run)
    found = loaded.search("something blue", folder, count=20)
    assert {int(one.text.rpartition("/")[2].removesuffix(".png")) % 3 for one in found} == {2}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    like = loaded.search(folder / "4.png", folder, count=3)
    assert like[0].text.endswith("/4.png") and like[0].score == pytest.approx(1, abs=1e-5)
    texts = ["something red", "something green", "something blue"]
    assert loaded.search(folder / "1.png", texts, count=1)[0].text == texts[1]
    (tmp_path / "bad.png").write_text("text")
    with pytest.raises(ValueError, match="bad.png is no image"):
        loaded.search("red", tmp_path)
    skipped = []
    assert loaded.search("red", tmp_path, skipped=skipped) == [] and "bad.png is no image" in skipped[0]
    with pytest.raises(ValueError, match="holds no images"):
        (tmp_path / "empty").mkdir()
        loaded.search("red", tmp_path / "empty")


def test_scores(run, folder):
    scores = evaluate(run, {}).scores
    assert scores["examples"] == 6 and "zero_shot_accuracy" not in scores
    again = folder / "again.csv"
    again.write_text((folder / "table.csv").read_text())
    every = evaluate(run, {"data.images": str(again)})
    assert every.scores["examples"] == 60 and every.scores["text_recall_at_1"] >= 60 and len(every.outputs) == 60
    loaded, data = load(run), PairedConfig(images=str(folder / "table.csv"))
    pictures = data.read(data.images)
    wrong = type(pictures)(pictures.pixels[::-1].copy(), [("something pink",)] * 59 + [("something red",)])
    texts = ["something pink", "something red"]
    found = recall_scores(loaded.embed_arrays(wrong.pixels), loaded.embed_texts(texts), wrong.captions, texts)[0]
    assert found["image_recall_at_1"] <= 50


def test_scores_of_scenes(tmp_path, monkeypatch):
    monkeypatch.setattr(captions, "HELD_OUT", 20)
    fit(
        recipe("clip", SMALL | {"model.stem": [8], "data.count": 40, "data.size": 16, "train.steps": 2}),
        tmp_path,
        quiet=True,
    )
    scores = evaluate(tmp_path, {}, limit=30).scores
    assert scores.keys() == {"zero_shot_accuracy", "text_recall_at_1", "image_recall_at_1", "examples"}


# ---- the command line -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["R", "a.png", "--zero-shot", "cat", "dog"], ["R", "a.png", "--zero-shot", "cat", "--zero-shot", "dog"]),
        (["R", "--zero-shot", "cat", "dog", "b.JPG"], ["R", "--zero-shot", "cat", "--zero-shot", "dog", "b.JPG"]),
        (["R", "--zero-shot", "cat", "--json", "b"], ["R", "--zero-shot", "cat", "--json", "b"]),
        (["R", "a.png", "--zero-shot"], ["R", "a.png", "--zero-shot"]),
        (["R", "a.png", "--zero-shot", "--json"], ["R", "a.png", "--zero-shot", "--json"]),
    ],
)
def test_labels_are_all_words_behind_the_option(words, wanted):
    assert spread(words) == wanted


def test_at_the_command_line(capsys, run, folder, tmp_path):
    red, blue = folder / "0.png", folder / "2.png"
    names = ["something red", "something blue"]
    assert said(capsys, "classify", run, red, "--zero-shot", *names)[0].startswith("something red\t")
    found = rows(capsys, "classify", run, "--zero-shot", names[0], "--zero-shot", names[1], red, blue)
    assert [row["labels"][0]["label"] for row in found] == names
    assert [row["image"] for row in found] == [str(red), str(blue)]
    found = rows(capsys, "embed", run, "--search", "something blue", "--in", folder, "--count", 2)
    assert len(found) == 2 and all(int(one["image"].rpartition("/")[2][:-4]) % 3 == 2 for one in found)
    assert said(capsys, "embed", run, "--search", red, "--in", folder, "--count", 1)[0] == f"1.0000\t{red}"
    (tmp_path / "lines.txt").write_text("something blue\nsomething red\n")
    assert rows(capsys, "embed", run, "--search", red, "--in", tmp_path / "lines.txt")[0]["line"] == 2
    call("embed", run, red, "something red", "--out", tmp_path / "vectors.npy")
    assert np.load(tmp_path / "vectors.npy").shape == (2, 8)
    scores = rows(capsys, "eval", run)[0]
    assert scores["examples"] == 6
    assert "text recall at 1" in said(capsys, "eval", run)[0]
    (row,) = rows(capsys, "classify", run, red, "--quantize", "int8", "--zero-shot", *names)
    assert row["labels"][0]["label"] == "something red"


def test_mistakes(capsys, run, folder, tmp_path):
    red = folder / "0.png"
    assert "has no labels of its own; name some texts: --zero-shot" in fails(capsys, "classify", run, red)
    assert "leave out --second" in fails(capsys, "classify", run, red, "--second", "a", "--zero-shot", "b")
    assert "no such image: nowhere.png" in fails(capsys, "classify", run, "nowhere.png", "--zero-shot", "a", "b")
    assert "labels must differ" in fails(capsys, "classify", run, red, "--zero-shot", "a", "a")
    assert "a label of --zero-shot is empty" in fails(capsys, "classify", run, red, "--zero-shot", "a", " ")
    for words in (("a", "b", run, red), ("a", "b", run), ("a", red)):
        assert "RUN and images come before --zero-shot" in fails(capsys, "classify", "--zero-shot", *words)
    assert "something" in said(capsys, "classify", "--zero-shot", "something", "it", "--json", run, red)[0]
    search = ("embed", run, "--search", "a", "--in", folder)
    for words in ((red,), ("--input", folder / "table.csv"), ("--out", tmp_path / "vectors.npy")):
        assert "does not go with --search" in fails(capsys, *search, *words)
    assert "holds no images" in fails(capsys, "embed", run, "--search", "a", "--in", tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_text("text")
    line = fails(capsys, "embed", run, "--search", "a", "--in", tmp_path / "broken")
    assert "no image of" in line and "a.png is no image" in line
    assert "nowhere" in fails(capsys, "embed", run, "--search", "a", "--in", tmp_path / "nowhere")
    (tmp_path / "table.csv").write_text("path,caption\nmissing.png,something\n")
    given = ["--data.images", tmp_path / "table.csv", "--out", tmp_path / "out"]
    assert "line 2: no such image" in fails(capsys, "train", "clip", *given)


def test_any_model_that_sees_finds_pictures_like_a_picture(capsys, folder, tmp_path):
    export_model(ViT(ViTConfig(image=12, patch=4, dim=16, heads=2, depth=1, ffn_dim=24)), tmp_path / "vit")
    (row,) = rows(capsys, "embed", tmp_path / "vit", "--search", folder / "7.png", "--in", folder, "--count", 1)
    assert row["image"] == str(folder / "7.png") and row["score"] == pytest.approx(1, abs=1e-5)
    assert said(capsys, "embed", tmp_path / "vit", folder / "7.png", "--out", tmp_path / "vectors.npy") == []
    assert np.load(tmp_path / "vectors.npy").shape == (1, 16)
    (tmp_path / "lines.txt").write_text("a\n")
    given = ["embed", tmp_path / "vit", "--search", folder / "7.png", "--in"]
    assert "give --in a folder of images" in fails(capsys, *given, tmp_path / "lines.txt")
    assert "no such image: a red cat" in fails(capsys, *given[:3], "a red cat", "--in", folder)
    assert "it does not classify" in fails(capsys, "classify", tmp_path / "vit", "a.png", "--zero-shot", "a", "b")


def test_a_training_at_the_command_line_says_what_to_try(capsys, tmp_path, folder):
    words = [f"--{key}={value or ''}" for key, value in SMALL.items()]
    given = ["--data.images", folder / "table.csv", "--out", tmp_path / "run", "--quiet"]
    shown = said(capsys, "train", "clip", *given, *words)
    assert any(line.startswith("on held-out data: text recall at 1") for line in shown)
    assert any("--zero-shot" in line for line in shown) and any("--search" in line for line in shown)


# ---- files ------------------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(folder, tmp_path):
    plan = SMALL | {"data.images": str(folder / "table.csv"), "train.schedule": "constant"}
    fit(recipe("clip", plan), tmp_path / "whole", quiet=True)
    fit(recipe("clip", plan | {"train.steps": 3}), tmp_path / "parts", quiet=True)
    fit(recipe("clip", plan), tmp_path / "parts", resume=True, quiet=True)
    one, other = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert Recipe.load(tmp_path / "whole" / "recipe.toml").model.max_len == 64


def test_converted_it_is_read_by_others(run, folder, tmp_path):
    transformers = pytest.importorskip("transformers")
    call("convert", str(run), str(tmp_path / "theirs"))
    texts, image = ["something green", "it is all red", "blue"], Image.open(folder / "1.png")
    pixels = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "theirs")(image, return_tensors="pt")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")(texts, padding=True, return_tensors="pt")
    theirs = transformers.CLIPModel.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        told = theirs(pixel_values=pixels.pixel_values, input_ids=words.input_ids, attention_mask=words.attention_mask)
    wanted = dict(zip(texts, told.logits_per_image.softmax(-1)[0].tolist(), strict=True))
    for loaded in (load(run), load(tmp_path / "theirs")):
        found = {one.label: one.probability for one in loaded.classify([image], texts)[0]}
        assert found == pytest.approx(wanted, abs=1e-5)


def test_a_tokenizer_whose_end_others_would_not_find_is_not_converted(capsys, folder, tmp_path):
    from regard.tokens import Tokenizer

    Tokenizer.train(texts=["something red green blue"], kind="word", vocab_size=300).save(tmp_path / "tokenizer.json")
    changes = {"data.images": str(folder / "table.csv"), "data.tokenizer": str(tmp_path / "tokenizer.json")}
    fit(recipe("clip", SMALL | changes), tmp_path / "run", quiet=True)
    assert load(tmp_path / "run").tokenizer.eos == 2
    assert "use a tokenizer with another one" in fails(capsys, "convert", tmp_path / "run", tmp_path / "theirs")


def test_a_published_directory_is_loaded_with_its_words_and_pixels(tmp_path):
    """As CLIPProcessor and CLIPModel leave it: their probabilities are ours."""
    transformers = pytest.importorskip("transformers")
    from tests.parity.test_clip import PICTURES, TEXTS, random_model
    from tests.tokens.test_published import clip_files

    vocabulary = clip_files(tmp_path)
    marks = dict(vocab_size=len(vocabulary), eos_token_id=2, bos_token_id=0, pad_token_id=1)
    config = transformers.CLIPConfig(
        text_config=TEXTS | marks | dict(max_position_embeddings=31), vision_config=PICTURES | dict(num_channels=3)
    )
    theirs = random_model(transformers.CLIPModel, config)
    tokenizer = transformers.CLIPTokenizer.from_pretrained(tmp_path)
    sized = dict(size={"shortest_edge": 29}, crop_size={"height": 23, "width": 23})
    processor = transformers.CLIPImageProcessorPil(**sized)
    image, texts = Image.fromarray(np.random.default_rng(2).integers(0, 256, (37, 53, 3), np.uint8)), ["Cat", "a hat!"]
    with torch.no_grad():
        told = theirs(
            pixel_values=processor(image, return_tensors="pt").pixel_values,
            **tokenizer(texts, padding=True, return_tensors="pt"),
        )
    wanted = told.logits_per_image.softmax(-1)[0].tolist()
    theirs.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    beside = tmp_path / "beside"
    theirs.save_pretrained(beside)
    transformers.CLIPProcessor(image_processor=processor, tokenizer=tokenizer).save_pretrained(beside)
    for place in (tmp_path, beside):
        loaded = load(place)
        found = {one.label: one.probability for one in loaded.classify([image], texts)[0]}
        assert found == pytest.approx(dict(zip(texts, wanted, strict=True)), abs=1e-5)
        assert loaded.preprocessing.shortest == 29 and loaded.preprocessing.filter == "bicubic"


@torch.no_grad()
def test_both_towers_can_be_looked_into(run, folder):
    loaded = load(run)
    pixels, ids = torch.randn(1, 3, 12, 12), torch.tensor([[1, 40, 41, 3]])
    with look(loaded.model) as seen:
        loaded.model(pixels, ids, torch.tensor([4]))
    assert seen.attention["vision.encoder.blocks.0.attention"].shape == (1, 2, 37, 37)
    (text,) = seen.of("decoder")
    assert text.shape == (1, 2, 4, 4) and not text.triu(1).any()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_scenes_are_learned(tmp_path):
    """The docstring's figures, with a little room for another machine."""
    fit(recipe("clip"), tmp_path, quiet=True)
    scores = evaluate(tmp_path, {}).scores
    assert scores["examples"] >= 1000 and scores["zero_shot_accuracy"] >= 97.5, json.dumps(scores)
