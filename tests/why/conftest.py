"""A short text in place of Python's documentation, which takes seconds to collect."""

import pytest

from regard.why import problems


@pytest.fixture(autouse=True)
def short_text(monkeypatch):
    """Tests of the machinery need no real text, only one with words that come back."""
    monkeypatch.setattr(problems, "documentation", lambda split: "Return the sum of a list of numbers.\n" * 400)
    problems.read_text.cache_clear()
    yield
    problems.read_text.cache_clear()
