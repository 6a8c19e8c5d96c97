"""Every score stands beside the simplest honest predictor; the doctor speaks where that is as good."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from regard.data.sets.text_overview import key_of
from regard.doctor.outcome import judge
from regard.eval import report as reports
from regard.eval.baselines import keep
from regard.eval.report import report, score_within
from regard.eval.scores import evaluate
from regard.inside.draw.confusion import draw_confusion
from regard.runs.recipe import Recipe
from regard.tasks import EvalSet, Scored, Task
from regard.tasks.baselines import (
    best_constant,
    constant_caption,
    first_name,
    labels_by_pixels,
    labels_by_words,
    mean_boxes,
    shrunken,
    tags_by_word,
)
from regard.tasks.metrics import label_scores, label_table, tag_table, words_f1
from regard.train.loop import Fitted
from tests.cli.calling import fails, rows, said

NAMES = {
    "classify": {"most frequent label", "naive Bayes on words"}, "tag": {"most frequent tag of each word"},
    "embed": {"words in common"}, "instruct": {"most frequent output"}, "bert": {"most frequent token"},
    "lm": {"xz", "bz2"}, "t5": {"the source itself", "most frequent target"},
}  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, "answer"])
def test_every_score_has_a_baseline(tiny, name):
    scored = evaluate(tiny.run(name), {})
    metric = scored.judged[0]
    if name == "embed":  # of these four pairs all have as many words in common
        assert scored.baselines == {}
        return
    assert NAMES.get(name, scored.baselines.keys()) == scored.baselines.keys() != set()
    assert all(metric in row for row in scored.baselines.values())
    shown = scored.render()
    assert all(name in shown for name in scored.baselines)
    told = json.loads(json.dumps(scored.as_json()))
    assert told["baselines"] == scored.baselines and told[metric] == scored.scores[metric]


def test_baselines_of_texts_are_right(tiny):
    scored = evaluate(tiny.run("classify"), {})  # four colours, each named in its text
    assert 0 <= scored.baselines["naive Bayes on words"]["accuracy"] <= 100
    assert scored.baselines["most frequent label"]["accuracy"] == best_constant(scored.expected) < 60
    tags = evaluate(tiny.run("tag"), {})
    assert tags.baselines["most frequent tag of each word"]["f1"] == 100
    assert {row["label"] for row in tags.classes} == {"ANIMAL", "PLACE"}
    answers = evaluate(tiny.run("answer"), {})
    assert any("first name" in name for name in answers.baselines) and "f1" in answers.scores


def test_simple_predictors():
    assert labels_by_words(["good film", "bad film"], ["+", "-"], ["so good", "very bad"]) == ["+", "-"]
    known = ([["New", "York", "is"], ["is", "New"]], [["B-P", "I-P", "O"], ["O", "B-P"]])
    assert tags_by_word(*known, [["is", "York", "odd"]]) == [["O", "I-P", "O"]]
    assert first_name("Who was born in Lima?", "In Lima, Ana Ruiz was born in 1990.") in ("In Lima", "Ana Ruiz")
    assert first_name("When was Ana born?", "Ana was born in 1990.") == "1990"
    assert first_name("What?", "nothing here") == ""
    assert constant_caption([["a red dog"], ["a red cat"], ["two birds fly"]]).startswith("a red")
    shares = mean_boxes([np.array([0, 0]), np.array([1])], [np.array([[0, 0, 2, 2], [2, 2, 4, 4]]), np.ones((1, 4))])
    assert shares[0][0] == 0.5 and shares[0][1].tolist() == [1, 1, 3, 3]
    pixels = np.zeros((6, 40, 33, 3), np.uint8)
    pixels[::2, :20] = 200
    assert shrunken(pixels).shape == (6, 20 * 16 * 3)
    assert labels_by_pixels(pixels, np.array([0, 1] * 3), pixels).tolist() == [0, 1] * 3


def test_tables_are_those_of_the_fields_packages():
    expected, predicted = list("aabbcc"), list("abbbca")
    table = label_table(predicted, expected)
    assert [row["count"] for row in table["classes"]] == [2, 2, 2]
    assert table["classes"][1] == {"label": "b", "precision": 66.67, "recall": 100, "f1": 80, "count": 2}
    mean = sum(row["f1"] for row in table["classes"]) / 3
    assert label_scores(predicted, expected)["macro_f1"] == pytest.approx(mean, abs=0.01)
    assert table["confusion"].counts == ((1, 1, 0), (0, 2, 0), (1, 0, 1))
    assert {(x["label"], x["predicted"]) for x in table["confusion"].largest()} == {("a", "b"), ("c", "a")}
    rows = tag_table([["B-X", "I-X", "O", "B-Y"]], [["B-X", "I-X", "O", "B-Z"]])
    assert [(row["label"], row["f1"], row["count"]) for row in rows] == [("X", 100, 1), ("Y", 0, 0), ("Z", 0, 1)]


def test_words_of_answers_are_compared_as_squad_does():
    metrics = pytest.importorskip("transformers.data.metrics.squad_metrics")
    texts = ["the Eiffel Tower", "Eiffel tower!", "", "a tower in Paris", "42 km", "the", "no answer", "Paris Paris"]
    for predicted in texts:
        for expected in texts:
            assert words_f1(predicted, expected) == pytest.approx(metrics.compute_f1(expected, predicted))


def test_the_doctor_speaks_where_a_baseline_is_as_good(tmp_path, capsys, tiny):
    scores, usual = {"accuracy": 50.0, "examples": 4}, {"most frequent label": {"accuracy": 50.0}}
    finding = keep(Scored(scores=scores, outputs=[], baselines=usual), tmp_path)
    assert finding is not None and "accuracy 50 against 50 of the baseline “most frequent label”" in str(finding)
    assert keep(Scored(scores=scores | {"accuracy": 51.0}, outputs=[], baselines=usual), tmp_path) is None
    bits = {"bits_per_byte": 2.0}
    worse = Scored(scores=bits, outputs=[], baselines={"xz": {"bits_per_byte": 1.9}}, lower=True)
    assert "xz" in str(keep(worse, tmp_path)) and judge(tmp_path) == keep(worse, tmp_path)
    assert judge(tmp_path / "none") is None
    run = tmp_path / "run"
    shutil.copytree(tiny.run("classify"), run)
    report(run, Fitted(6, 1.0, 2.5), as_json=False)
    shown = capsys.readouterr().out
    assert "doctor: no better than a baseline" in shown and "6 steps are few" in shown
    assert (run / "confusion.png").stat().st_size > 1000
    assert any("no better than a baseline" in line for line in said(capsys, "doctor", run))
    assert "--train.steps 500" in judge(run).cure
    (run / "recipe.toml").write_text((run / "recipe.toml").read_text().replace('minutes = "none"', "minutes = 0.5"))
    assert "--train.minutes 5, or start" in judge(run).cure, "the clock decides, not a number of steps"


def test_scoring_after_training_is_capped(tiny, capsys, tmp_path, monkeypatch):
    clock, asked = [0.0], []

    class Slow(Task):
        trial = 10

        def evaluate(self, test, **options):
            count = min(test.limit or 1000, 1000)
            clock[0] += 5 + 0.1 * count
            asked.append(test.limit)
            return Scored(scores={"accuracy": 1.0, "examples": count}, outputs=[], total=1000)

    class Starting(Task):
        def evaluate(self, test, **options):
            clock[0] += 6 if test.limit else 0.1
            return Scored(scores={"examples": min(test.limit or 40, 40)}, outputs=[], total=40)

    monkeypatch.setattr(reports.time, "monotonic", lambda: clock[0])
    whole = EvalSet(data=None, own=None)
    test, scored = score_within(Slow(), whole, 60.0)
    assert scored.scores["examples"] == test.limit == scored.limit == 160 and clock[0] < 60 + 5
    assert score_within(Slow(), whole, 600.0)[1].scores["examples"] == 1000
    assert score_within(Starting(), whole, 10.0)[1].scores["examples"] == 40
    assert replace(scored, total=1000).as_json()["held_out"] == 1000
    assert asked[:3] == [10, 40, 160] and asked[-1] is None
    monkeypatch.undo()
    words = ("train", "classify", "--train.steps", 2, "--data.train", tiny.files["classify"]["data.train"])
    words += ("--model.dim", 16, "--model.depth", 1, "--model.heads", 2, "--quiet", "--out", tmp_path / "run")
    shown = said(capsys, *words, "--no-score")
    assert not (tmp_path / "run" / "scores.json").exists() and not any("held-out" in line for line in shown)
    told = rows(capsys, "eval", tmp_path / "run", "--confusion", tmp_path / "c.png")
    assert (tmp_path / "c.png").exists() and told
    assert "nothing to confuse" in fails(capsys, "eval", tiny.run("lm"), "--confusion", tmp_path / "d.png")
    assert "a figure ends in" in fails(capsys, "eval", tiny.run("classify"), "--confusion", tmp_path / "d.txt")


@pytest.mark.parametrize("size", [2, 12, 45, 130])
def test_confusions_are_drawn_for_any_number_of_labels(size, tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 3, (size, size)) + 40 * np.eye(size, dtype=int)
    draw_confusion([f"label {i}" for i in range(size)], counts.tolist(), tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        width, height = image.size
    assert width < 2400 and height < 2400


def test_long_tables_show_what_is_worst():
    classes = [{"label": f"class {i}", "precision": 1.0, "recall": 1.0, "f1": float(i), "count": 3} for i in range(99)]
    scored = Scored(scores={"accuracy": 1.0, "examples": 9}, outputs=[], classes=classes)
    assert "class 0 " in scored.render() and "class 50" not in scored.render() and "of 99 classes" in scored.render()
    assert len(scored.as_json()["classes"]) == 99


def test_a_baseline_that_cannot_be_made_leaves_the_scores_alone(tiny, tmp_path):
    run = tmp_path / "moved"
    shutil.copytree(tiny.run("classify"), run)
    other = tmp_path / "labels.tsv"
    other.write_text("The red cat.\tred\nThe blue cat.\tblue\n")
    stored = run / "recipe.toml"
    stored.write_text(stored.read_text().replace("labels.tsv", "gone.tsv"))
    scored = evaluate(run, {"data.train": str(other), "data.test": str(other)})
    assert scored.scores["examples"] == 2 and scored.baselines == {}


def test_few_examples_are_shown_with_their_interval():
    few = Scored(scores={"accuracy": 83.33, "macro_f1": 80.0, "examples": 6}, outputs=[], more="--data.test FILE")
    assert few.interval == (43.6, 97.0), "Wilson's, as statsmodels computes it"
    line = "95 % interval of the accuracy from 6 examples: 43.6 to 97 %; for more examples: --data.test FILE"
    assert few.render().splitlines()[1] == line and few.as_json()["interval"] == (43.6, 97.0)
    many = replace(few, scores=few.scores | {"examples": 1000})
    assert "interval" not in many.render() and many.as_json()["interval"] == (80.9, 85.5)
    assert Scored(scores={"accuracy": 100.0, "examples": 4}, outputs=[]).interval == (51.0, 100.0)
    assert Scored(scores={"f1": 50.0, "examples": 4}, outputs=[]).interval is None, "no share of right examples"


@pytest.mark.parametrize("task", ["classify", "tag", "embed"])
def test_examples_of_a_test_that_were_trained_on_are_counted(tiny, task):
    data = Recipe.load(tiny.run(task) / "recipe.toml").data
    learned, held = ([key_of(task, example) for example in part] for part in data.split())
    count = sum(key in set(learned) for key in learned + held)
    scored = evaluate(tiny.run(task), {"data.test": str(data.train)})
    assert scored.learned == scored.as_json()["in_training"] == count >= len(learned)
    assert scored.render().endswith(f"{count} of {len(learned + held)} examples in training too: the score is too good")


def test_labels_that_were_never_trained_on_are_named(tiny, tmp_path):
    (tmp_path / "test.tsv").write_text("The red cat.\tred\nA grey cat.\tgrey\nNo.\tgrey\n")
    scored = evaluate(tiny.run("classify"), {"data.test": str(tmp_path / "test.tsv")})
    assert scored.unseen == {"grey": 2} and scored.as_json()["unseen_labels"] == {"grey": 2}
    lines = scored.render().splitlines()
    assert lines[-1] == "never trained on, so always wrong: 'grey' (2)"
    assert any(line.startswith("95 % interval of the accuracy from 3 examples: ") for line in lines)
