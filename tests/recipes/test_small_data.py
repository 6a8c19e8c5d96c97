"""Few examples of one's own: batches, passes, validation and a linear probe that fit them."""

import inspect
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch

from regard.data.sets.labelled_texts import ExamplesConfig, stratified
from regard.eval.report import results
from regard.eval.scores import eval_set, evaluate, scored_weights
from regard.hub.checkpoint import load_model
from regard.recipes import Recipe, fit, recipe
from regard.runs import choice as choice_module
from regard.runs.choice import AGAIN, CHOICE, VALIDATED, Choice, load_choice
from regard.runs.linear_probe import clearly_better, fit_linear
from regard.runs.pace import paced, rows_of, share_held_out
from regard.tasks import load
from regard.train import loop as loop_module
from tests.cli.calling import fails, rows, said

WARMUPS = {"lm": 20, "pixel": 50, "detr": 200, "spans": 200, "t5": 200, "classify": 100, "translate": 100, "vit": 100}


@pytest.mark.parametrize("name", WARMUPS)
def test_a_warm_up_is_a_share_of_the_run_and_as_long_as_before_by_default(name):
    plan = recipe(name)
    assert plan.train.warmup_steps == WARMUPS[name] and 0 < plan.train.warmup < 1
    assert recipe(name, {"train.steps": 40}).train.warmup_steps <= 10
    assert replace(plan.train, warmup=100).warmup_steps == 100, "a stored run keeps its steps"


def table(path, rows):
    path.write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    return str(path)


def test_what_is_held_out_has_every_label_alike_and_leaves_one_of_each(tmp_path):
    rows = [(f"text {i}", "often" if i % 4 else "seldom") for i in range(80)] + [("the only one", "once")]
    train = table(tmp_path / "labels.tsv", rows)
    data = ExamplesConfig(train=train, held_share=0.2)
    learn, held = data.split()
    counts = [
        [example.label for example in part].count(label) for part in (learn, held) for label in ("often", "seldom")
    ]
    assert counts == [48, 16, 12, 4] and "once" in {example.label for example in learn}
    assert data.split() == (learn, held) and not {e.text for e in learn} & {e.text for e in held}
    assert ExamplesConfig(train=train).split()[1] == data.read(train)[1::10], "older runs keep what they held out"
    with pytest.raises(ValueError, match=r"held_share=1.5 is not in \[0, 1\)"):
        ExamplesConfig(train=train, held_share=1.5)


def test_equal_texts_are_held_out_together(tmp_path, capsys):
    rows = [(f"text {i % 57}", "often" if i % 3 else "seldom") for i in range(90)] + [("text 4", "once")]
    train = table(tmp_path / "labels.tsv", rows)
    for share in (0.2, 0.0):
        data = ExamplesConfig(train=train, held_share=share)
        learned, held = ({e.text for e in part} for part in data.split())
        assert len(learned) + len(held) == 57 and 5 <= len(held) <= 12 and "text 4" in learned
        before = replace(data, together=False).split()
        assert {e.text for e in before[0]} & {e.text for e in before[1]}, "as stored runs were split"
    single = table(tmp_path / "single.tsv", rows[:57])
    for share in (0.2, 0.0):
        data = ExamplesConfig(train=single, held_share=share)
        assert data.split() == replace(data, together=False).split(), "without copies nothing changes"
    assert not [note for note in said(capsys, "data", train) if "training too" in note]
    assert "in validation are in training too" in said(capsys, "data", train, "--data.together", "no")[-1]


def test_a_run_without_the_field_keeps_its_split(tmp_path):
    path = tmp_path / "recipe.toml"
    recipe("classify").save(path)
    assert Recipe.load(path).data.together
    path.write_text(path.read_text().replace("together = true\n", ""))
    assert not Recipe.load(path).data.together


def test_two_texts_again_and_again_are_still_split(tmp_path):
    train = table(tmp_path / "labels.tsv", [("yes", "a"), ("no", "b")] * 20)
    learned, held = ExamplesConfig(train=train, held_share=0.2).split()
    assert {e.label for e in learned} == {e.label for e in held} == {"a", "b"} and len(held) == 8


def test_a_kind_of_entity_is_never_held_out_whole(tmp_path):
    path = tmp_path / "tags.conll"
    path.write_text(
        "".join(f"Ann B-P\nin O\n{place} B-{kind}\n\n" for place, kind in [("Rome", "L"), ("May", "T")] * 9)
    )
    examples = ExamplesConfig(task="tag", train=str(path)).split()[0]
    held = stratified("tag", examples, 0.9)
    kinds = {
        entity.label for example, out in zip(examples, held, strict=True) if not out for entity in example.entities
    }
    assert any(held) and kinds == {"P", "L", "T"}


def test_pace_fits_the_number_of_examples(tmp_path):
    assert [round(share_held_out(n) * n) for n in (10, 100, 300, 1000, 100_000)] == [2, 20, 50, 100, 2000]
    assert [rows_of(n, 8) for n in (10, 300, 1000, 10**6)] == [8, 9, 16, 32]
    few, many = (paced(n, n // 10, 16.0, epochs=3.0, least=250) for n in (100, 10_000))
    assert few["eval_every"] == math.ceil(250 / 3) and few["patience"] == 0
    assert many["eval_every"] == math.ceil(3 * 10_000 / 16 / 10) and many["patience"] > 0


def test_the_recipe_fits_the_users_file_and_the_user_decides(tiny):
    own = tiny.files["classify"] | {"data.base": str(tiny.run("bert"))}
    plan = recipe("classify", own)
    assert plan.train.min_steps >= 200 and plan.train.warmup < 1 and plan.train.select == "metric"
    assert plan.data.held_share == 0.2 and plan.data.probe == 1000 and 64 <= plan.train.batch_tokens <= 300
    chosen = recipe("classify", own | {"train.batch_tokens": 512, "data.probe": 0, "data.held_share": 0.5})
    assert (chosen.train.batch_tokens, chosen.data.probe, chosen.data.held_share) == (512, 0, 0.5)
    assert recipe("classify").data.held_share == recipe("classify").data.probe == 0


def test_a_folder_with_a_part_for_validation_is_counted_as_one(tmp_path, capsys):
    """The same pace as with the two files by name, and no share that is held out beside."""
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(200)]
    train, valid = table(tmp_path / "train.tsv", rows), table(tmp_path / "dev.tsv", rows[:150])
    folder = recipe("classify", {"data.train": str(tmp_path)})
    named = recipe("classify", {"data.train": train, "data.valid": valid})
    assert folder.train == named.train and folder.data.held_share == named.data.held_share == 0
    alone = recipe("classify", {"data.train": train})
    assert alone.train != named.train and alone.data.held_share > 0
    table(tmp_path / "dev.tsv", [("text 1", "a"), ("text 2", "c")])
    line = fails(capsys, "train", "classify", "--data.train", tmp_path, "--out", tmp_path / "run")
    assert f"{valid}, line 2: label 'c' does not occur in {train}; known: a, b" in line


def test_a_linear_probe_is_scikit_learns_logistic_regression():
    linear = pytest.importorskip("sklearn.linear_model")
    vectors = torch.nn.functional.normalize(torch.randn(60, 7, generator=torch.Generator().manual_seed(0)), dim=-1)
    labels = (vectors[:, 0] > 0).long() + (vectors[:, 1] > 0.3).long()
    weight, bias = fit_linear(vectors, labels, 3)
    theirs = linear.LogisticRegression(max_iter=1000, tol=1e-8).fit(vectors.numpy(), labels.numpy())
    expected = torch.tensor(theirs.predict_proba(vectors.numpy()), dtype=torch.float32)
    torch.testing.assert_close((vectors @ weight.T + bias).softmax(-1), expected, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("rate, kept", [(1e-7, "the probe"), (1e-2, None)])
def test_the_better_one_of_probe_and_fine_tuned_model_is_kept_and_both_are_said(rate, kept, tiny, tmp_path, capsys):
    given = {"data.base": str(tiny.run("bert")), "train.lr": rate, "train.steps": 30, "train.eval_every": 30}
    fitted = fit(recipe("classify", tiny.files["classify"] | given), tmp_path / "run")
    words = capsys.readouterr().err
    assert "fine-tuned, " in words and "with a linear probe of the frozen encoder; kept: " in words
    loaded = load(tmp_path / "run")
    is_probe = not loaded.model.config.pooler
    assert is_probe == ("kept: the probe" in words) and (kept is None or is_probe)
    assert math.isfinite(fitted.valid_loss) and loaded.classify(["The red cat sees a cat in May."])
    if is_probe:
        with pytest.raises(ValueError, match=r"pooler=False would have to be True \(train with --data.probe 0\)"):
            loaded.export(tmp_path / "theirs")
        fit(recipe("classify", tiny.files["classify"] | given), tmp_path / "run", resume=True, quiet=True)
        assert not load(tmp_path / "run").model.config.pooler, "a finished run that is resumed keeps its choice"


def test_a_task_without_examples_asks_for_them(tiny, capsys):
    said = fails(capsys, "finetune", tiny.run("bert"), "--task", "classify")
    assert "nothing to fine-tune on; give examples for classify: --data.train FILE" in said


def few(tiny, task="classify", **fields):
    given = {"data.base": str(tiny.run("bert")), "train.lr": 1e-2, "train.steps": 12, "train.eval_every": 6}
    return recipe(task, tiny.files[task] | given | {"train.save_every": 4, "data.probe": 0} | fields)


def test_after_validation_all_examples_are_trained_on_and_scores_are_of_weights_without_the_held_out(
    tiny, tmp_path, capsys
):
    out, plan = tmp_path / "run", few(tiny)
    assert plan.data.refit == 1000 and few(tiny, **{"data.valid": plan.data.train}).data.refit == 0
    fitted = fit(plan, out)
    assert "once more with all 40 examples, the 8 for validation included" in capsys.readouterr().err
    one, final = (load_model(path).state_dict() for path in (out / VALIDATED, out))
    assert any(not torch.equal(one[name], final[name]) for name in one) and not (out / AGAIN).exists()
    learn, held = plan.data.split()
    valid = evaluate(out, {}).scores
    words = capsys.readouterr().err
    assert f"scored by {out / VALIDATED}, trained without them" in words and valid["examples"] == len(held)
    right = [
        given[0].label == example.label
        for given, example in zip(load(out / VALIDATED).classify([e.text for e in held]), held, strict=True)
    ]
    assert valid["accuracy"] == pytest.approx(100 * sum(right) / len(right), abs=0.1)
    seen = evaluate(out, {"data.test": plan.data.train}).scores
    assert seen["examples"] == len(learn) + len(held) and not capsys.readouterr().err
    before = {name: value.clone() for name, value in final.items()}
    again = fit(plan, out, resume=True, quiet=True)
    assert again.valid_loss == fitted.valid_loss
    assert all(torch.equal(before[name], value) for name, value in load_model(out).state_dict().items())


def test_what_a_run_has_learned_in_the_end_is_nowhere_called_held_out(tiny, tmp_path, capsys):
    out, plan = tmp_path / "run", few(tiny)
    fit(plan, out, quiet=True)
    scored, samples = results(out)
    test = eval_set(load(out), out, {})
    final, validated = (load(path).samples(test, out) for path in (out, out / VALIDATED))
    assert scored is not None and samples.rows == validated.rows != final.rows
    assert VALIDATED not in " ".join(samples.commands) and (out / "examples.json").exists()
    capsys.readouterr()
    for words in (["--data.held-share", 0.5], ["--data.columns", "text=2,label=1"]):
        line = fails(capsys, "eval", out, *words)
        assert f"with another {words[0]} than in training, examples would be scored that {out} was trained on" in line
    rows(capsys, "eval", out, "--data.held-share", 0.5, "--data.test", plan.data.train)
    rows(capsys, "eval", out, "--data.held-share", plan.data.held_share)
    own = said(capsys, "prune", out, "--heads", 1, "--out", tmp_path / "a", "--quiet")
    other = said(capsys, "prune", out, "--heads", 1, "--out", tmp_path / "b", "--data.valid", plan.data.train)
    assert own[-1].startswith("loss on examples that were trained on ") and other[-1].startswith("held-out loss ")
    assert scored_weights(tmp_path / "a", {}) == tmp_path / "a" / VALIDATED, "a copy is judged as the run is"
    kept, cut = (load(path / VALIDATED).model.state_dict() for path in (out, tmp_path / "a"))
    assert [name for name in kept if not torch.equal(kept[name], cut[name])], "its heads are removed, too"


def test_an_empty_folder_is_not_taken_for_weights(tiny, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny.run("lm"), run)
    (run / VALIDATED).mkdir()
    assert scored_weights(run, {}) == run
    shutil.copy(run / "config.json", run / VALIDATED)
    assert scored_weights(run, {}) == run, "data without files of the user have a held-out part of their own"


@pytest.mark.parametrize("task, end", [("classify", 4), ("classify", 17), ("tag", 22)])
def test_a_run_that_breaks_in_either_training_goes_on_as_if_unbroken(task, end, tiny, tmp_path, monkeypatch):
    plan, steps = few(tiny, task, **{"model.dropout": 0.1}), iter(range(100))
    fit(plan, tmp_path / "whole", quiet=True)

    def dies(batches):
        if inspect.isgenerator(batches) and next(steps) == end:  # type checks call `next` too
            raise RuntimeError("the power went out")
        return next(batches)

    monkeypatch.setattr(loop_module, "next", dies, raising=False)
    with pytest.raises(RuntimeError, match="power"):
        fit(plan, tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    assert (tmp_path / "broken" / VALIDATED).exists() == (end > 12)
    fit(plan, tmp_path / "broken", resume=True, quiet=True)
    for part in (".", VALIDATED):
        one, two = (load_model(tmp_path / name / part).state_dict() for name in ("whole", "broken"))
        assert all(torch.equal(one[name], two[name]) for name in one), part


def seen_again(monkeypatch):
    """The steps of every second training from here on."""
    steps, train = [], choice_module.train
    monkeypatch.setattr(
        choice_module, "train", lambda *given, **how: steps.append(given[4].steps) or train(*given, **how)
    )
    return steps


def test_after_early_stopping_the_second_training_ends_at_the_best_step(tiny, tmp_path, monkeypatch):
    steps = seen_again(monkeypatch)
    still = {"train.lr": 1e-30, "train.eval_every": 3, "train.patience": 2}  # no validation is better than the first
    fitted = fit(few(tiny, **still), tmp_path / "run", quiet=True)
    assert fitted.step == 9 and steps == [3]


def test_a_finished_run_with_averaged_weights_is_resumed_without_a_second_choice(tiny, tmp_path, monkeypatch):
    out, plan, steps = tmp_path / "run", few(tiny, **{"train.average": 2}), seen_again(monkeypatch)
    fit(plan, out, quiet=True)
    before = load_model(out).state_dict()
    fit(plan, out, resume=True, quiet=True)
    assert len(steps) == 1 and all(torch.equal(before[k], v) for k, v in load_model(out).state_dict().items())
    longer = replace(plan, train=replace(plan.train, steps=16))
    fit(longer, out, resume=True, quiet=True)
    assert steps[1:] == [16], "new weights are a reason for a new choice"


@pytest.mark.parametrize(
    "text, problem",
    [
        ('{"probe": tr', " is not valid JSON"),
        ("[]", " holds list, not an object"),
        ('{"probe": true}', ": has the fields probe, not probe, loss, finished"),
        ('{"probe": false, "loss": "low", "finished": true}', ": loss takes a number or none, got 'low'"),
        ('{"probe": false, "loss": true, "finished": true}', ": loss takes a number or none, got True"),
    ],
)
def test_a_damaged_choice_is_one_line_that_names_its_file(text, problem, tmp_path):
    (tmp_path / CHOICE).write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / CHOICE}{problem}")):
        load_choice(tmp_path)


def test_a_whole_number_is_a_loss(tmp_path):
    (tmp_path / CHOICE).write_text('{"probe": true, "loss": 0, "finished": true}')
    assert load_choice(tmp_path) == Choice(probe=True, loss=0.0, finished=True)


def test_a_budget_of_time_and_old_runs_are_trained_once(tiny, tmp_path):
    for name, fields in {"minutes": {"train.minutes": 0.005}, "old": {"data.refit": 0}}.items():
        fit(few(tiny, **fields), tmp_path / name, quiet=True)
        assert not (tmp_path / name / VALIDATED).exists(), name


def test_only_a_clear_difference_speaks_for_the_probe():
    assert not clearly_better(76.0, 82.0, 50) and clearly_better(76.0, 90.0, 50)
    assert not clearly_better(25.0, 45.0, 8) and clearly_better(25.0, 100.0, 8) and not clearly_better(100.0, 100.0, 8)


def test_adapters_are_trained_on_all_examples_in_the_end_too(tiny, tmp_path, capsys):
    out, plan = tmp_path / "run", few(tiny, **{"data.tune": "lora"})
    assert plan.data.refit == 1000
    fit(plan, out)
    assert "once more with all 40 examples" in capsys.readouterr().err
    one, final = (load_model(path).state_dict() for path in (out / VALIDATED, out))
    assert any(not torch.equal(one[name], final[name]) for name in one)
    assert evaluate(out, {}).scores["examples"] == len(plan.data.split()[1])
    assert f"scored by {out / VALIDATED}, trained without them" in capsys.readouterr().err
    fit(plan, out, resume=True, quiet=True)
    assert all(torch.equal(final[name], value) for name, value in load_model(out).state_dict().items())
