"""The ledger: its figures are what is measured, its verdicts follow from them, its pages are what it says."""

import json
from functools import cache
from pathlib import Path

import pytest

from regard.claims import ledger, report
from regard.claims.checks import CHECKS
from regard.claims.ledger import Claim, meets, select, unchanged
from regard.claims.run import pick, run
from regard.cli import regard
from regard.cli.claims import call
from regard.why import COMPONENTS
from tests.cli.calling import fails

ROOT = Path(__file__).parents[2]
CLAIM = dict(id="000-01", place="p", claim="c", check="row_sum", expects="= 7.10", measured=7.096)
once = cache(call)


@pytest.mark.parametrize("lecture", ledger.LECTURES)
def test_every_quick_figure_is_measured_again(lecture):
    quick = [c for c in select(lecture=lecture) if c.measured is not None and not c.slow]
    broken = [report.render_outcome(outcome) for outcome in run(quick, once) if not outcome.as_stored]
    assert quick and not broken, "\n".join(broken)


@pytest.mark.slow
@pytest.mark.parametrize("lecture", ledger.LECTURES)
def test_every_slow_figure_is_measured_again(lecture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # `regard why` stores its runs where it is called
    slow = [c for c in select(lecture=lecture) if c.measured is not None and c.slow]
    broken = [report.render_outcome(outcome) for outcome in run(slow, once) if not outcome.as_stored]
    assert not broken, "\n".join(broken)


def test_the_ledger_is_large_and_nearly_all_of_it_was_measured():
    testable = [c for c in ledger.written() if c.expects]
    assert len(testable) >= 120
    assert sum(c.measured is not None for c in testable) >= 0.9 * len(testable)
    assert {c.verdict for c in testable} >= {"holds", "fails", "depends"}


def test_every_claim_names_a_command_or_a_check_that_exists():
    for claim in ledger.written():
        assert not claim.check or claim.check in CHECKS, claim.id
        if claim.command:
            assert claim.command.split()[0] in regard.commands and "--json" in claim.command, claim.id
    assert {c.check for c in ledger.ledger() if c.check} == CHECKS.keys(), "a check that no claim uses"
    unsaid = [name for name, check in CHECKS.items() if not (check.__doc__ or "").startswith("Return ")]
    assert not unsaid, "the pages say what a figure is by the check's docstring"


def test_claims_that_need_training_have_the_verdicts_that_are_stored_with_them(monkeypatch):
    text = COMPONENTS["mask"].claims[0].text
    for steps, verdict, wanted in (
        (200, "supported", "holds"),
        (200, "contradicted", "fails"),
        (90, "not visible at this size", "depends"),
    ):
        interval = {"mean": 2.0, "low": 1.5, "high": 2.5, "verdict": verdict}
        found = {"mask": {"steps": steps, "seeds": 5, "claims": [{"text": text, "steps": interval}]}}
        monkeypatch.setattr(ledger, "measured", lambda found=found: found)
        (claim,) = [c for c in ledger.trained() if c.claim == text]
        assert claim.verdict == wanted and claim.slow and claim.note.startswith("+2 [+1.5, +2.5] loss")
        assert claim.typed == "regard why mask" + (" --steps 90" if steps == 90 else "") + " --json"
        assert pick(found["mask"], claim.field) == verdict
    assert len(ledger.ledger()) == len(ledger.written()) + len(ledger.trained())


def test_the_pages_are_those_of_the_ledger():
    pages = report.pages()
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "claims").glob("*.md")}
    assert written == pages, "run: regard claims --out docs/claims"


@pytest.mark.parametrize(
    ("expects", "figure", "wanted"),
    [
        ("= 7.10", 7.0962, True), ("= 7.10", 7.09, False), ("= 44", 44, True), ("= 44", 45, False),
        ("= 3.3e18", 3.283e18, True), ("= 0.58 0.10", [0.581, 0.099], True), ("= 0.58 0.10", [0.581, 0.2], False),
        ("= 0.58 0.10", [0.58], False), ("= cat", "cat", True), ("= cat", "sat", False), ("> 1", 1.0, False),
        (">= 1", 1.0, True), ("< 1e-9", [0.0, 1e-10], True), ("< 1e-9", [0.0, 1.0], False), ("~ 33", 33.55, True),
        ("~ 33", 34.0, False), ("> 1", "cat", False),
    ],
)  # fmt: skip
def test_a_verdict_follows_from_the_figure(expects, figure, wanted):
    assert meets(expects, figure) is wanted
    claim = Claim(**CLAIM | {"expects": expects, "measured": figure})
    assert claim.verdict == ("holds" if wanted else "fails")
    assert Claim(**CLAIM | {"depends": "the size"}).verdict == "depends"
    assert Claim(**CLAIM | {"measured": None}).verdict == "not measured yet"


def test_a_figure_is_unchanged_within_its_tolerance_and_with_its_verdict():
    claim = Claim(**CLAIM)
    assert unchanged(claim, 7.0962) and not unchanged(claim, 7.11)
    assert unchanged(Claim(**CLAIM | {"tolerance": 0.1, "expects": "> 7"}), 7.15)
    assert not unchanged(Claim(**CLAIM | {"tolerance": 0.1, "expects": "> 7.05"}), 7.04), "the verdict would change"
    assert not unchanged(Claim(**CLAIM | {"measured": 44, "expects": "> 1"}), 45), "whole numbers are exact"
    assert not unchanged(Claim(**CLAIM | {"measured": [1.0, 2.0], "expects": "> 0"}), [1.0])
    assert not unchanged(Claim(**CLAIM | {"measured": "cat", "expects": "= cat"}), "sat")


def test_a_claim_needs_one_way_to_test_it(tmp_path):
    for changes in ({"command": "cost base"}, {"check": ""}, {"expects": ""}, {"expects": "about 7"}):
        with pytest.raises(ValueError, match="claim 000-01"):
            Claim(**CLAIM | changes)
    path = tmp_path / "000.toml"
    path.write_text('[[claim]]\nid = "000-01"\nverdict = "holds"\n')
    with pytest.raises(ValueError, match="000.toml, claim 000-01: no field 'verdict'"):
        ledger.read(path)


def test_what_broke_is_an_outcome():
    wrong = Claim(**CLAIM | {"check": "", "command": "cost no-such-model --json", "field": "total"})
    (outcome,) = run([wrong], call)
    assert outcome.figure is None and not outcome.as_stored and "no-such-model" in outcome.error
    assert pick({"a": [{"b": 3}]}, "a.0.b") == 3 and pick({"a": [1, 2]}, "a.#") == 2


def test_the_command(capsys):
    regard.main(["claims", "002-08", "--json"], standalone_mode=False)
    (claim,) = json.loads(capsys.readouterr().out)
    assert claim["id"] == "002-08" and claim["verdict"] == "fails" and claim["measured"] == 12
    regard.main(["claims", "--run", "002-08"], standalone_mode=False)
    assert "002-08  12, as stored: fails" in capsys.readouterr().out
    assert "no claim '002-888'; did you mean '002-" in fails(capsys, "claims", "002-888")
    assert "no claim 'foo'; ids are a lecture and a number, as 002-17" in fails(capsys, "claims", "foo")
    assert "002-96 is not testable here, so there is no figure" in fails(capsys, "claims", "--run", "002-96")
    assert "no lecture '2'" in fails(capsys, "claims", "--lecture", "2")
    assert "no verdict 'true'" in fails(capsys, "claims", "--verdict", "true")
