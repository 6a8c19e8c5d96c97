"""`regard why` at the command line."""

import json

import pytest

from regard.why import COMPONENTS
from tests.cli.calling import fails, said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("residuals",), "no component 'residuals'; did you mean 'residual'?"),
        (("bag",), "no component 'bag'; known: depth, dropout"),
        (("mask", "--seeds", "1"), "--seeds 1 gives no interval; use 2 or more"),
        (("--same",), "name the COMPONENT to measure: scale, mask"),
        (("mask", "--steps", "0"), "--steps 0 trains nothing; use 1 or more"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, "why", *words)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_the_list_has_every_claim(capsys):
    text = "\n".join(said(capsys, "why"))
    for name, component in COMPONENTS.items():
        assert f"\n{name} " in "\n" + text
        assert all(claim.text in text for claim in component.claims)
    assert json.loads(said(capsys, "why", "--json")[0]).keys() == COMPONENTS.keys()


def test_a_component_in_one_command(capsys, tmp_path):
    words = ("why", "position", "--seeds", "2", "--steps", "1", "--quiet", "--json", "--out", str(tmp_path / "out"))
    result = json.loads(said(capsys, *words)[0])
    assert result["component"] == "position" and result["too_small"]
    assert {"figure.png", "report.html", "report.md", "result.json", "runs.jsonl"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
