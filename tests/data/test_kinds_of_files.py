"""Devices, FIFOs, loops of links and files that unpack to far more than they are: refused by kind or by size."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.config import read_json, read_toml
from regard.data.checksums import checksum
from regard.data.readers import arrays, image_files, packed
from regard.data.readers.annotations import list_coco, list_voc, read_coco
from regard.data.readers.image_files import read_image
from regard.data.readers.tables import read_table
from regard.data.readers.text_files import read_lines, read_text
from regard.data.readers.yolo import list_yolo
from regard.files import check_regular, missing, read_bytes
from regard.hub import load_model
from regard.hub.adapter import fingerprint
from regard.hub.files import read_shard
from regard.tokens import Tokenizer
from regard.tokens.spm import read_pieces
from regard.train.loop import read_metrics

READERS = {
    "lines": read_lines,
    "text": lambda path: read_text((str(path),)),
    "table": lambda path: read_table(path, kind=".csv"),
    "coco": read_coco,
    "image": read_image,
    "npz": lambda path: arrays.read_arrays(path, "train"),
    "json": read_json,
    "toml": read_toml,
    "weights": read_shard,
    "tokenizer": Tokenizer.load,
    "pieces": read_pieces,
    "metrics": read_metrics,
}


def fifo(folder):
    os.mkfifo(folder / "a.json")
    return folder / "a.json", "is a FIFO; give a regular file"


def loop(folder):
    (folder / "a.json").symlink_to(folder / "b.json")
    (folder / "b.json").symlink_to(folder / "a.json")
    return folder / "a.json", "loop of links; give a regular file|no such file"


def device(folder):
    (folder / "a.json").symlink_to("/dev/zero")
    return folder / "a.json", "is a device; give a regular file"


def nothing(folder):
    (folder / "a.json").symlink_to(folder / "b.json")
    return folder / "a.json", "is a link to a file that is not there"


def folder(folder):
    (folder / "a.json").mkdir()
    return folder / "a.json", "is a directory|is a folder"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [fifo, loop, device, folder])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file(tmp_path, kind, reader):
    path, message = kind(tmp_path)
    if reader == "tokenizer" and kind is folder:
        message += "|no such file"  # it is one in which to look for a tokenizer
    with pytest.raises(ValueError, match=message) as caught:
        READERS[reader](path)
    assert "a.json" in str(caught.value) and "\n" not in str(caught.value)


VOC = b"<annotation><filename>a.png</filename><object><name>bird</name>%s</object></annotation>" % (
    b"<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>5</ymax></bndbox>"
)
COCO = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": [], "categories": [{"id": 1, "name": "bird"}]}
SETS = {
    "voc": (list_voc, {"Annotations/a.xml": VOC, "JPEGImages/a.png": None}),
    "yolo": (list_yolo, {"classes.txt": b"bird", "images/a.png": None, "labels/a.txt": b"0 0.5 0.5 0.1 0.1"}),
    "coco": (list_coco, {"a.json": json.dumps(COCO).encode(), "images/a.png": None}),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [fifo, loop, device, nothing])
@pytest.mark.parametrize("layout", SETS)
def test_annotations_and_images_that_are_no_regular_files(tmp_path, kind, layout):
    read, parts = SETS[layout]
    source = tmp_path / "set"
    for name, content in parts.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if content else Image.new("L", (8, 8)).save(path)
    given = str(source) if layout == "yolo" else source
    assert len(read(given)[0]) == 1
    wrong, message = kind(tmp_path)
    for name in parts:
        kept = (source / name).read_bytes()
        (source / name).unlink()
        (source / name).symlink_to(wrong)
        with pytest.raises(ValueError, match=f"{message}|neither data.yaml nor classes.txt") as caught:
            read(given)
        assert Path(name).name in str(caught.value) and "\n" not in str(caught.value)
        (source / name).unlink()
        (source / name).write_bytes(kept)


@pytest.mark.parametrize("layout", ["coco", "voc"])
def test_annotations_name_no_file_outside_of_their_folders(tmp_path, layout):
    """Neither by `..` nor by an absolute path, unless its folder is named."""
    read, parts = SETS[layout]
    source, outside = tmp_path / "set", tmp_path / "private" / "a.png"
    for path in (outside, source / "images" / "b.png"):
        path.parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(path)
    annotation = source / next(iter(parts))
    annotation.parent.mkdir(exist_ok=True)
    for name in ("../private/a.png", "images/../../private/a.png", str(outside), "/etc/passwd"):
        annotation.write_bytes(parts[annotation.relative_to(source).as_posix()].replace(b"a.png", name.encode()))
        with pytest.raises(ValueError, match="is outside of the folders of this data; name the folder") as caught:
            read(source)
        assert annotation.name in str(caught.value) and "\n" not in str(caught.value)
        if "passwd" not in name:
            assert len(read(source, outside.parent)[0]) == 1
    for name in ("images/../images/b.png", str(source / "images" / "b.png")):
        annotation.write_bytes(parts[annotation.relative_to(source).as_posix()].replace(b"a.png", name.encode()))
        assert len(read(source)[0]) == 1


def test_a_data_yaml_with_a_name_that_is_too_long(tmp_path):
    (tmp_path / "data.yaml").write_text(f"train: {'a' * 5000}\nnames: [bird]\n")
    with pytest.raises(ValueError, match="data.yaml: no such folder: ") as caught:
        list_yolo(f"{tmp_path / 'data.yaml'}#train")
    assert len(str(caught.value)) < 1000


@pytest.mark.timeout(300)
def test_a_checkpoint_of_fifos(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ValueError, match=r"config.json is a FIFO; give a regular file"):
        load_model(tmp_path)
    os.mkfifo(tmp_path / "model.bin")
    with pytest.raises(ValueError, match="Not a directory"):
        load_model(tmp_path / "model.bin")
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors is a FIFO; give a regular file"):
        fingerprint(tmp_path)


@pytest.mark.timeout(300)
def test_checksums_pass_over_what_is_no_file(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    before = checksum(tmp_path)
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to(tmp_path / "c.txt")
    assert checksum(tmp_path) == before


def test_a_size_is_a_limit(tmp_path):
    (tmp_path / "a").write_bytes(bytes(11))
    assert check_regular(tmp_path / "a", 11) == 11 and read_bytes(tmp_path / "a", 11) == bytes(11)
    assert read_bytes(tmp_path / "a", 1 << 62) == bytes(11), "the limit takes no memory"
    with pytest.raises(ValueError, match="a has 11 bytes, at most 10 are read; give a smaller file"):
        read_bytes(tmp_path / "a", 10)
    with pytest.raises(ValueError, match="cannot be read .*null byte"):
        check_regular(tmp_path / "a\0b")


def test_arrays_that_unpack_to_far_more(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "HARMLESS", 1 << 16)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((200, 64, 64), np.uint8), y=np.zeros(200, np.int64))
    with pytest.raises(ValueError, match=r"a.npz: [\d,]+ bytes unpack to 82[\d,]+, at most [\d,]+ are read; .*savez"):
        arrays.read_arrays(tmp_path / "a.npz", "train")
    np.savez(tmp_path / "b.npz", x=np.zeros((200, 64, 64), np.uint8), y=np.zeros(200, np.int64))
    assert len(arrays.read_arrays(tmp_path / "b.npz", "train")[0]) == 200


@pytest.mark.parametrize("shape", [(2**44, 8, 8), (2**62, 2**62), (-1, 8, 8)])
def test_an_array_that_claims_what_it_has_not(tmp_path, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", header.getvalue() + bytes(100))
        file.writestr("y.npy", header.getvalue() + bytes(100))
    with pytest.raises(ValueError, match="a.npz") as caught:
        arrays.read_arrays(tmp_path / "a.npz", "train")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "options"), [("a.png", {}), ("a.tiff", {"compression": "tiff_deflate"})])
def test_images_of_too_many_pixels(tmp_path, monkeypatch, name, options):
    Image.new("1", (3000, 3000)).save(tmp_path / name, **options)
    assert (tmp_path / name).stat().st_size < 100_000
    monkeypatch.setattr(image_files, "MOST_PIXELS", 1 << 20)
    with pytest.raises(ValueError, match=f"{name} has 3,000 × 3,000 pixels, at most 1,048,576 are read"):
        read_image(tmp_path / name)


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "L"])
def test_transparent_parts_of_tall_images_are_white(mode):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (700, 5, 4), dtype=np.uint8), "RGBA").convert(mode)
    if mode in "PL":
        image.info["transparency"] = 3
    layer = image.convert("RGBA")
    whole = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    found = image_files.plain(image)
    assert found.mode == ("L" if mode in ("L", "LA") else "RGB") and found.size == image.size
    np.testing.assert_array_equal(np.asarray(found.convert("RGB")), np.asarray(whole.convert("RGB")))


def test_a_file_whose_name_is_nearly_right_is_named(tmp_path):
    from regard.data.readers.text_files import read_text

    (tmp_path / "messages.csv").write_text("text")
    with pytest.raises(ValueError, match=r"message\.csv: no such file; did you mean .*messages\.csv\?"):
        read_text((str(tmp_path / "message.csv"),))
    with pytest.raises(ValueError, match="no such file; check the path"):
        read_text((str(tmp_path / "other.parquet"),))
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    assert missing(tmp_path / "loop.csv").startswith("it is a link in a loop")
