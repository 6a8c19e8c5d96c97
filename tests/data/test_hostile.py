"""Files that claim gigabytes, are nested without end, or hold values of unusual types: one line, soon."""

import datetime
import tarfile

import pytest

from regard.data.notices import listening
from regard.data.readers import arrow, hub_sets
from regard.data.readers.annotations import read_coco
from regard.data.readers.coco_captions import read_captions
from regard.data.readers.examples import as_list, read_examples
from regard.data.readers.inputs import read_inputs
from regard.data.readers.shards import Member, list_members
from regard.data.sets.recognise import recognise

DEEP = "[" * 100_000
LIMIT = 1 << 24


@pytest.fixture
def pa(monkeypatch):
    monkeypatch.setattr(arrow, "MOST_BYTES", LIMIT)
    return pytest.importorskip("pyarrow")


def write(pa, path, table, **options):
    """A table as parquet, as a file of arrow or, with .arrow, as a stream of it."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path, **options)
        return path
    kind = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file:
        with kind(file, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrow"])
def test_declared_sizes_are_checked_before_anything_is_unpacked(tmp_path, pa, name, monkeypatch):
    table = pa.table({"text": ["a" * (2 * LIMIT)], "label": ["x"]})
    path = write(pa, tmp_path / name, table, **({"compression": "zstd"} if name == "a.parquet" else {}))
    assert path.stat().st_size < LIMIT / 100
    monkeypatch.setattr(arrow, "batches_of", None)
    with pytest.raises(ValueError, match=rf"{name}: its rows take 0.0 GiB or more, at most 0 are read; split it"):
        arrow.read_arrow([path])


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrow"])
def test_the_size_is_that_of_all_files(tmp_path, pa, name):
    path = write(pa, tmp_path / name, pa.table({"text": [str(i) * 1000 for i in range(1000)], "label": ["x"] * 1000}))
    assert len(arrow.read_arrow([path, path])[0]) == 2000
    with pytest.raises(ValueError, match="its rows take"):
        arrow.read_arrow([path] * 50)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.arrow"])
def test_a_few_values_that_stand_for_many_rows(tmp_path, pa, name):
    indices = pa.array([0] * 1000, pa.int32())
    table = pa.table({"text": pa.DictionaryArray.from_arrays(indices, ["a" * (LIMIT // 20)])})
    with pytest.raises(ValueError, match="its rows take"):
        arrow.read_arrow([write(pa, tmp_path / name, table)])
    nested = pa.ListArray.from_arrays([0, 1000], table["text"].combine_chunks())
    if name != "a.parquet":
        with pytest.raises(ValueError, match="the column 'text' is list.*, which is not read.*; write it again"):
            arrow.read_arrow([write(pa, tmp_path / name, pa.table({"text": nested}))])


def test_many_empty_rows(tmp_path, pa):
    path = write(pa, tmp_path / "a.parquet", pa.table({"text": pa.nulls(LIMIT // 64)}))
    assert path.stat().st_size < 10_000
    with pytest.raises(ValueError, match="its rows take"):
        arrow.read_arrow([path])


@pytest.mark.parametrize("name", ["a.feather", "a.arrow"])
def test_damaged_messages_are_one_line(tmp_path, pa, name):
    raw = write(pa, tmp_path / name, pa.table({"text": ["a" * 100] * 50, "label": ["x"] * 50})).read_bytes()
    for place in range(8, min(len(raw), 900), 7):
        (tmp_path / name).write_bytes(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])
        try:
            arrow.read_arrow([tmp_path / name])
        except ValueError as error:
            assert name in str(error) and "\n" not in str(error)


def sparse(path, size):
    """A tar file with a text and an image, of which the text is sparse: it claims `size` bytes."""
    header = tarfile.TarInfo("a.txt")
    header.type = tarfile.GNUTYPE_SPARSE
    raw = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    raw[386:410] = b"%011o\0%011o\0" % (size, 0)  # one part: no bytes, at the end
    raw[483:495] = b"%011o\0" % size
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    path.write_bytes(bytes(raw) + bytes(1024))


def test_a_sparse_member_of_a_tar_is_refused(tmp_path):
    sparse(tmp_path / "a.tar", 1 << 27)
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getmembers()[0].size == 1 << 27, "as the file claims"
    with pytest.raises(ValueError, match="a.tar: a.txt is a sparse file; write the tar file without --sparse"):
        list_members(tmp_path / "a.tar")


def test_json_that_is_nested_too_deeply_names_the_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"images": [], "annotations": [], "caption": ' + DEEP)
    with pytest.raises(ValueError, match="a.json: not as in COCO"):
        list(read_captions(path))
    with pytest.raises(ValueError, match="a.json is not valid JSON"):
        read_coco(path)
    path.write_text(DEEP)
    with pytest.raises(ValueError, match="a.json: not JSON that can be read .nested too deeply."):
        recognise(str(path))
    with pytest.raises(ValueError, match="a.png: its .json is not JSON"):
        Member(tmp_path / "a.tar", "a.png", 0, 0, {"json": DEEP}).label("label")
    (tmp_path / "a.jsonl").write_text(DEEP + "\n")
    with pytest.raises(ValueError, match="a.jsonl: not JSON that can be read"):
        read_inputs(tmp_path / "a.jsonl")


def test_lists_in_cells_are_of_bounded_length_and_depth():
    assert as_list("['a', ['b', {'c': 1}]]") == ["a", ["b", {"c": 1}]]
    long, deep = "[" + "1," * 200_000 + "]", "[" * 150 + "]" * 150
    assert as_list(long) is long and as_list(deep) is deep


def test_dates_of_a_table_are_no_texts(tmp_path):
    pa = pytest.importorskip("pyarrow")
    day = datetime.date(2024, 5, 1)
    path = write(pa, tmp_path / "a.parquet", pa.table({"text": [day], "label": ["x"]}))
    with pytest.raises(ValueError, match='row 1: .text. is no text: "2024-05-01"; put it in quotes'):
        read_examples(path, "classify")
    path = write(pa, tmp_path / "a.parquet", pa.table({"text": ["a"], "entities": [[{"start": day}]]}))
    with pytest.raises(ValueError, match="an entity is like .*2024-05-01"):
        read_examples(path, "tag")
    path = write(pa, tmp_path / "a.parquet", pa.table({"question": ["a"], "context": ["b"], "answer": [day]}))
    with pytest.raises(ValueError, match="an answer is a text, .*2024-05-01"):
        read_examples(path, "answer")


def test_a_split_that_the_hub_keeps_in_part_is_said_once():
    said = []
    files = ["default/partial-train/0000.parquet", "default/test/0000.parquet"]
    with listening(lambda text, passing: said.append(text)):
        for split in ("train", "train", "test"):
            assert len(hub_sets.choose(files, None, split, "hf:own/partial")) == 1
    assert said == ["hf:own/partial: the Hub keeps only the first part of 'train' as parquet; the rest is not read"]
