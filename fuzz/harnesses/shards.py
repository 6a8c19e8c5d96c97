"""Tar files in webdataset's layout, plain; packed ones are refused."""

import io
import json
import tarfile

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import put
from regard.data.readers.image_lists import list_captioned, list_labelled

READS = ("regard.data.readers.shards",)


def seeds() -> list[bytes]:
    """Return two images with labels and captions beside them."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in (
            ("a.png", images()[0]),
            ("a.cls", b"1"),
            ("a.txt", b"a bird"),
            ("b.png", images()[1]),
            ("b.cls", b"0"),
            ("b.json", json.dumps({"caption": "x", "label": 1}).encode()),
            ("b.txt", b"a horse"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    raw = file.getvalue()[:8192]
    return [raw]


def run(data: bytes) -> None:
    """List labels and captions, and read the images."""
    path = str(put("shard.tgz" if data[:2] == b"\x1f\x8b" else "shard.tar", data))
    for file in list_labelled(path):
        file.read()
    list_captioned(path)
