"""Series: tables with dates as a file or a request brings them, cut into windows; and the format beside a model."""

from fuzz.scratch import put
from regard.data.readers.series_format import FILE, load_format
from regard.data.readers.series_tables import Columns, choose_columns, read_series, table_of, with_categories
from regard.data.sets.series_windows import SeriesConfig

READS = tuple(
    f"regard.data.{name}"
    for name in ("readers.dates", "readers.series_format", "readers.series_tables", "sets.series_windows")
)
WORDS = [b"date", b"ds", b"item_id", b"2024-01-01", b"2024-01-01T00:00:00Z", b"31.12.2024", b"29/02/2024", b"1e308",
         b"nan", b"inf", b"0000-00-00", b"9999-12-31", b",", b";", b"\n", b"24:00", b"+14:00", b"-1"]  # fmt: skip
FORMAT = b"""{"columns": {"date": "ds", "item": null, "targets": ["y"], "known": [], "observed": [], "categories": {}},
"season": 7, "calendar": false, "scales": {"": {"mean": [1.0], "std": [2.0]}},
"covariate_scale": {"mean": [], "std": []}}"""


def seeds() -> list[bytes]:
    """Return wide and long tables, and behind a byte 1 the format of a run."""
    days = [f"2024-01-{day:02}" for day in range(1, 31)]
    months = (1, 2, 4, 3, 5, 6, 7, 8, 10, 11, 12)
    tables = [
        ["date,a,b", *(f"{day},{i},{i % 7}" for i, day in enumerate(days))],
        ["ds;unique_id;y;weather", *(f"{day};{name};{i},5;rain" for name in "xy" for i, day in enumerate(days))],
        ["month,y", *(f"2024-{month:02},{month}" for month in months)],
        ["year\ty", *(f"{1700 + i}\t{i}" for i in range(12))],
        ["" if i == 5 else f"{i}.5" for i in range(12)],
    ]
    return [*("\n".join(lines).encode() for lines in tables), b"\x01" + FORMAT]


def run(data: bytes) -> None:
    """Read the series and cut them into windows; or read a format."""
    if data[:1] == b"\x01":
        load_format(put(FILE, data[1:]).parent)
        return
    table = table_of(data)
    columns = with_categories(table, choose_columns(table, Columns()))
    read_series(table, columns)
    loaded = SeriesConfig(series="table.csv", calendar=data[:1] == b"d").arranged(table)
    for part in ("train", "valid", "test"):
        windows = loaded.windows(part)
        windows.batch(range(min(3, len(windows))))
