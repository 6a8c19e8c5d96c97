"""`regard finetune` goes on from a model of any family, by the data that are named; its reading is kept."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from regard.data.sets.text_pairs import PairsConfig
from regard.hub import load_generation, load_model
from regard.hub.adapter import ADAPTER
from regard.recipes import Recipe, fit, recipe
from regard.runs.fit import fit_job, prepare
from regard.tasks import load
from regard.train.progress import Line
from tests.cli.calling import call, fails, options
from tests.plugins.test_plugins import DRIVER, environment
from tests.recipes.tiny import SIZES, shared

SHRINKING = ("swin", "swinv2", "mvit", "cnn-attention", "lr-net")
"""Recipes whose models are fine-tuned by that of ViT."""
FEW = {"train.steps": 2, "train.eval_every": 2, "train.save_every": 2, "train.batch_tokens": 256}
STILL = FEW | {"train.lr": 1e-12, "train.weight_decay": 0.0}
"""Settings with which training changes no weight, so that the start is seen."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    lines = [f"{source}\t{target}\n" for source, target in PairsConfig().generated("train", 120, 999)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def translators(tmp_path_factory, pairs):
    """A translator, a recurrent one, and the first as others would publish it."""
    folder, found = tmp_path_factory.mktemp("translators"), {}
    plain = {key: value for key, value in SIZES.items() if key != "data.vocab_size"}
    recurrent = {key: value for key, value in plain.items() if key not in ("model.heads", "model.ffn_dim")}
    for name, sizes in {"translate": plain, "seq2seq": recurrent | {"model": "seq2seq"}}.items():
        found[name] = folder / name
        fit(recipe("translate", sizes | {"data.epoch_size": 60, "data.vocab_size": 320}), found[name], quiet=True)
    found["published"] = folder / "published"
    sinusoids = plain | {"model.position": "sinusoidal", "data.epoch_size": 60, "data.vocab_size": 320}
    fit(recipe("translate", sinusoids), folder / "sinusoids", quiet=True)
    call("convert", folder / "sinusoids", found["published"])
    return found


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    rng = np.random.default_rng(0)
    rows = ["path,caption"]
    for number in range(12):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{('red', 'blue')[number % 2]} thing {number % 3}")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder / "captions.csv"


def tuned(base, out, changes, *words):
    call("finetune", base, "--out", out, "--quiet", *words, *options(changes))
    return load(out)


def same_weights(base, run):
    before, after = (load_model(path).state_dict() for path in (base, run))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name].float(), tensor.float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["translate", "seq2seq", "published"])
def test_a_translator_on_new_pairs(name, translators, pairs, tmp_path):
    base = translators[name]
    after = tuned(base, tmp_path / "run", STILL | {"data.pairs": pairs})
    before = load(base)
    same_weights(base, tmp_path / "run")
    texts = ["two cats", "Monday"]
    assert after.encode(texts, 99) == before.encode(texts, 99)
    assert [best[0].text for best in after.translate(texts)] == [best[0].text for best in before.translate(texts)]
    assert Recipe.load(tmp_path / "run" / "recipe.toml").data.base == str(base)
    moved = tuned(base, tmp_path / "moved", FEW | {"data.pairs": pairs, "train.lr": 1e-2})
    assert any(not torch.equal(a, b) for a, b in zip(moved.model.parameters(), before.model.parameters(), strict=True))


def test_a_translator_with_adapters(translators, pairs, tiny, tmp_path, capsys):
    base = translators["translate"]
    tuned(base, tmp_path / "run", FEW | {"data.pairs": pairs, "data.rank": 2}, "--tune", "lora")
    assert (tmp_path / "run" / ADAPTER).exists() and not (tmp_path / "run" / "model.safetensors").exists()
    capsys.readouterr()
    on = ("finetune", tiny.run("lstm"), "--out", tmp_path / "none", *options(FEW | tiny.files["lm"]))
    assert "no attention to add LoRA adapters to" in fails(capsys, *on, "--tune", "lora")
    on = ("finetune", base, "--out", tmp_path / "none", "--data.pairs", pairs, *options(FEW))
    line = fails(capsys, *on, "--tune", "head")
    assert "no head to tune by itself; use --data.tune all or lora" in line


def test_targets_begin_as_the_base_begins_them(translators, pairs, tmp_path):
    """BART's outputs begin with a token of its own behind that of the start."""
    base = translators["published"]
    stored = json.loads((base / "generation_config.json").read_text())
    (tmp_path / "base").mkdir()
    for path in base.iterdir():
        (tmp_path / "base" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "base" / "generation_config.json").write_text(json.dumps(stored | {"forced_bos_token_id": 7}))
    plan = recipe("translate", {"data.base": str(tmp_path / "base"), "data.pairs": str(pairs)} | FEW)
    job = prepare(plan.data, plan, tmp_path / "out", False, Line(quiet=True))
    _, _, batch = next(job.stream.batches())
    assert (batch.inputs["target"][:, 0] == stored["decoder_start_token_id"]).all()
    assert (batch.inputs["target"][:, 1] == 7).all() and (batch.targets[:, 0] == 7).all()
    fit(plan, tmp_path / "out", quiet=True)
    assert load_generation(tmp_path / "out")["forced_bos"] == 7


@pytest.mark.parametrize("name, words", [("lm", ()), ("lstm", ()), ("bert", ()), ("spans", ()), ("t5", ())])
def test_a_model_of_texts_on_more_of_them(name, words, tiny, tmp_path):
    base = tiny.run(name)
    data = tiny.files["t5" if name == "t5" else "lm"] | ({} if name != "bert" else {"data.max_len": 32})
    after = tuned(base, tmp_path / "run", STILL | data, *words)
    same_weights(base, tmp_path / "run")
    assert after.tokenizer.encode("The red cat") == load(base).tokenizer.encode("The red cat")
    plan = Recipe.load(tmp_path / "run" / "recipe.toml")
    assert plan.name == ("lm" if name == "lstm" else name) and plan.model == load(base).model.config


def test_a_prepared_job_starts_from_its_base_as_well(tiny, tmp_path):
    """As `regard bench` trains: from `prepare` to `fit_job`, without `fit`."""
    base, out = tiny.run("lm"), tmp_path / "run"
    plan = recipe("lm", tiny.files["lm"] | STILL | {"data.base": str(base)})
    fit_job(prepare(plan.data, plan, out, False, Line(quiet=True)), out, quiet=True)
    same_weights(base, out)


def test_a_classifier_goes_back_to_masked_words(tiny, tmp_path):
    """The encoder stays; the head for words is new."""
    base = tiny.run("classify")
    after = tuned(base, tmp_path / "run", STILL | tiny.files["lm"] | {"data.max_len": 32})
    before = load(base)
    assert after.name == "fill" and torch.equal(after.model.embedding.weight, before.model.embedding.weight)


@pytest.mark.parametrize("name", ["clip", "captioner"])
def test_images_with_texts(name, captions, tmp_path):
    sizes = {"data.images": str(captions), "train.steps": 2, "train.warmup": 1, "train.eval_every": 2}
    base = tmp_path / "base"
    fit(recipe(name, sizes | {"data.size": 16}), base, quiet=True)
    other = captions.parent / f"other-{name}.csv"  # a tokenizer trained on these would have other tokens
    other.write_text(captions.read_text().replace("red thing", "quick fox").replace("blue thing", "lazy dog"))
    after = tuned(base, tmp_path / "run", STILL | {"data.images": other})
    same_weights(base, tmp_path / "run")
    for file in ("preprocessor_config.json", "tokenizer.json"):
        assert (tmp_path / "run" / file).read_text() == (base / file).read_text()
    assert type(after) is type(load(base))


def test_without_labels_where_it_is_asked_for(tmp_path):
    """A masked autoencoder goes on restoring with --task restore, and becomes a classifier without."""
    few = {"train.steps": 2, "train.warmup": 1, "train.eval_every": 2, "train.batch_tokens": 256}
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (24, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=np.arange(24) % 2)
    data = {"data.images": tmp_path / "images.npz"}
    fit(recipe("mae", few | {"data.images": str(tmp_path / "images.npz")}), tmp_path / "mae", quiet=True)
    tuned(tmp_path / "mae", tmp_path / "more", STILL | data, "--task", "restore")
    same_weights(tmp_path / "mae", tmp_path / "more")
    labelled = tuned(tmp_path / "mae", tmp_path / "labels", FEW | data)
    assert labelled.name == "classify-images"
    again = tuned(tmp_path / "labels", tmp_path / "views", STILL | data, "--task", "contrast")
    assert again.name == "embed-images"


def test_a_plugin_recipe(tmp_path):
    """It has declared nothing: its data take a base, and its model's task is what it goes on from."""
    train = ["--plugin", "estimate", "train", "estimate", "--out", "base", "--quiet", *options(FEW)]
    on = ["--plugin", "estimate", "finetune", "base", "--task", "estimate", "--out", "run", "--quiet", *options(STILL)]
    words = json.dumps([[str(word) for word in line] for line in (train, on)])
    settings: dict = dict(capture_output=True, text=True, cwd=tmp_path, env=environment())
    done = subprocess.run([sys.executable, "-c", DRIVER], input=words, **settings)
    assert (tmp_path / "run" / "model.safetensors").exists(), done.stderr
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "run"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6, rtol=0) for name in before)


def test_one_line_for_what_does_not_fit(tiny, translators, captions, pairs, tmp_path, capsys):
    lm, bert, translator = tiny.run("lm"), tiny.run("bert"), translators["translate"]
    capsys.readouterr()
    line = fails(capsys, "finetune", lm)
    assert "is a gpt; give the data that it is to learn from: --data.text" in line and "--task instruct" in line
    line = fails(capsys, "finetune", bert)
    assert "--data.train with --task classify" in line and "--data.text" in line
    line = fails(capsys, "finetune", bert, "--task", "classify")
    assert "nothing to fine-tune on; give examples for classify: --data.train FILE" in line
    assert "classify needs an encoder such as bert" in fails(capsys, "finetune", lm, "--task", "classify")
    line = fails(capsys, "finetune", translator, "--data.text", "more.txt")
    assert "is a transformer, which does not learn from --data.text here; give --data.source or --data.pairs" in line
    assert "give --data.text" in fails(capsys, "finetune", lm, "--data.pairs", pairs)
    assert "which does not learn from --data.images" in fails(capsys, "finetune", lm, "--data.images", captions)
    line = fails(capsys, "finetune", bert, "--data.train", "x.tsv")
    assert "--data.train with --task classify" in line
    assert "--task tag learns from --data.train, not from --data.text" in fails(
        capsys, "finetune", bert, "--task", "tag", "--data.text", "x"
    )
    on = ("finetune", translator, "--data.pairs", "nowhere.tsv", "--out", tmp_path / "none")
    assert "no such" in fails(capsys, *on, *options(FEW))


def test_it_is_resumed_by_its_directory(translators, pairs, tmp_path):
    base, out = translators["translate"], tmp_path / "run"
    tuned(base, out, FEW | {"data.pairs": pairs})
    tuned(base, out, FEW | {"data.pairs": pairs, "train.steps": 4}, "--resume")
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 4


@pytest.fixture(scope="module")
def towers(tmp_path_factory, captions):
    """Small image models of several families, without and with labels."""
    folder, few = tmp_path_factory.mktemp("towers"), {"train.steps": 1, "train.warmup": 1, "train.batch_tokens": 512}
    rows = ["path,label", *(f"{captions.parent / f'{i}.png'},{i % 2}" for i in range(12))]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    for name in ("vit", "swin", "mvit", "mae", "simclr"):
        fit(recipe(name, few | {"data.images": str(folder / "labels.csv")}), folder / name, quiet=True)
    return folder


@pytest.fixture(scope="module")
def boxes(tmp_path_factory, captions):
    images = [{"id": i, "file_name": f"{i}.png", "width": 16, "height": 16} for i in range(12)]
    found = [{"id": i, "image_id": i, "category_id": i % 2, "bbox": [2, 3, 6, 7], "area": 42} for i in range(12)]
    names = [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    path = captions.parent / "boxes.json"
    path.write_text(json.dumps({"images": images, "annotations": found, "categories": names}))
    return path


def tower_weights(run, base, part):
    """The tower's weights inside of a run, and those of the model that it came from."""
    inner = getattr(load_model(run), part).inner.state_dict()
    stored = load_model(base)
    stored = (stored.pretrained() if hasattr(stored, "pretrained") else stored).state_dict()
    return inner, {name: stored[name] for name in inner}


@pytest.mark.parametrize("name", ["vit", "swin", "mvit", "mae", "simclr"])
def test_a_captioner_from_an_image_tower(name, towers, captions, tmp_path):
    base, out = towers / name, tmp_path / "run"
    after = tuned(base, out, STILL | {"data.images": captions}, "--task", "caption")
    assert after.name == "caption" and after.caption([str(captions.parent / "0.png")])
    for tensor, wanted in zip(*map(dict.values, tower_weights(out, base, "eye")), strict=True):
        torch.testing.assert_close(tensor, wanted, atol=1e-5, rtol=0)
    assert (out / "preprocessor_config.json").read_text() == (base / "preprocessor_config.json").read_text()


@pytest.mark.parametrize("name", ["vit", "swin", "mae"])
def test_a_detector_from_an_image_tower(name, towers, boxes, captions, tmp_path, capsys):
    base, out = towers / name, tmp_path / "run"
    after = tuned(base, out, STILL | {"data.coco": boxes, "data.size": 32, "data.colour": 0})
    assert after.name == "detect" and after.detect([str(captions.parent / "0.png")], threshold=0.0)
    for tensor, wanted in zip(*map(dict.values, tower_weights(out, base, "backbone")), strict=True):
        torch.testing.assert_close(tensor, wanted, atol=1e-5, rtol=0)
    assert Recipe.load(out / "recipe.toml").model.labels == ("cat", "dog")
    capsys.readouterr()
    line = fails(capsys, "finetune", base, "--data.coco", boxes, "--tune", "lora")
    assert "a detector is always fine-tuned as a whole" in line
    line = fails(capsys, "convert", out, tmp_path / "hf", "--to", "hf")
    assert "its features come from a " in line and "would have to come from a ResNet" in line and "{" not in line
    assert "an ONNX graph can" in line


def test_the_words_of_tasks_are_known_without_importing_a_recipe():
    from regard.cli import outline
    from regard.runs import starts

    own = [
        start for start in starts.all_starts() if start.recipe in outline.registered("recipe")
    ]  # others are plugins'
    assert set(outline.tasks()) == {start.word for start in own}
    assert all(start.bases or start.asked for start in own if start.recipe not in SHRINKING)
