"""Parquet and Arrow files of examples."""

from io import BytesIO

import pyarrow
import pyarrow.feather
import pyarrow.parquet

from fuzz.scratch import put
from regard.data.readers.examples import read_examples

READS = ("regard.data.readers.arrow",)


def seeds() -> list[bytes]:
    """Return a table in each format."""
    table = pyarrow.table({"text": ["a red bird", "a horse", "a cat"], "label": ["good", "bad", "bad"]})
    listed = pyarrow.table({"text": pyarrow.array(["a", "b", "a"]).dictionary_encode(), "label": [0, 1, 0]})
    out = []
    for content in (table, listed):
        file = BytesIO()
        pyarrow.parquet.write_table(content, file, compression="zstd")
        out.append(file.getvalue())
        file = BytesIO()
        with pyarrow.ipc.new_file(file, content.schema) as writer:
            writer.write_table(content)
        out.append(file.getvalue())
    file = BytesIO()
    with pyarrow.ipc.new_stream(file, table.schema, options=pyarrow.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return [*out, file.getvalue()]


def run(data: bytes) -> None:
    """Read the file as examples."""
    read_examples(put("table.parquet" if data[:4] == b"PAR1" else "table.arrow", data), "classify")
