"""The page of a run's history: whole in itself, and there for every run."""

import re
from html.parser import HTMLParser

import pytest

from regard.inside.draw.document import style_of
from regard.inside.page.health import MOST, Axes, page
from tests.doctor.test_history import FINDING, WATCH, run_of

STEPS = [{"step": i, "loss": 5 / i} for i in range(1, 3 * MOST)]
SPIKE = {"at": 40, "loss": 4.0, "usual": 0.1, "batch": "batch 3 of epoch 0 (examples 1, 2)", "passed": True}


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br", "line", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(text):
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader.tags


def test_all_figures_are_there_and_nothing_is_fetched(tmp_path):
    text = page(
        run_of(
            tmp_path, *STEPS, {"step": 5, "watch": WATCH}, {"step": 9, "watch": WATCH},
            {"step": 41, "spike": SPIKE}, {"step": 41, "finding": FINDING | {"sentence": "<b> stood still"}},
            {"step": 50, "valid_loss": 1.0},
        )
    )  # fmt: skip
    tags = read(text)
    pictures = [attributes for tag, attributes in tags if tag == "svg"]
    assert len(pictures) == 3 and all(one["role"] == "img" and len(one["aria-label"]) > 20 for one in pictures)
    assert (
        "color-scheme: light dark" in text and style_of("style.css") in text
    )  # fonts and colours of the server's page
    assert "a frozen layer" in text and "&lt;b&gt; stood still" in text and "<b>" not in text
    assert sum(attributes.get("class") == "spike" for _, attributes in tags) == 1 and "batch 3 of epoch 0" in text
    assert not re.search(r"(src|href|url\(|@import)", text), "nothing is fetched"
    paths = [attributes["d"] for tag, attributes in tags if tag == "path"]
    assert max(path.count("L") for path in paths) <= MOST


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": 3.0}], STEPS, [{"step": 1, "loss": float("nan")}]])
def test_runs_that_are_old_short_or_empty(tmp_path, rows):
    text = page(run_of(tmp_path, *rows))
    read(text)
    assert "Nothing wrong seen" in text


def test_a_value_of_zero_has_a_place_on_a_logarithmic_axis():
    axes = Axes([(1, 0.0), (2, 1e-3), (3, 1.0)], logarithmic=True)
    assert axes.y(0.0) >= axes.y(1e-3) > axes.y(1.0)
