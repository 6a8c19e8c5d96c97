"""Every test that a promise names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/security.md"])
def test_named_tests_exist(page):
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / page).read_text(encoding="utf-8"))
    assert len(named) > 8
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{page}: {path}::{name}"


TABLES = [("SECURITY.md", "| promise |"), ("docs/security.md", "| attack or accident |")]


@pytest.mark.parametrize("page, table", TABLES)
def test_every_row_names_a_test(page, table):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = text[text.index(table) :].partition("\n\n")[0].splitlines()[2:]
    assert len(rows) > 8
    for row in rows:
        assert re.fullmatch(r"\|.+\| `tests/[\w/]+\.py::\w+` \|", row), row
