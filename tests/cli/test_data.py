"""The command data, what training prints of its files, and tables as inputs of a trained model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from regard.data.sets.base import Data
from regard.data.sets.overview import Overview
from regard.registry import tasks
from regard.tasks import Task, register_task
from tests.cli.calling import call, fails, said

ROWS = [f"{'fine' if i % 2 else 'poor'} film {i};{'pos' if i % 2 else 'neg'}" for i in range(40)]


@dataclass(frozen=True, kw_only=True, slots=True)
class FruitConfig(Data):
    """Data of a plugin: files with a fruit a line."""

    own: ClassVar[tuple[str, ...]] = ("fruits",)
    fruits: str | None = None

    @classmethod
    def reads(cls, source):
        return source.endswith(".fruit")

    def overview(self):
        count = len(Path(self.fruits).read_text().split())
        return [Overview(source=self.fruits, part="train", count=count, unit="fruits", about="a fruit a line")]


def test_data_says_what_was_understood(capsys, tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("\ufeff" + "\r\n".join(["Review;Sentiment", *ROWS]) + "\r\n", encoding="utf-8")
    lines = said(capsys, "data", path)
    assert lines[:3] == [
        "task: classify",
        f"train: {path}, 40 examples (a table separated by semicolons, with a header)",
        "  columns: text ← Review, label ← Sentiment",
    ]
    assert lines[3:5] == ["  2 labels: neg 20, pos 20", '  e.g. "poor film 0" → neg']
    found = json.loads("".join(said(capsys, "data", path, "--json", "--data.columns", "text=Sentiment,label=Review")))
    assert found["task"] == "classify" and found["parts"][0]["columns"] == {"text": "Sentiment", "label": "Review"}
    assert "40 labels for 40 examples" in found["parts"][0]["notes"][0]


def test_doubt_and_mistakes_are_one_line(capsys, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["v1;v2", *ROWS]))
    assert "--data.columns text=v1,label=v2 (or --data.header false" in fails(capsys, "data", path, "--json")
    assert "no such option '--tsak' (did you mean '--task'?)" in fails(capsys, "data", path, "--tsak", "classify")
    assert "did you mean" in fails(capsys, "data", path, "--data.colums", "text=v1")
    assert "no such file or folder" in fails(capsys, "data", tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    assert "the file is empty" in fails(capsys, "data", tmp_path / "empty.csv")


def test_data_without_a_label_are_shown_as_they_lie(capsys, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["body,verdict,id", *(f"film {i},{'ab'[i % 2]},{i or ''}" for i in range(8))]))
    with pytest.raises(SystemExit):
        call("data", path)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "task: classify",
        f"read: {path}, 8 rows (a table separated by commas, with a header)",
        '  body: 8 values: "film 0", "film 1", "film 2", …',
        '  verdict: 2 values: "a", "b"',
        '  id: 7 values, 1 empty: "1", "2", "3", …',
    ]
    assert "the header has no 'label', only 'body', 'verdict', 'id'" in printed.err


def test_training_shows_its_data_and_a_table_is_an_input(capsys, tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "run"
    path.write_text("\n".join(["review;sentiment", *ROWS]))
    call("train", "classify", "--data.train", path, "--train.steps", "2", "--out", out)
    assert "columns: text ← review, label ← sentiment" in capsys.readouterr().err
    path.write_text("\n".join(["review;sentiment", *ROWS[:2]]))
    lines = said(capsys, "classify", out, "--input", path)
    assert [line.split("\t")[-1] for line in lines] == ["poor film 0", "fine film 1"]
    path.write_text("\n".join(["review;sentiment", *(row.replace("neg", "pos") for row in ROWS)]))
    line = fails(capsys, "train", "classify", "--quiet", "--data.train", path, "--out", tmp_path / "other")
    assert "all examples have the label 'pos'" in line


def test_data_of_a_plugin_are_recognised(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_entries", dict(tasks.entries()))

    @register_task("ripen")
    class Ripener(Task):
        data = (FruitConfig,)

    path = tmp_path / "apples.fruit"
    path.write_text("apple\npear\n")
    assert said(capsys, "data", path)[:2] == ["task: ripen", f"train: {path}, 2 fruits (a fruit a line)"]
    path = path.rename(tmp_path / "apples.txt")
    assert said(capsys, "data", path)[0] == "task: text"
    assert json.loads(said(capsys, "data", path, "--task", "ripen", "--json")[0])["task"] == "ripen"
    assert "did you mean 'ripen'?" in fails(capsys, "data", path, "--task", "ripe")
    assert said(capsys, "data", path, "--task", "generate")[0] == "task: generate"
