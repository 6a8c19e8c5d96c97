"""From a file to a file: in order, and nothing lost when it is stopped."""

import csv
import json
import sys

import pytest

from regard.data.readers.inputs import read_inputs
from regard.data.readers.packed import unpack
from regard.tasks.bulk import Answers, with_answer


def test_answers_come_in_any_order_and_are_written_in_that_of_the_texts(tmp_path):
    out = tmp_path / "out.jsonl"
    answers = Answers(out, ["a", "b", "c"], {})
    answers.put(2, {"answer": "C"}, "C")
    assert (tmp_path / "out.jsonl.part").read_text() == "" and not out.exists()
    answers.put(0, {"answer": "A"}, "A")
    answers.put(1, {"answer": "B\n"}, "B\n")
    answers.close()
    assert [json.loads(line)["answer"] for line in out.read_text().splitlines()] == ["A", "B\n", "C"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl"]


def test_a_stopped_file_goes_on_behind_its_last_whole_line(tmp_path):
    out, texts = tmp_path / "out.txt", ["a", "b", "c", "d"]
    answers = Answers(out, texts, {"beams": 1})
    answers.put(0, {}, "A\nA")
    answers.put(1, {}, "")
    answers.put(3, {}, "D")  # done, but not in order: it is written again
    answers.close()
    part = tmp_path / "out.txt.part"
    assert part.read_text() == "A A\n\n" and not out.exists()
    part.write_text("A A\n\ncut o")
    again = Answers(out, texts, {"beams": 1})
    assert again.done == 2
    for number in (2, 3):
        again.put(number, {}, texts[number].upper())
    again.close()
    assert out.read_text() == "A A\n\nC\nD\n"


def test_what_belongs_to_other_texts_or_options_is_not_continued(tmp_path):
    begun = Answers(tmp_path / "out.txt", ["x", "y"], {"beams": 1})
    begun.close()  # nothing is lost if there is nothing: another text may begin
    begun = Answers(tmp_path / "out.txt", ["a", "b"], {"beams": 1})
    begun.put(0, {}, "A")
    begun.close()
    for texts, settings in ((["a", "c"], {"beams": 1}), (["a", "b"], {"beams": 2})):
        with pytest.raises(ValueError, match="other texts or options; delete it"):
            Answers(tmp_path / "out.txt", texts, settings)
    with pytest.raises(ValueError, match="the file of the texts"):
        Answers(tmp_path / "out.txt", ["a"], {}, [tmp_path / "." / "out.txt"])
    with pytest.raises(ValueError, match="it is a directory"):
        Answers(tmp_path, [], {})
    with pytest.raises(ValueError, match="no such directory"):
        Answers(tmp_path / "none" / "out.txt", [], {})


def test_a_table_has_the_rows_of_the_user_with_their_answers(tmp_path):
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('\ufeffid;Text;label\n7;"one; two\nlines";x\n8;;y\n', encoding="utf-8")
    inputs = read_inputs(source, {"text": "text", "label": "label"})
    assert inputs.texts == ["one; two\nlines", ""] and inputs.empty == [1] and inputs.place(1) == "line 4"
    answers = Answers(out, inputs.rows, {}, inputs.files, inputs.separator)
    answers.put(0, with_answer(inputs.rows[0], {"label": "pos", "probability": 0.5, "tags": ["a"]}, {"label"}), "")
    answers.close()  # stopped
    again = Answers(out, inputs.rows, {}, inputs.files, inputs.separator)
    assert again.done == 1
    again.put(1, inputs.rows[1], "")
    again.close()
    lines = out.read_text(encoding="utf-8")
    assert lines.startswith("\ufeffid;Text;label;predicted_label;probability;tags\n7;"), "as a spreadsheet wrote it"
    with out.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    assert [row["Text"] for row in rows] == inputs.texts
    assert [row["predicted_label"] for row in rows] == ["pos", ""] and rows[0]["tags"] == '["a"]'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "out.csv"]
    with pytest.raises(ValueError, match=r"written as .csv, .tsv, .jsonl or lines .*; choose one"):
        Answers(tmp_path / "out.xlsx", [], {})


@pytest.mark.parametrize("packed", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_a_packed_name_is_a_packed_file(tmp_path, kind, packed):
    rows = [{"text": "one, two"}, {"text": "drei\nvier"}]
    names = [f"{name}.{kind}" for name in ("plain", "packed", "again")]
    for name in (names[0], f"{names[1]}.{packed}", f"{names[2]}.{packed}"):
        for done in (0, 1):  # stopped after one answer, then resumed
            answers = Answers(tmp_path / name, rows, {})
            assert answers.done == done
            answers.put(done, rows[done] | {"label": "ä"}, "ä")
            answers.close()
    plain, first, second = sorted(tmp_path.iterdir(), key=lambda path: path.name != names[0])
    assert unpack(first.read_bytes(), first) == plain.read_bytes() != first.read_bytes()
    assert first.read_bytes() == second.read_bytes(), "neither a time nor a name of a draft is in it"
    assert read_inputs(first).texts == read_inputs(plain).texts


def test_what_cannot_be_packed_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"out.csv.zst: .zst files need an extra: pip install"):
        Answers(tmp_path / "out.csv.zst", [], {})
    with pytest.raises(ValueError, match=r"written as .csv, .tsv, .jsonl or lines .*; choose one"):
        Answers(tmp_path / "out.xlsx.gz", [], {})


def test_inputs_keep_their_rows(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 7, "prompt": "a"}\n\n{"source": "b"}\n{"id": 9, "text": null}\n')
    inputs = read_inputs(path)
    assert inputs.texts == ["a", "b", ""] and inputs.rows[0] == {"id": 7, "prompt": "a"}
    assert inputs.empty == [2] and inputs.place(2) == "line 4"
    for bad, says in (
        ('{"text": 7}', "line 2: its text is 7"),
        ("{", "line 2: not JSON"),
        ('{"text": ' + "1" * 5000 + "}", "line 2: not JSON"),
        ("[]", "line 2: not an obj"),
    ):
        path.write_text('{"text": "a"}\n' + bad + "\n")
        with pytest.raises(ValueError, match=says):
            read_inputs(path)
    (tmp_path / "in.txt").write_text("x\n\ny\n")
    assert read_inputs(tmp_path / "in.txt").texts == ["x", "", "y"]
    (tmp_path / "none.csv").write_text("very fine,pos,a\nvery bad,neg,b\n")
    plain = read_inputs(tmp_path / "none.csv", {"text": "1"})
    assert plain.texts == ["very fine", "very bad"] and list(plain.rows[0]) == ["text", "column 2", "column 3"]
