"""Skip-gram from text to nearest words: what is alike in the text is alike in the vectors."""

import json
import random

import pytest
import torch

from regard.eval.scores import evaluate
from regard.inside.latent.words import compare_word, draw_word, render_word
from regard.recipes import fit, recipe
from regard.tasks import WordVectors, load
from regard.tokens.words import word_tokenizer
from tests.cli.calling import call, fails

PLACES = {"paris": "france", "rome": "italy", "berlin": "germany", "madrid": "spain"}
FOOD = ("bread", "cheese", "apples", "soup", "rice")
FIELDS = {
    "data.min_count": 2, "data.subsample": 0.0, "data.window": 3, "model.dim": 12, "train.epochs": 6,
    "train.batch_tokens": 512, "train.lr": 0.02, "train.eval_every": 100, "train.save_every": 100,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Cities and countries in one kind of sentence, food in another."""
    folder, rng = tmp_path_factory.mktemp("words"), random.Random(0)
    lines = []
    for _ in range(1500):
        city = rng.choice(list(PLACES))
        lines.append(f"The train to {city} leaves for the capital of {PLACES[city]}.")
        lines.append(f"We eat {rng.choice(FOOD)} with {rng.choice(FOOD)} and drink water!")
    (folder / "text.txt").write_text("\n".join(lines))
    pairs = ["paris\trome\t9", "bread\tcheese\t8.5", "paris\tbread\t1", "italy\tsoup\t0.5", "paris\tlondon\t9"]
    pairs.append("france\tgermany\t7")
    (folder / "pairs.tsv").write_text("\n".join(pairs))
    (folder / "questions.txt").write_text(": capitals\nParis France Rome Italy\nParis France London England\n")
    text = str(folder / "text.txt")
    fit(recipe("skipgram", FIELDS | {"data.text": [text]}), folder / "run", quiet=True)
    return folder / "run"


def test_words_of_one_kind_are_nearest(run):
    task = load(run, as_=WordVectors)
    assert {row.word for row in task.nearest("bread", count=4)} <= {*FOOD, "eat", "with", "drink"}
    cities = [row.word for row in task.nearest("Rome", count=3)]  # capital letters do not matter
    assert set(cities) <= {*PLACES, *PLACES.values()}
    values = [row.similarity for row in task.nearest("rome", count=5)]
    assert values == sorted(values, reverse=True) and values[0] <= 1


def test_a_sum_of_words_leaves_out_its_own(run):
    task = load(run, as_=WordVectors)
    (found,) = task.nearest(["france − paris + rome"], count=len(task.tokenizer))
    wanted = (
        task.units[[task.known_id(word) for word in ("france", "rome")]].sum(0) - task.units[task.known_id("paris")]
    )
    assert not {"france", "paris", "rome", "<unk>"} & {row.word for row in found[:-4]}
    best = task.units[task.known_id(found[0].word)]
    assert found[0].similarity == pytest.approx(float(best @ wanted / wanted.norm()), abs=1e-5)


def test_scores_stand_beside_baselines(run):
    files = {"data.similarities": str(run.parent / "pairs.tsv"), "data.analogies": str(run.parent / "questions.txt")}
    scored = evaluate(run, files)
    scores = scored.scores
    assert scores["spearman_pairs"] > 50 and scores["spearman_pairs_known"] == 5
    assert scores["analogies_questions_known"] == 1 and scores["analogies_questions"] in (0.0, 100.0)
    assert scores["context_accuracy"] > scored.baselines["the more frequent word"]["context_accuracy"]
    assert "spearman_pairs" in scored.baselines["letters in common"]
    assert "(5 of 6 known)" in scored.render() and "for comparison: the more frequent word" in scored.render()


def test_a_list_of_unknown_words_has_no_score(run, tmp_path):
    (tmp_path / "pairs.tsv").write_text("foo\tbar\t1\nbar\tbaz\t2\n")
    scored = evaluate(run, {"data.similarities": str(tmp_path / "pairs.tsv")})
    assert "spearman_pairs" not in scored.scores and "too few words known (0 of 2 known)" in scored.render()


def test_two_trainings_are_equal_and_another_seed_is_not(run, tmp_path):
    data = {"data.text": [str(run.parent / "text.txt")], "train.epochs": 0.2}
    tables = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        fit(recipe("skipgram", FIELDS | data | {"train.seed": seed}), tmp_path / name, quiet=True)
        tables.append(load(tmp_path / name).model.embedding.weight)
    assert torch.equal(tables[0], tables[1]) and not torch.equal(tables[0], tables[2])


def test_a_word_has_one_vector_in_every_sentence(run, tmp_path):
    found = compare_word(load(run), "rome", ["The train to Rome leaves.", "We eat bread with Rome."])
    (pair,) = found["pairs"]
    assert pair["static"] == pair["contextual"] == pytest.approx(1) and pair["layers"] == [pair["static"]]
    assert "by layer: the only one" in render_word(found)
    draw_word(found, tmp_path / "rome.png")


def test_texts_have_the_mean_of_their_known_words(run):
    task = load(run)
    first, second = task.embed(["bread soup", "soup, xyzzy bread"], normalize=False)
    torch.testing.assert_close(first, second)
    ids = [task.known_id(word) for word in ("bread", "soup")]
    torch.testing.assert_close(first, task.model.embedding.weight[ids].mean(0).detach())


def test_the_command_and_its_mistakes(run, capsys):
    call("nearest", run, "bread", "--count", 2, "--json")
    row = json.loads(capsys.readouterr().out)
    assert row["text"] == "bread" and [set(found) for found in row["neighbours"]] == [{"word", "similarity"}] * 2
    call("nearest", run, "france - paris + rome")
    assert len(capsys.readouterr().out.split("  ")) == 10
    line = fails(capsys, "nearest", run, "bred")
    assert "text 1: 'bred' is no word of the model's vocabulary; did you mean 'bread'?" in line
    assert "no word of the vocabulary" in fails(capsys, "embed", run, "xyzzy")
    assert "does not generate" in fails(capsys, "generate", run, "bread")


def test_a_vocabulary_of_words():
    tokenizer = word_tokenizer(["The cat's hat, the CAT’S; 42 hats -- the end"], vocab_size=5, min_count=1)
    assert tokenizer.pieces(range(len(tokenizer)))[:2] == ["<unk>", "the"] and len(tokenizer) == 5
    assert tokenizer.encode("... -- !") == [] and tokenizer.encode("xyzzy <unk>") == [0, 0]
    (framed,) = tokenizer.frame(["(The hat)"])
    assert framed.offsets == [(1, 4), (5, 8)]
    with pytest.raises(ValueError, match="no word occurs 9 times"):
        word_tokenizer(["a b"], vocab_size=5, min_count=9)
