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
