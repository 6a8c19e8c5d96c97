"""docs/errata.md names a test for each slip; the tests that it names exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = {"L": "tests/lectures/test_lecture_", "C": "tests/cost/test_lecture_figures.py"}


def test_every_test_that_the_errata_name_exists():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = re.findall(r"`([LC])(\d*(?:\.py)?)::(\w+)`", text)
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|--", "| it says"))]
    assert len(rows) > 25
    assert all("::test_" in row for row in rows)
    for place, rest, test in named:
        tree = ast.parse((ROOT / (PLACES[place] + rest)).read_text(encoding="utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{place}{rest}::{test}"
