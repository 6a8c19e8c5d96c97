"""Series: tables of values over time, or numbers, read by columns and scales that are saved as `series.json`."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.data.readers.series_format import FILE, load_format, save_format
from regard.data.readers.series_tables import as_csv, table_of
from regard.data.readers.tables import Table
from regard.modalities.base import Modality
from regard.registry import register_modality


def read(item: Any) -> Table:
    """The rows of a table, from a file, the bytes of a CSV file, numbers, or a data frame."""
    if isinstance(item, Tensor):
        item = item.detach().cpu().numpy()
    return table_of(item)


def write(item: Any, folder: Path) -> Path:
    """Save a series in any form as a CSV file in a folder."""
    (folder / "series.csv").write_text(as_csv(read(item)), encoding="utf-8")
    return folder / "series.csv"


SERIES = register_modality("series")(
    Modality(
        name="series", suffixes=(".csv", ".tsv", ".parquet"), types=(Table, np.ndarray, Tensor, list, tuple, bytes),
        file=FILE, load=load_format, save=save_format, read=read, unit="steps", field="series",
        value=str | list[float | None] | list[list[float | None]], accept=".csv,.tsv,text/csv", write=write,
        send=lambda item: "data:text/csv;base64," + base64.b64encode(as_csv(read(item)).encode()).decode(),
    )
)  # fmt: skip
