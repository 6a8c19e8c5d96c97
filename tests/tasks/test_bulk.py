"""From a file to a file: in order, and nothing lost when it is stopped."""

import json

import pytest

from regard.tasks.bulk import Answers, read_records, text_of


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
        Answers(tmp_path / "out.txt", ["a"], {}, tmp_path / "." / "out.txt")
    with pytest.raises(ValueError, match="it is a directory"):
        Answers(tmp_path, [], {})
    with pytest.raises(ValueError, match="no such directory"):
        Answers(tmp_path / "none" / "out.txt", [], {})


def test_records_are_objects_with_a_text(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": 7, "prompt": "a"}\n{"source": "b"}\n')
    assert [text_of(record) for record in read_records(path)] == ["a", "b"]
    for bad, says in (('{"id": 7}', "line 2: no text"), ("{", "line 2: not JSON"), ("[]", "line 2: no text")):
        path.write_text('{"text": "a"}\n' + bad + "\n")
        with pytest.raises(ValueError, match=says):
            read_records(path)
    (tmp_path / "in.txt").write_text("x\n\ny\n")
    assert read_records(tmp_path / "in.txt") == [{"text": "x"}, {"text": ""}, {"text": "y"}]
