"""The user's files for fine-tuning: every format of every task, and every mistake with file, line and cure."""

import json

import pytest

from regard.data.notices import listening, print_notice
from regard.data.readers.examples import Entity, Instruction, Labelled, Question, Similar, Tagged, read_examples


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def jsonl(*rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


CLASSIFIED = [Labelled("good, really", "1"), Labelled('bad "film"', "0")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", 'good, really\t1\nbad "film"\t0\n'),
        ("a.tsv", 'text\tlabel\ngood, really\t1\n\nbad "film"\t0'),
        ("a.tsv", 'id\tLabel\tText\r\n7\t1\tgood, really\r\n8\t0\tbad "film"\r\n'),
        ("a.TSV", '\ufefftext\tlabel\ngood, really\t1\nbad "film"\t0\n'),
        ("a.csv", '"good, really",1\n"bad ""film""",0\n'),
        ("a.csv", '\ufefftext,label\n"good, really",1\n\n"bad ""film""",0\n'),
        ("a.jsonl", jsonl({"text": "good, really", "label": "1"}, {"label": 0, "text": 'bad "film"', "id": 3})),
        ("a.jsonl", "\n" + jsonl({"text": "good, really", "label": 1}, {"text": 'bad "film"', "label": "0"}) + "\n"),
    ],
)
def test_classify_in_every_format(tmp_path, name, content):
    assert read_examples(write(tmp_path / name, content), "classify") == CLASSIFIED


def test_classify_two_texts(tmp_path):
    expected = [Labelled("It rains.", "yes", "It is wet."), Labelled("It rains.", "no", "It is dry.")]
    rows = [{"text": e.text, "second": e.second, "label": e.label} for e in expected]
    table = "".join(f"{e.text}\t{e.second}\t{e.label}\n" for e in expected)
    assert read_examples(write(tmp_path / "a.tsv", table), "classify") == expected
    assert read_examples(write(tmp_path / "b.tsv", "text\tsecond\tlabel\n" + table), "classify") == expected
    assert read_examples(write(tmp_path / "a.jsonl", jsonl(*rows)), "classify") == expected


def test_columns_map_names(tmp_path):
    columns = {"text": "sentence", "label": "class"}
    path = write(tmp_path / "a.csv", 'class,sentence\n1,"good, really"\n0,"bad ""film"""\n')
    assert read_examples(path, "classify", columns) == CLASSIFIED
    rows = [{"sentence": e.text, "class": e.label} for e in CLASSIFIED]
    assert read_examples(write(tmp_path / "a.jsonl", jsonl(*rows)), "classify", columns) == CLASSIFIED


def test_csv_texts_may_have_lines_and_still_errors_name_theirs(tmp_path):
    path = write(tmp_path / "a.csv", '"two\nlines",x\n"one",y\n')
    assert read_examples(path, "classify") == [Labelled("two\nlines", "x"), Labelled("one", "y")]
    with pytest.raises(ValueError, match="a.csv, line 4: 'label' is empty"):
        read_examples(write(tmp_path / "a.csv", '"two\nlines",x\n\n"one",\n'), "classify", strict=True)


def test_rows_with_an_empty_cell_are_skipped_and_counted(tmp_path, capsys):
    path = write(tmp_path / "a.csv", "text,label\ngood,1\n,1\nbad,0\nso so,\nfine,1\nwell,\n")
    assert read_examples(path, "classify") == [Labelled("good", "1"), Labelled("bad", "0"), Labelled("fine", "1")]
    causes = "'text' is empty in 1 (line 3), 'label' is empty in 2 (line 5, …)"
    assert f"skipped 3 of 6 rows: {causes}; --data.strict stops instead" in capsys.readouterr().err
    for _ in range(2):  # two commands, each of which reads the file twice
        with listening(print_notice):
            assert read_examples(path, "classify") == read_examples(path, "classify")
        assert capsys.readouterr().err.count("skipped 3 of 6 rows") == 1
    with pytest.raises(ValueError, match="line 2: 'label' is empty"):  # nearly all: the column is the wrong one
        read_examples(write(tmp_path / "b.csv", "text,label\na,\nb,\nc,1\n"), "classify")


CONLL = """\
-DOCSTART- -X- O

Anna NNP B-NAME
Maria NNP I-NAME
Keller NNP I-NAME
lives VBZ O
in IN O
New NNP B-PLACE
York NNP I-PLACE

Paris NNP I-PLACE
, , O
Anna NNP I-NAME
Bob NNP B-NAME
"""


def test_tags_from_conll(tmp_path):
    expected = [
        Tagged("Anna Maria Keller lives in New York", (Entity(0, 17, "NAME"), Entity(27, 35, "PLACE"))),
        Tagged("Paris , Anna Bob", (Entity(0, 5, "PLACE"), Entity(8, 12, "NAME"), Entity(13, 16, "NAME"))),
    ]
    assert read_examples(write(tmp_path / "a.conll", CONLL), "tag") == expected
    assert read_examples(write(tmp_path / "a.bio", CONLL.replace(" ", "\t").encode() + b"\n\n"), "tag") == expected
    rows = [
        {"text": e.text, "entities": [{"start": x.start, "end": x.end, "label": x.label} for x in e.entities[::-1]]}
        for e in expected
    ]
    assert read_examples(write(tmp_path / "a.jsonl", jsonl(*rows)), "tag") == expected


def test_tags_of_other_schemes(tmp_path):
    content = "a B-X\nb E-X\nc S-X\nd U-Y\ne B-Y\nf L-Y\ng I-Z\nh I-X\n"
    [example] = read_examples(write(tmp_path / "a.conll", content), "tag")
    found = [(example.text[e.start : e.end], e.label) for e in example.entities]
    assert found == [("a b", "X"), ("c", "X"), ("d", "Y"), ("e f", "Y"), ("g", "Z"), ("h", "X")]


def test_tags_equal_those_of_seqeval(tmp_path):
    entities_of = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    import random

    rng = random.Random(5)
    for _ in range(200):
        tags = [rng.choice(["O", "B-X", "I-X", "B-Y", "I-Y"]) for _ in range(8)]
        path = write(tmp_path / "a.conll", "".join(f"w {tag}\n" for tag in tags))
        [example] = read_examples(path, "tag")  # all words have one letter: word i begins at 2 i
        ours = [(e.label, e.start // 2, (e.end - 1) // 2) for e in example.entities]
        assert ours == entities_of(tags), tags


PASSAGE = "Anna was born in Rome. Anna died in Oslo."


@pytest.mark.parametrize(
    ("row", "answer", "start"),
    [
        ({"answer": "Rome"}, "Rome", 17),
        ({"answer": "Anna"}, "Anna", 0),
        ({"answer": {"text": "Anna", "start": 23}}, "Anna", 23),
        ({"answer": None}, None, None),
        ({"answer": ""}, None, None),
        ({"answers": {"text": ["Anna", "Anna"], "answer_start": [23, 0]}}, "Anna", 23),
        ({"answers": {"text": [], "answer_start": []}}, None, None),
    ],
)
def test_answers_in_every_form(tmp_path, row, answer, start):
    expected = [Question("Who?", PASSAGE, answer, start)]
    for passage in ("passage", "context"):
        path = write(tmp_path / "a.jsonl", jsonl({"question": "Who?", passage: PASSAGE, **row}))
        assert read_examples(path, "answer") == expected


def test_answers_from_a_table(tmp_path):
    rows = f"question\tcontext\tanswer\nWho?\t{PASSAGE}\tAnna\nWhy?\t{PASSAGE}\t\n"
    expected = [Question("Who?", PASSAGE, "Anna", 0), Question("Why?", PASSAGE, None, None)]
    assert read_examples(write(tmp_path / "a.tsv", rows), "answer") == expected


def test_pairs_and_instructions(tmp_path):
    similar, told = [Similar("one", "two", 0.25)], [Instruction("Say hello.", "Hello.")]
    assert read_examples(write(tmp_path / "a.tsv", "one\ttwo\t0.25\n"), "embed") == similar
    assert read_examples(write(tmp_path / "a.csv", "score,b,a\n0.25,two,one\n"), "embed") == similar
    assert (
        read_examples(write(tmp_path / "a.jsonl", jsonl({"a": "one", "b": "two", "score": 0.25})), "embed") == similar
    )
    assert read_examples(write(tmp_path / "a.csv", "Say hello.,Hello.\n"), "instruct") == told
    path = write(tmp_path / "a.jsonl", jsonl({"prompt": "Say hello.", "answer": "Hello."}))
    assert read_examples(path, "instruct") == told


GOOD = {"text": "fine", "label": "x"}
TEXT = {"text": "Anna in Rome"}


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        (
            "classify",
            "a.jsonl",
            jsonl(GOOD, {"text": "b"}),
            "a.jsonl, line 2: no 'label', only 'text'; add it, or say what it is called",
        ),
        ("classify", "a.jsonl", jsonl(GOOD) + "{oops\n", "a.jsonl, line 2: not JSON"),
        ("classify", "a.jsonl", jsonl(GOOD, [1, 2]), 'a.jsonl, line 2: not an object; .* like {"text": …'),
        ("classify", "a.jsonl", jsonl({"text": 3, "label": "x"}), "line 1: 'text' is no text: 3; put it in quotes"),
        ("classify", "a.jsonl", jsonl({"text": "a", "label": None}), "line 1: 'label' is no text: null"),
        ("classify", "a.jsonl", jsonl({"text": "a", "label": " "}), "line 1: 'label' is empty; fill it"),
        ("classify", "a.jsonl", jsonl({"text": "", "label": "x"}), "line 1: 'text' is empty"),
        ("classify", "a.jsonl", "", "a.jsonl: the file is empty"),
        ("classify", "a.jsonl", b'{"text": "a\xff"}\n', "a.jsonl, line 1: not UTF-8"),
        ("classify", "a.tsv", "a\tx\nb\n", "a.tsv, line 2: got 1 columns, but 2 in the first line"),
        ("classify", "a.tsv", "a\tx\ty\tz\n", "a.tsv, line 1: got 4 columns; give text, label, or a header"),
        ("classify", "a.tsv", "id\tnote\tlabel\n1\ta\tx\n", "the header has no 'text', only 'id', 'note', 'label'"),
        ("classify", "a.tsv", "text\tlabel\n", "a.tsv: not one example"),
        ("classify", "a.tsv", "\ufeff\n", "a.tsv, line 1: got 0 columns"),
        ("classify", "a.tsv", b"a\tx\nb\xe9\ty\n", "a.tsv, line 2: not UTF-8"),
        ("classify", "a.csv", 'a,x\n"b,y\n', "a.csv, line 2: not CSV"),
        ("classify", "a.csv", 'a,x\n"b" c,y\n', "a.csv, line 2: not CSV"),
        ("classify", "a.docx", "x", "classify reads .jsonl, .csv, .tsv, .json, .parquet, .arrow, .feather files"),
        ("classify", "a.conll", "x O\n", "classify reads .jsonl, .csv, .tsv"),
        ("tag", "a.csv", "x,O\n", "tag reads .conll, .bio, .jsonl"),
        ("tag", "a.conll", "Anna B-NAME\nKeller\n", "a.conll, line 2: got one column"),
        ("tag", "a.conll", "Anna B-NAME\n\tO\n", "a.conll, line 2: got one column"),
        ("tag", "a.conll", "Anna NAME\n", "a.conll, line 1: the tag 'NAME' is neither O nor like B-NAME"),
        ("tag", "a.conll", "Anna B-\n", "line 1: the tag 'B-' is neither"),
        ("tag", "a.conll", "-DOCSTART- O\n", "a.conll: not one example"),
        ("tag", "a.jsonl", jsonl(TEXT), "line 1: no list 'entities'; an example without any has"),
        ("tag", "a.jsonl", jsonl(TEXT | {"entities": [[0, "NAME"]]}), 'an entity is like {"start": 0'),
        ("tag", "a.jsonl", jsonl(TEXT | {"entities": [{"start": 0, "end": 4, "label": ""}]}), "an entity is like"),
        (
            "tag",
            "a.jsonl",
            jsonl(TEXT | {"entities": [{"start": 8, "end": 13, "label": "P"}]}),
            "8 … 13 lies outside the",
        ),
        ("tag", "a.jsonl", jsonl(TEXT | {"entities": [{"start": 4, "end": 4, "label": "P"}]}), "4 … 4 lies outside"),
        (
            *("tag", "a.jsonl"),
            jsonl(TEXT | {"entities": [{"start": 3, "end": 6, "label": "P"}, {"start": 0, "end": 4, "label": "P"}]}),
            "line 1: the entities 0 … 4 and 3 … 6 overlap",
        ),
        ("answer", "a.jsonl", jsonl({"question": "q", "answer": "a"}), "line 1: no 'passage'"),
        ("answer", "a.jsonl", jsonl({"question": "q", "passage": "p"}), "line 1: no 'answer', .* null says"),
        (
            "answer",
            "a.jsonl",
            jsonl({"question": "q", "passage": "p", "answer": "x"}),
            "the answer 'x' is not in the pass",
        ),
        (
            *("answer", "a.jsonl", jsonl({"question": "q", "passage": "ppx", "answer": {"text": "x", "start": 1}})),
            "line 1: the answer 'x' is not at character 1 of the passage; copy it",
        ),
        ("answer", "a.jsonl", jsonl({"question": "q", "passage": "p", "answer": 3}), "an answer is a text, .* got 3"),
        ("answer", "a.jsonl", jsonl({"question": "q", "passage": "p", "answers": ["p"]}), '"answers" is {"text"'),
        ("answer", "a.tsv", "q\tp\n", "a.tsv, line 1: got 2 columns; give question, passage, answer"),
        ("embed", "a.tsv", "a b\tc\t1\nd\te\tmuch\n", "a.tsv, line 2: no number under 'score': 'much'"),
        ("embed", "a.tsv", "one\ttwo\t3.5\n", "line 1: the score 3.5 is not from 0 to 1; say what"),
        ("embed", "a.tsv", "one\ttwo\tnan\n", "line 1: the score nan is not from 0 to 1"),
        ("embed", "a.jsonl", jsonl({"a": "one", "b": "two"}), "line 1: no number under 'score': None"),
        ("instruct", "a.jsonl", jsonl({"prompt": "p"}), "line 1: no 'answer', only 'prompt'"),
        ("instrct", "a.jsonl", jsonl(GOOD), "unknown task 'instrct'; did you mean 'instruct'"),
    ],
)
def test_bad_files(tmp_path, task, name, content, message):
    with pytest.raises(ValueError, match=message) as error:
        read_examples(write(tmp_path / name, content), task)
    assert "\n" not in str(error.value)


def test_missing_files_and_wrong_columns(tmp_path):
    with pytest.raises(ValueError, match="a.tsv: no such file; check the path"):
        read_examples(tmp_path / "a.tsv", "classify")
    with pytest.raises(ValueError, match="d.tsv: is a directory"):
        (tmp_path / "d.tsv").mkdir()
        read_examples(tmp_path / "d.tsv", "classify")
    path = write(tmp_path / "a.jsonl", jsonl(GOOD))
    with pytest.raises(ValueError, match="columns: classify has no field 'txt'; did you mean 'text'"):
        read_examples(path, "classify", {"txt": "sentence"})
    with pytest.raises(ValueError, match="a.jsonl, line 1: no field 'sentence', where columns looks for the text"):
        read_examples(path, "classify", {"text": "sentence"})
    with pytest.raises(ValueError, match="a.tsv, line 1: the header has no 'sentence', only 'a', 'x'; add it, or say"):
        read_examples(write(tmp_path / "a.tsv", "a\tx\n"), "classify", {"text": "sentence"})
    with pytest.raises(ValueError, match="a.conll has no names of columns"):
        read_examples(write(tmp_path / "a.conll", CONLL), "tag", {"text": "word"})
