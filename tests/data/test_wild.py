"""Files as other programs write them: each is read right, or refused in one line that names the cure.

The bytes are those of the programs named beside them; pyarrow, if it is installed, writes its own.
"""

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
from dataclasses import asdict

import numpy as np
import pytest
from PIL import Image

from regard.cli.query import Query
from regard.data.readers.annotations import list_voc, voc_parts
from regard.data.readers.arrays import has_test, read_arrays
from regard.data.readers.examples import Entity, Instruction, Labelled, Question, Similar, Tagged, read_examples
from regard.data.readers.image_lists import list_captioned, list_labelled
from regard.data.readers.inputs import read_inputs
from regard.data.readers.pairs import read_pairs
from regard.data.readers.yolo import list_yolo, yolo_parts
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.recognise import recognise

REVIEWS = [Labelled("good, really", "pos"), Labelled('bad "film"', "neg"), Labelled("über alles", "pos")]
ROWS = [{"text": e.text, "label": e.label} for e in REVIEWS]


def table(separator: str, newline: str = "\n", header: str = "text,label") -> str:
    lines = [header.replace(",", separator)]
    for e in REVIEWS:
        text = e.text.replace('"', '""')
        lines.append(
            f'"{text}"{separator}{e.label}' if set(e.text) & set(separator + '"') else f"{e.text}{separator}{e.label}"
        )
    return newline.join(lines) + newline


WILD = {
    # csv.writer of Python, pandas.DataFrame.to_csv(index=False)
    "python.csv": table(",").encode(),
    # pandas 3.1: df.to_csv() with its index, whose column has no name
    "pandas.csv": b"".join(
        f"{'' if i == 0 else i - 1},{line}\n".encode() for i, line in enumerate(table(",").splitlines())
    ),
    # pandas 3.1: df.to_csv(sep="\t"), which doubles quotes
    "pandas.tsv": table("\t").encode(),
    # pandas 3.1: df.to_csv("x.csv.gz"), .bz2, .xz
    "pandas.csv.gz": gzip.compress(table(",").encode()),
    "pandas.csv.bz2": bz2.compress(table(",").encode()),
    "pandas.csv.xz": lzma.compress(table(",").encode()),
    # Excel 365, German: "CSV UTF-8 (durch Trennzeichen getrennt)"
    "excel-german.csv": b"\xef\xbb\xbf" + table(";", "\r\n").encode(),
    # Excel 365: "Unicode Text", renamed
    "excel-unicode.csv": b"\xff\xfe" + table("\t", "\r\n").encode("utf-16-le"),
    # Excel for Mac: "CSV (Macintosh)" ends lines by carriage returns
    "excel-mac.csv": table(",", "\r").encode(),
    # Excel reads its separator from a first line, and exporters write it
    "sep.csv": b"sep=;\r\n" + table(";", "\r\n").encode(),
    # LibreOffice 24: all cells in quotes
    "libreoffice.csv": b'"text","label"\n"good, really","pos"\n"bad ""film""","neg"\n"\xc3\xbcber alles","pos"\n',
    # MySQL: SELECT … INTO OUTFILE … FIELDS TERMINATED BY ',' ENCLOSED BY '"'; Spark's csv too
    "mysql.csv": '"text","label"\n"good, really","pos"\n"bad \\"film\\"","neg"\n"über alles","pos"\n'.encode(),
    # PostgreSQL: COPY … WITH (FORMAT csv, DELIMITER '|', HEADER)
    "postgres.csv": table("|").encode(),
    # Kaggle's IMDB: other names, other order
    "names.csv": "Sentiment,Review\npos,\"good, really\"\nneg,\"bad \"\"film\"\"\"\npos,über alles\n".encode(),
    # pandas 3.1: df.to_json(orient="records"), also with lines=True, and the default, by columns
    "records.json": json.dumps(ROWS).encode(),
    "lines.json": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "lines.ndjson": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "columns.json": json.dumps({key: {str(i): row[key] for i, row in enumerate(ROWS)} for key in ROWS[0]}).encode(),
    "split.json": json.dumps(
        {"columns": ["text", "label"], "index": [0, 1, 2], "data": [list(row.values()) for row in ROWS]}
    ).encode(),
    "lists.json": json.dumps({key: [row[key] for row in ROWS] for key in ROWS[0]}).encode(),
    # {"data": […]}, and the rows of the Hub's viewer
    "data.json": json.dumps({"version": 1, "data": ROWS}).encode(),
    "viewer.json": json.dumps({"rows": [{"row_idx": i, "row": row} for i, row in enumerate(ROWS)]}).encode(),
    # SetFit's datasets: numbers with their names beside them
    "setfit.jsonl": "".join(
        json.dumps({"text": e.text, "label": int(e.label == "pos"), "label_text": e.label}) + "\n" for e in REVIEWS
    ).encode(),
    # fastText 0.9
    "fasttext.txt": "".join(f"__label__{e.label} {e.text}\n" for e in REVIEWS).encode(),
    # UCI's SMS Spam Collection: no header and no suffix
    "SMSSpamCollection": "".join(f"{e.text}\t{e.label}\n" for e in REVIEWS).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", WILD)
def test_reviews_in_every_format(tmp_path, name):
    (tmp_path / name).write_bytes(WILD[name])
    assert read_examples(tmp_path / name, "classify") == REVIEWS


def test_tables_of_arrow_keep_the_names_of_classes(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    # datasets 5.2: Dataset.to_parquet and save_to_disk store the features in the schema
    features = {
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "text": {"dtype": "string", "_type": "Value"},
    }
    columns = {"text": [e.text for e in REVIEWS], "label": [int(e.label == "pos") for e in REVIEWS]}
    whole = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(whole, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(whole, tmp_path / "a.feather")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, whole.schema) as writer:
        writer.write_table(whole)
    for name in ("a.parquet", "a.feather", "a.arrow"):
        assert read_examples(tmp_path / name, "classify") == REVIEWS, name
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    (tmp_path / "a.arrow").rename(saved / "data-00000-of-00001.arrow")
    (saved / "state.json").write_text("{}")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert read_examples(saved, "classify") == REVIEWS
    assert ExamplesConfig(train=str(tmp_path / "saved")).parts == {"train": str(saved)}
    assert read_examples(tmp_path / "a.parquet", "classify", names=("bad", "good"))[1].label == "bad"
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(ValueError, match=r"b.parquet cannot be read as .parquet .*; write it again"):
        read_examples(tmp_path / "b.parquet", "classify")


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(WILD["lines.ndjson"]))
    assert read_examples(tmp_path / "a.jsonl.zst", "classify") == REVIEWS
    (tmp_path / "b.jsonl.zst").write_bytes(b"no zstandard")
    with pytest.raises(ValueError, match="b.jsonl.zst is cut short or not packed as .zst"):
        read_examples(tmp_path / "b.jsonl.zst", "classify")


SQUAD = {
    "version": "v2.0",
    "data": [{"title": "Anna", "paragraphs": [{"context": "Anna was born in Rome.", "qas": [
        {"id": "1", "question": "Where?", "is_impossible": False, "answers": [{"text": "Rome", "answer_start": 17}]},
        {"id": "2", "question": "When?", "is_impossible": True, "answers": [],
         "plausible_answers": [{"text": "Rome", "answer_start": 17}]},
    ]}]}],
}  # fmt: skip
TOKENS = {"tokens": ["Anna", "saw", "New", "York"]}
ENTITIES = Tagged("Anna saw New York", (Entity(0, 4, "PER"), Entity(9, 17, "LOC")))


@pytest.mark.parametrize(
    ("name", "content", "task", "first"),
    [
        ("train-v2.0.json", SQUAD, "answer", Question("Where?", "Anna was born in Rome.", "Rome", 17)),
        # datasets: rows of squad, tweet_eval, conll2003, stsb
        (
            "squad.json",
            [{"context": "In Rome.", "question": "Where?", "answers": {"text": ["Rome"], "answer_start": [3]}}],
            "answer",
            Question("Where?", "In Rome.", "Rome", 3),
        ),
        ("conll2003.json", [TOKENS | {"ner_tags": ["B-PER", "O", "B-LOC", "I-LOC"]}], "tag", ENTITIES),
        ("doccano.json", [{"text": ENTITIES.text, "label": [[0, 4, "PER"], [9, 17, "LOC"]]}], "tag", ENTITIES),
        (
            "prodigy.json",
            [{"text": ENTITIES.text, "spans": [asdict(entity) for entity in ENTITIES.entities]}],
            "tag",
            ENTITIES,
        ),
        ("mnli.json", [{"premise": "p", "hypothesis": "h", "label": 1}], "classify", Labelled("p", "1", "h")),
        ("stsb.json", [{"sentence1": "a", "sentence2": "b", "label": 5.0}], "embed", Similar("a", "b", 1.0)),
        ("a.json", [{"instruction": "Add.", "input": "1 1", "output": "2"}], "instruct", Instruction("Add.\n1 1", "2")),
        (
            "chat.json",
            [{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}],
            "instruct",
            Instruction("Hi", "Ho"),
        ),
    ],
)  # fmt: skip
def test_json_of_other_programs(tmp_path, name, content, task, first):
    (tmp_path / name).write_text(json.dumps(content))
    assert read_examples(tmp_path / name, task)[0] == first
    assert recognise(str(tmp_path / name))[0] in (task, "classify")


def test_words_with_tags(tmp_path):
    # GermEval 2014: a comment, numbered words, two columns of tags, of which the last is of nested entities
    (tmp_path / "germeval.tsv").write_text("#\thttp://a.de [2010]\n1\tAnna\tO\tB-PER\n2\tsah\tO\tO\n3\tRom\tO\tB-LOC\n")
    [example] = read_examples(tmp_path / "germeval.tsv", "tag")
    assert example == Tagged("Anna sah Rom", (Entity(0, 4, "PER"), Entity(9, 12, "LOC")))
    (tmp_path / "train.txt").write_text("-DOCSTART- -X- -X- O\n\nAnna NNP B-NP B-PER\n")  # CoNLL-2003
    assert read_examples(tmp_path / "train.txt", "tag") == [Tagged("Anna", (Entity(0, 4, "PER"),))]


def test_translations(tmp_path):
    # datasets: opus_books
    (tmp_path / "a.jsonl").write_text('{"id": "1", "translation": {"en": "one", "de": "eins"}}\n')
    assert read_pairs(None, None, str(tmp_path / "a.jsonl"), ("source", "target")) == [("one", "eins")]
    assert read_pairs(None, None, str(tmp_path / "a.jsonl"), ("de", "en")) == [("eins", "one")]
    (tmp_path / "a.csv").write_text('source,target\n"one, two","eins, zwei"\n')
    assert read_pairs(None, None, str(tmp_path / "a.csv"), ("source", "target")) == [("one, two", "eins, zwei")]


@pytest.mark.parametrize(
    ("name", "content", "task", "message"),
    [
        ("a.xlsx", b"PK", "classify", "a.xlsx: classify reads .*; save it as CSV UTF-8 in the spreadsheet"),
        ("a.pkl", b"\x80\x04", "classify", "pickles can run code and are never loaded; save it with to_parquet"),
        ("a.zip", b"PK", "classify", "unpack it with unzip"),
        ("a.csv", "text,label\ncafé,x\n".encode("latin-1"), "classify", "line 2: not UTF-8; .*latin1.*'é' in latin-1"),
        ("a.csv", "text,label\na,x\n".encode("utf-16-le"), "classify", "zero bytes: .* save it as UTF-8"),
        ("a.csv.gz", b"text,label\n", "classify", "a.csv.gz is cut short or not packed as .gz"),
        ("a.csv.gz", gzip.compress(b"a" * (1 << 27)), "classify", "unpack to more than 67,108,864; .* name a.csv"),
        # Kaggle's SMS Spam: a header that says nothing
        (
            *("spam.csv", "v1,v2,,\n" + "".join(f"{'no' if i % 3 else 'yes'},call me {i} times,,\n" for i in range(9))),
            *("classify", "it looks like a header .*--data.columns text=v2,label=v1 .or --data.header false"),
        ),
        # a number, a text and a label: no second text
        (
            *("id.tsv", "".join(f"{i}\tcall me at {i} now\t{'ham' if i % 3 else 'spam'}\n" for i in range(9))),
            *("classify", "three columns and no header.*--data.columns text=2,label=3"),
        ),
        ("b.csv", "a,b,score\nx,y,3\nx,z,2\n", "embed", "the score 3 is not from 0 to 1; say .*--data.scale 5"),
        ("t.jsonl", json.dumps(TOKENS | {"ner_tags": [1, 0, 5, 6]}), "tag", "without names; .*--data.names O,B-PER"),
        ("t.jsonl", json.dumps(TOKENS | {"ner_tags": ["O"]}), "tag", "4 tokens and 1 tags; give one tag for each"),
        ("g.jsonl", '{"text": "a", "labels": [1, 2]}', "classify", "got 2 labels; one is learnt for each text"),
        ("p.json", json.dumps({"train": ROWS, "test": ROWS}), "classify", "several arrays .train, test.; write each"),
        ("p.json", '{"text": "a"', "classify", "p.json, line 1: not JSON"),
        ("p.txt", "just a text\n", "classify", "these have no labels"),
        ("hf:nobody/no thing", None, "classify", "datasets are named hf:owner/name"),
    ],
)  # fmt: skip
def test_refused_in_one_line(tmp_path, name, content, task, message):
    path = name if content is None else tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as error:
        read_examples(path, task)
    assert "\n" not in str(error.value)


def test_what_was_understood_is_told(tmp_path):
    rows = [
        ("fine", "pos"),
        ("fine", "neg"),
        *((f"so {i}", "pos" if i % 2 else "neg") for i in range(8)),
        ("odd", "rare"),
    ]
    (tmp_path / "train.csv").write_text(
        "Review;Sentiment;id\n" + "".join(f"{a};{b};{i}\n" for i, (a, b) in enumerate(rows))
    )
    (tmp_path / "test.csv").write_text("Review;Sentiment;id\nfine;pos;1\nnew;other;2\nnan;pos;3\n")
    data = ExamplesConfig(train=str(tmp_path))
    train, test = data.overview()
    assert (train.columns, train.unused, train.header) == ({"text": "Review", "label": "Sentiment"}, ("id",), True)
    assert train.labels == {"pos": 5, "neg": 5, "rare": 1} and train.examples[0] == '"fine" → pos'
    text = "\n".join(train.lines() + test.lines())
    for words in (
        "text ← Review, label ← Sentiment; not used: id", "3 labels: neg 5, pos 5, rare 1", "separated by semicolons",
        "1 label with one example only: 'rare'", "1 text occurs again, 1 of them with another label",
        "1 in test has a label that training lacks, and can only be wrong: 'other'",
        "1 of 3 in test are in training too", "1 texts are nan",
    ):  # fmt: skip
        assert words in text, (words, text)
    assert json.loads(json.dumps(train.as_json()))["labels"]["rare"] == 1
    learnt, held = data.split()
    assert "rare" in {e.label for e in learnt} and "rare" not in {e.label for e in held}


def test_one_label_alone_and_labels_for_each_example_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"text {i},x\n" for i in range(30)))
    assert "nothing to tell apart" in str(ExamplesConfig(train=str(tmp_path / "a.csv")).overview()[0].notes)
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"text {i},{i}\n" for i in range(30)))
    assert "30 labels for 30 examples: is another" in str(
        ExamplesConfig(train=str(tmp_path / "a.csv")).overview()[0].notes
    )


def test_scores_of_all_files_have_the_scale_of_training(tmp_path):
    (tmp_path / "train.csv").write_text("a,b,score\nx,y,5\nx,z,2.5\n")
    (tmp_path / "test.csv").write_text("a,b,score\nx,y,1\n")
    data = ExamplesConfig(task="embed", train=str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv"))
    assert [e.score for e in data.read(data.train)] == [1.0, 0.5] and data.held_out()[0].score == 0.2
    assert "  scores: 0 to 5, divided by 5 (--data.scale sets another)" in data.overview()[0].lines()


@pytest.mark.parametrize(
    ("content", "texts", "seconds"),
    [
        ("text,label\nfine,pos\nbad,neg\n", ["fine", "bad"], None),
        ("fine\nbad\n", ["fine", "bad"], None),
        ("review\nfine\n", ["fine"], None),
        ("premise;hypothesis\na;b\n", ["a"], ["b"]),
        ("very fine,pos\nvery bad,neg\n", ["very fine", "very bad"], None),
    ],
)
def test_inputs_are_texts_without_header_and_label(tmp_path, content, texts, seconds):
    (tmp_path / "x.csv").write_text(content)
    inputs = read_inputs(tmp_path / "x.csv")
    assert (inputs.texts, inputs.seconds) == (texts, seconds)


@pytest.mark.parametrize(
    ("content", "texts", "seconds"),
    [
        ('{"premise": "a", "hypothesis": "b", "label": 1}\n', ["a"], ["b"]),
        ('{"text": "a", "second": "b"}\n{"text": "c", "second": "d"}\n', ["a", "c"], ["b", "d"]),
        ('{"id": 7, "prompt": "a", "text": "x"}\n{"source": "b"}\n', ["a", "b"], None),
    ],
)
def test_inputs_of_objects_keep_the_second_text(tmp_path, content, texts, seconds):
    (tmp_path / "x.jsonl").write_text(content)
    query = Query("classify", str(tmp_path), (), tmp_path / "x.jsonl", None, False)
    assert query.texts == texts and query.inputs.seconds == seconds


def test_the_hub_out_of_reach_is_one_line(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def offline(*args, **kwargs):
        raise OSError("offline\nmode")

    monkeypatch.setattr(hub.HfApi, "list_repo_files", offline)
    with pytest.raises(ValueError, match="hf:a/b could not be fetched from the Hub .offline mode.; try with a conn"):
        read_examples("hf:a/b", "classify")
    monkeypatch.setattr(hub.HfApi, "list_repo_files", lambda *a, **k: ["x/train/0000.parquet", "y/train/0000.parquet"])
    with pytest.raises(ValueError, match="its configurations are x, y"):
        read_examples("hf:a/b", "classify")
    with pytest.raises(ValueError, match="no split 'test', only train"):
        read_examples("hf:a/b/x:test", "classify")


# ---- images -------------------------------------------------------------------------------------------------------


def image(path, shade=0, size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, 0, 0)).save(path)
    return path


def idx(path, array, packed):
    raw = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if packed else raw)


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path, packed):
    end = ".gz" if packed else ""
    for part, count in {"train": 5, "t10k": 2}.items():  # as in MNIST and Fashion-MNIST
        idx(tmp_path / f"{part}-images-idx3-ubyte{end}", np.full((count, 4, 3), count, dtype=np.uint8), packed)
        idx(tmp_path / f"{part}-labels-idx1-ubyte{end}", np.arange(count, dtype=np.uint8), packed)
    pixels, labels, names = read_arrays(tmp_path, "train")
    assert (pixels.shape, labels.tolist(), names) == ((5, 4, 3, 1), [0, 1, 2, 3, 4], ("0", "1", "2", "3", "4"))
    assert has_test(str(tmp_path)) and len(read_arrays(tmp_path, "test")[0]) == 2
    assert len(read_arrays(tmp_path / f"train-images-idx3-ubyte{end}", "train")[0]) == 5
    (tmp_path / f"train-images-idx3-ubyte{end}").write_bytes(
        gzip.compress(b"\0\0\x08\x01\0\0\0\x09") if packed else b"\0\0\x08\x01\0\0\0\x09"
    )
    with pytest.raises(ValueError, match="takes 9 bytes, but it has 0; fetch it again"):
        read_arrays(tmp_path, "train")


def test_roots_with_parts(tmp_path):
    for part, count in {"train": 3, "val": 2, "test": 1}.items():
        for label in ("cat", "dog"):
            for i in range(count):
                image(tmp_path / part / label / f"{i}.png")
    assert [file.label for file in list_labelled(str(tmp_path))] == ["cat"] * 3 + ["dog"] * 3
    kind, config = recognise(str(tmp_path))
    assert kind == "images" and [part.count for part in config.overview()] == [6, 4, 2]
    assert [len(part) for part in config.split()] == [6, 4] and len(config.held_out()) == 2


def tar(path, files):
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def test_shards_of_webdataset(tmp_path):
    # webdataset 1.0: TarWriter
    png = image(tmp_path / "x.png", 200).read_bytes()
    (tmp_path / "x.png").unlink()
    tar(tmp_path / "0.tar", {"a.png": png, "a.cls": b"3", "b.png": png, "b.cls": b"1"})
    files = list_labelled(str(tmp_path / "0.tar"))
    assert [file.label for file in files] == ["3", "1"] and files[1].read().getpixel((0, 0)) == (200, 0, 0)
    tar(tmp_path / "1.tar", {"c.png": png, "c.json": b'{"label": "cat", "caption": "A cat."}'})
    assert [file.label for file in list_labelled(str(tmp_path))] == ["3", "1", "cat"]
    assert list_captioned(tmp_path / "1.tar")[1] == [("A cat.",)]
    with pytest.raises(ValueError, match="a.png: no caption beside it, only .cls; add a .txt or"):
        list_captioned(tmp_path / "0.tar")
    (tmp_path / "1.tar").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="1.tar is cut short or no tar file"):
        list_labelled(str(tmp_path / "1.tar"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.txt", "image,caption\na.jpg,A dog , a cat .\na.jpg,Two .\nb.jpg,One .\n"),  # Kaggle's Flickr8k
        ("Flickr8k.token.txt", "a.jpg#0\tA dog , a cat .\na.jpg#1\tTwo .\nb.jpg#0\tOne .\n"),
        ("results.csv", "image_name| number| comment\na.jpg| 0| A dog , a cat .\na.jpg| 1| Two .\nb.jpg| 0| One .\n"),
    ],
)  # fmt: skip
def test_captions_of_flickr(tmp_path, name, content):
    image(tmp_path / "Images" / "a.jpg"), image(tmp_path / "Images" / "b.jpg")
    (tmp_path / name).write_text(content)
    files, captions = list_captioned(tmp_path / name)
    assert [file.path.name for file in files] == ["a.jpg", "b.jpg"]
    assert captions == [("A dog , a cat .", "Two ."), ("One .",)]


def test_captions_of_coco(tmp_path):
    image(tmp_path / "val2017" / "a.jpg")
    stored = {"images": [{"id": 7, "file_name": "a.jpg"}], "annotations": [{"image_id": 7, "caption": "A dog."}]}
    (tmp_path / "captions_val2017.json").write_text(json.dumps(stored))
    assert list_captioned(tmp_path / "captions_val2017.json")[1] == [("A dog.",)]
    assert recognise(str(tmp_path / "captions_val2017.json"))[0] == "caption"


# labelImg 1.8.6: PascalVocWriter
XML = """<annotation><folder>x</folder><filename>{name}.jpg</filename><size><width>8</width><height>6</height>
<depth>3</depth></size><object><name>{label}</name><pose>Unspecified</pose><truncated>0</truncated>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>3</ymax></bndbox></object></annotation>"""


def test_image_sets_of_voc(tmp_path):
    for name, label in {"a": "cat", "b": "dog", "c": "cat"}.items():
        image(tmp_path / "JPEGImages" / f"{name}.jpg")
        (tmp_path / "Annotations").mkdir(exist_ok=True)
        (tmp_path / "Annotations" / f"{name}.xml").write_text(XML.format(name=name, label=label))
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nb\n")
    (lists / "val.txt").write_text("c\n")
    parts = voc_parts(str(tmp_path))
    assert {part: [file.path.stem for file in list_voc(lists / f"{name}.txt")[0]] for part, name in
            {"train": "train", "valid": "val"}.items()} == {"train": ["a", "b"], "valid": ["c"]}  # fmt: skip
    assert parts == {"train": str(lists / "train.txt"), "valid": str(lists / "val.txt")}
    kind, config = recognise(str(tmp_path))
    assert kind == "detect" and [part.labels for part in config.overview()] == [{"cat": 1, "dog": 1}, {"cat": 1}]
    (lists / "train.txt").write_text("a\nz\n")
    with pytest.raises(ValueError, match="no such file: .*z.xml; leave z out of the list"):
        list_voc(lists / "train.txt")


@pytest.mark.parametrize(
    "names",
    ["names: ['cat', 'dog']", "names:\n- cat\n- dog", "names:\n  0: cat\n  1: dog", 'names: {0: "cat", 1: "dog"}'],
)
def test_yolo(tmp_path, names):
    # Roboflow's and Ultralytics' exporters write data.yaml; the folders are train/images or images/train
    for part in ("train", "valid"):
        image(tmp_path / part / "images" / "a.jpg"), image(tmp_path / part / "images" / "b.jpg")
        (tmp_path / part / "labels").mkdir()
        (tmp_path / part / "labels" / "a.txt").write_text("1 0.5 0.5 0.5 0.5\n0 0.1 0.1 0.3 0.1 0.3 0.5\n")
    (tmp_path / "data.yaml").write_text(f"train: ../train/images  # here\nval: ../valid/images\n\nnc: 2\n{names}\n")
    parts = yolo_parts(str(tmp_path))
    assert list(parts) == ["train", "valid"]
    (first, second), known = list_yolo(parts["train"])
    assert known == ("cat", "dog") and second.objects == ()
    assert first.objects[0] == ("dog", (2.0, 1.5, 6.0, 4.5))
    assert first.objects[1][1] == pytest.approx((0.8, 0.6, 2.4, 3.0))
    kind, config = recognise(str(tmp_path))
    assert kind == "detect" and [part.count for part in config.overview()] == [2, 2]
    (tmp_path / "train" / "labels" / "a.txt").write_text("1 4 3 2 2\n")
    with pytest.raises(ValueError, match="a.txt, line 1: YOLO's numbers are shares of the sides"):
        list_yolo(parts["train"])
    (tmp_path / "train" / "labels" / "a.txt").write_text("2 0.5 0.5 0.1 0.1\n")
    with pytest.raises(ValueError, match="class 2, but there are 2 names"):
        list_yolo(parts["train"])


def test_yolo_of_labelimg(tmp_path):
    image(tmp_path / "a.jpg")
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    with pytest.raises(ValueError, match="neither data.yaml nor classes.txt; write the names"):
        list_yolo(str(tmp_path))
    (tmp_path / "classes.txt").write_text("cat\n")
    assert list_yolo(str(tmp_path))[0][0].objects == (("cat", (2.0, 1.5, 6.0, 4.5)),)


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "id;Subject;Body;label\n1;Hi;you there;x\n2;;only this;y\n", "Subject+body"),
        ("a.tsv", "Hi\tyou there\tx\n\tonly this\ty\n", "1+2"),
        ("a.jsonl", '{"s": "Hi", "b": "you there", "label": "x"}\n{"b": "only this", "label": "y"}\n', "s+b"),
    ],
)
def test_several_columns_are_one_text(tmp_path, name, content, columns):
    (tmp_path / name).write_text(content)
    label = "3" if columns == "1+2" else "label"
    given = ExamplesConfig(train=str(tmp_path / name), columns=(f"text={columns}", f"label={label}"))
    examples = given.read(given.train)
    assert examples == [Labelled("Hi\nyou there", "x"), Labelled("only this", "y")]
    assert set(examples.chosen.unused) <= {"id"}, "what is joined is used"
    assert read_inputs(tmp_path / name, {"text": columns, "label": label}).texts == ["Hi\nyou there", "only this"]


def test_a_joined_column_that_is_not_there_gets_the_nearest(tmp_path):
    (tmp_path / "a.csv").write_text("subject,body,label\na,b,c\n")
    with pytest.raises(ValueError, match="there is no column 'subjct', only .*; did you mean 'subject'"):
        ExamplesConfig(train=str(tmp_path / "a.csv"), columns=("text=subjct+body",)).read(str(tmp_path / "a.csv"))
    with pytest.raises(ValueError, match="several are joined by"):
        ExamplesConfig(train="a.csv", columns=("text=subject", "body"))
    (tmp_path / "b.csv").write_text("a+b,label\nx y,c\n")
    named = ExamplesConfig(train=str(tmp_path / "b.csv"), columns=("text=a+b",))
    assert named.read(named.train) == [Labelled("x y", "c")], "a name may have the sign"


def test_a_suggestion_prefers_names_to_numbers(tmp_path):
    rows = [f"{i};some words are here {i};{i % 2};{'ja nein'.split()[i % 2] if i % 5 else ''}" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["Nr;Nachricht;Code;Urteil", *rows]))
    with pytest.raises(ValueError, match="--data.columns text=Nachricht,label=Urteil"):
        read_examples(tmp_path / "a.csv", "classify")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_names_for_numbers_are_suggested(tmp_path, suffix):
    rows = [{"text": f"text {i} is here", "label": i % 2, "kind": "ham spam".split()[i % 2], "id": i} for i in range(9)]
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        path.write_text("\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (overview,) = ExamplesConfig(train=str(path)).overview()[:1]
    note = "'kind' has names for the numbers in 'label'; to learn those: --data.columns label=kind"
    assert any(note in line for line in overview.lines())
    assert {e.label for e in read_examples(path, "classify")} == {"0", "1"}, "a file without names has the same labels"
    assert {e.label for e in read_examples(path, "classify", {"label": "kind"})} == {"ham", "spam"}
