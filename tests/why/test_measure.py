"""Comparisons with tiny budgets: pairing, resuming, equal CPU time, reports."""

import json
import random
from dataclasses import replace

import pytest
import torch

from regard.train.loop import Interrupted
from regard.why import COMPONENTS, find_component, measure, report
from regard.why import run as runs
from regard.why.component import Arm, Claim, Component, higher, lower
from regard.why.measure import Store, at_cpu, judge, judge_same
from regard.why.problems import LetterBefore, NextToken, SortedLetters
from regard.why.report import markdown, measured, render, verdict_table, write_report
from regard.why.statistics import Interval, verdict_of

TINY = Component(
    name="tiny",
    question="Why positions?",
    problem=LetterBefore(
        model=dict(dim=16, depth=1, heads=2, ffn_dim=16, dropout=0.0, norm_place="pre"), rows=4, longest=8
    ),
    arms=(
        Arm(name="rotary", about="rotated", model=dict(position="rotary")),
        Arm(name="none", about="nothing", model=dict(position="none")),
    ),
    claims=(
        Claim(
            text="Order is known.",
            lecture="000",
            terms=higher("accuracy", "rotary", "none"),
            least=0.1,
            unit="accuracy",
        ),
    ),
    metric="accuracy",
    steps=4,
)


def fake(arm, seed, values, cpu=10.0):
    """A finished run with the given losses at even CPU times."""
    curve = [{"step": i, "cpu": cpu * i / (len(values) - 1), "loss": value} for i, value in enumerate(values)]
    return {"arm": arm, "seed": seed, "curve": curve, "once": {}, "diverged": None, "parameters": 1, "sample": ""}


LOWER = Claim(text="a is lower than b.", lecture="", terms=lower("loss", "a", "b"), least=0.1, unit="loss")


def test_equal_steps_and_equal_cpu_time_are_two_comparisons():
    """b needs half the time of a: by steps a wins, by CPU time b is as far as a is at half of its way."""
    pairs = [
        {"a": fake("a", s, [3.0, 2.0, 1.0]), "b": fake("b", s, [3.0, 2.5, 1.5 + s / 100], cpu=5.0)} for s in range(3)
    ]
    found = judge(LOWER, pairs, family=1)
    assert found["steps"]["verdict"] == "supported" and found["steps"]["mean"] == pytest.approx(0.51)
    assert found["cpu"]["verdict"] == "contradicted" and found["cpu"]["mean"] == pytest.approx(-0.49)


def test_metrics_between_two_measurements():
    run = fake("a", 0, [3.0, 2.0, 1.0])
    assert at_cpu(run, 2.5)["loss"] == pytest.approx(2.5)
    assert at_cpu(run, 0.0)["loss"] == 3.0 and at_cpu(run, 99.0)["loss"] == 1.0


def test_the_same_arm_twice_is_no_difference():
    component = Component(
        name="x", question="?", problem=TINY.problem, claims=(LOWER,),
        arms=(Arm(name="a", about=""), Arm(name="b", about="")),
    )  # fmt: skip
    values = [1.0, 1.3, 0.9, 1.1, 1.2, 1.05, 0.95, 1.15]
    (found,) = judge_same(component, [fake("a", seed, [3.0, value]) for seed, value in enumerate(values)])
    assert found["steps"]["verdict"] == "no difference" and found["steps"]["pairs"] == 4


def test_each_metric_of_the_same_arm_is_judged_once_and_by_the_rule_of_claims():
    """A difference that one question alone would show is chance where two are asked; the smaller bound counts."""
    claims = (LOWER, replace(LOWER, least=0.01), replace(LOWER, terms=lower("accuracy", "a", "b")))
    arms = (Arm(name="a", about=""), Arm(name="b", about=""))
    component = Component(name="x", question="?", problem=TINY.problem, claims=claims, arms=arms)
    paired = [1.0, 1.1, 1.2, 1.3, 0.6, 0.9, 0.95, 0.7]
    made = [fake("a", seed, [3.0, 0.0]) for seed in range(8)]
    order = list(made)
    random.Random(0).shuffle(order)
    for run, value in zip(order, paired, strict=True):
        run["curve"][-1] |= {"loss": value, "accuracy": 0.5}
    both = judge_same(component, made)
    assert [each["metric"] for each in both] == ["loss", "accuracy"] and both[0]["least"] == 0.01
    assert both[0]["steps"]["verdict"] == "no difference"
    alone = judge_same(replace(component, claims=(LOWER,)), made)
    assert alone[0]["steps"]["verdict"] == "a difference" and alone[0]["steps"]["low"] > both[0]["steps"]["low"]


def test_arms_start_from_equal_weights_and_read_equal_batches():
    first, second = (runs.new_model(TINY, arm, 3).state_dict() for arm in TINY.arms)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    other = runs.new_model(TINY, TINY.arms[0], 4).state_dict()
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])
    streams = [runs.problem_of(TINY, arm).stream(3).batches() for arm in TINY.arms]
    for _ in range(3):
        (_, _, a), (_, _, b) = (next(stream) for stream in streams)
        assert torch.equal(a.inputs["ids"], b.inputs["ids"])


def test_a_comparison_and_its_report(tmp_path):
    said = []
    result = measure.measure(TINY, seeds=2, steps=None, out=tmp_path, say=said.append)
    assert len(said) == 4 and [arm["name"] for arm in result["arms"]] == ["rotary", "none"]
    assert {"mean", "low", "high", "pairs", "verdict"} == result["claims"][0]["steps"].keys()
    write_report(TINY, result, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "data:image/png;base64," in page and "http://" not in page and "https://" not in page
    assert (tmp_path / "report.md").read_text() == markdown(result) and "Why positions?" in render(result)
    assert not list((tmp_path / "unfinished").iterdir())
    again = measure.measure(TINY, seeds=2, steps=None, out=tmp_path, say=said.append)
    assert again == result and len(said) == 4, "finished runs were trained again"


def test_other_settings_are_not_mixed(tmp_path):
    measure.measure(TINY, seeds=2, steps=2, out=tmp_path)
    with pytest.raises(ValueError, match=r"has runs with other settings \(arm rotary\); choose another --out"):
        measure.measure(TINY, seeds=2, steps=3, out=tmp_path)


def test_a_line_that_was_cut_is_trained_again(tmp_path):
    measure.measure(TINY, seeds=2, steps=2, out=tmp_path)
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text()[:-200])
    assert len(Store(path, TINY, 2).runs) == 3
    measure.measure(TINY, seeds=2, steps=2, out=tmp_path)
    assert len(Store(path, TINY, 2).runs) == 4


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    whole = runs.run_arm(TINY, TINY.arms[0], 0, 12, tmp_path / "whole")
    fit, folder = runs.fit, tmp_path / "part"

    def interrupted(model, stream, valid, objective, config, out, **options):
        fit(model, stream, valid, objective, replace(config, steps=7), out, **options)
        raise Interrupted

    monkeypatch.setattr(runs, "fit", interrupted)
    with pytest.raises(Interrupted):
        runs.run_arm(TINY, TINY.arms[0], 0, 12, folder)
    monkeypatch.setattr(runs, "fit", fit)
    resumed = runs.run_arm(TINY, TINY.arms[0], 0, 12, folder)
    strip = lambda run: [{k: v for k, v in point.items() if k != "cpu"} for point in run["curve"]]  # noqa: E731
    assert strip(resumed) == strip(whole) and resumed["gradient"] == whole["gradient"]
    cpu = [point["cpu"] for point in resumed["curve"]]
    assert cpu == sorted(cpu) and cpu[0] == 0


def test_a_run_that_diverges_counts_as_one_that_learned_nothing(tmp_path):
    def explode(model):
        with torch.no_grad():
            model.embedding.weight.fill_(float("nan"))

    arm = Arm(name="rotary", about="", model=dict(position="rotary"), alter=explode)
    run = runs.run_arm(TINY, arm, 0, 4, tmp_path / "run")
    assert run["diverged"] == 0 and run["curve"][-1]["accuracy"] == TINY.problem.worst()["accuracy"]
    assert [point["step"] for point in run["curve"]] == [0, 1, 2, 3, 4], "curves are as long as those of other runs"


def test_too_small_a_budget_gives_no_verdict(tmp_path):
    with pytest.raises(ValueError, match="--seeds 1 gives no interval; use 2 or more"):
        measure.measure(TINY, seeds=1, steps=2, out=tmp_path)
    with pytest.raises(ValueError, match="--steps 0 trains nothing"):
        measure.measure(TINY, seeds=2, steps=0, out=tmp_path)
    result = measure.measure(TINY, seeds=2, steps=1, out=tmp_path)
    assert "no arm learned anything" in result["too_small"] and "no verdict: no arm learned" in render(result)


def test_the_first_arm_twice(tmp_path):
    result = measure.measure(TINY, seeds=2, steps=2, out=tmp_path, same=True)
    assert result["same"] and {claim["steps"]["verdict"] for claim in result["claims"]} <= {
        "no difference",
        "a difference",
    }
    assert len(Store(tmp_path / "runs.jsonl", TINY, 2).runs) == 4


def test_free_running_reads_its_own_letters():
    component = find_component("teacher-forcing")
    problem = SortedLetters(model=component.problem.model, count=4, rows=3)
    model = runs.new_model(
        Component(name="y", question="", problem=problem, arms=component.arms, claims=()), component.arms[0], 0
    ).eval()
    _, _, batch = next(problem.stream(0).batches())
    written = problem.written(model, batch.inputs["ids"])
    prefix = batch.inputs["ids"][:, :5]
    for i in range(4):  # the plain model, which reads the whole text again for every letter
        assert torch.equal(model(torch.cat([prefix, written[:, :i]], dim=1))[:, -1].argmax(-1), written[:, i])
    forced, free = problem.objective(model, batch)[0], problem.free_running(model, batch)[0]
    assert forced.isfinite() and free.isfinite() and forced != free


def light(component):
    """The component on a short text, with few scores."""
    if not isinstance(component.problem, NextToken):
        return component
    return replace(component, problem=replace(component.problem, characters=6000, scored=4, vocab_size=300))


@pytest.mark.parametrize("name", list(COMPONENTS))
def test_every_component_runs(name, tmp_path):
    """One step of every arm: models are built, metrics that claims use are there, the report can be drawn."""
    if name == "patch":
        pytest.importorskip("sklearn")
    component = light(COMPONENTS[name])
    found = {arm.name: runs.run_arm(component, arm, 0, 1, tmp_path / arm.name) for arm in component.arms}
    for claim in component.claims:
        assert isinstance(claim.difference({arm: measure.at_end(run) for arm, run in found.items()}), float)
    assert all(component.metric in run["curve"][0] and run["map"] for run in found.values())
    assert all(run["curve"][-1].keys() == {"step", "cpu", *component.problem.worst()} for run in found.values())


def test_unknown_components_name_their_neighbour():
    with pytest.raises(ValueError, match="no component 'residuals'; did you mean 'residual'?"):
        find_component("residuals")


def test_stored_verdicts_are_of_todays_claims_and_follow_from_their_intervals():
    for name, result in measured().items():
        for claim, found in zip(COMPONENTS[name].claims, result["claims"], strict=True):
            assert (found["text"], found["least"]) == (claim.text, claim.least), "a claim has changed: measure it again"
            for part in (found["steps"], found["cpu"]):
                interval = Interval(part["mean"], part["low"], part["high"], part["pairs"])
                assert part["verdict"] == verdict_of(interval, claim.least) and part["pairs"] >= 5


def test_a_comparison_with_itself_is_stored_beside_the_verdicts(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setitem(COMPONENTS, "tiny", replace(TINY, steps=20))
    write_report(TINY, measure.measure(TINY, seeds=2, steps=20, out=tmp_path, same=True), tmp_path)
    with pytest.raises(ValueError, match="compares tiny with itself alone; run regard why tiny"):
        report.keep(tmp_path)
    result = measure.measure(TINY, seeds=2, steps=20, out=tmp_path) | {"too_small": ""}
    write_report(TINY, result, tmp_path)
    assert report.keep(tmp_path) == "tiny"
    table = verdict_table()
    assert "| `regard why tiny --seeds 2` | Order is known. (000) |" in table and "(1 metric, 20 steps) |" in table
    assert "Of 1 comparisons of an arm with itself, by 1 metrics," in table


def test_the_documentation_has_the_measured_verdicts():
    """The table is written by benchmarks/why.py from the stored results, and by nobody's hand."""
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "why.md").read_text(encoding="utf-8")
    assert verdict_table() in text
    json.dumps(verdict_table())
