"""Three real series that come with `statsmodels`: demand for electricity, carbon dioxide, and sunspots.

electricity   megawatts in Victoria, Australia, every hour of January to May 2012 (Australian Energy Market Operator)
co2           parts per million on Mauna Loa, every week of 1958 to 2001 (Keeling and Whorf, 2004)
sunspots      the mean number in every year from 1700 to 2008 (National Geophysical Data Center)
"""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

Name = Literal["electricity", "co2", "sunspots"]
NEEDS = "the series come with statsmodels, which is not installed: pip install 'regard[series]'"


@dataclass(frozen=True, slots=True)
class Embedded:
    """A file of the package, the sha256 of its content, and sizes that suit it."""

    path: str
    sha256: str
    season: int
    horizon: int
    context: int
    patch: int
    target: str


EMBEDDED: dict[str, Embedded] = {
    "electricity": Embedded(
        "tsa/stl/tests/results/mstl_elec_vic.csv",
        "e772d225333d969376ce7429e518c6a3b6b69d620c73c6c4959b806d3e947a23",
        season=168, horizon=24, context=336, patch=24, target="y",
    ),
    "co2": Embedded(
        "datasets/co2/co2.csv", "16695fa2786e53414e5a6b54767a3fdf5de99cfbc68617f69d1362d92776a92f",
        season=52, horizon=52, context=208, patch=26, target="co2",
    ),
    "sunspots": Embedded(
        "datasets/sunspots/sunspots.csv", "f67889b1d9002cd5227f0e0ef54e35b419cdd85a31279adef6f73fb41e5c0a9b",
        season=11, horizon=11, context=44, patch=11, target="SUNACTIVITY",
    ),
}  # fmt: skip


def path_of(name: str) -> Path:
    """The file of an embedded series, whose content is checked."""
    if (spec := find_spec("statsmodels")) is None or not spec.submodule_search_locations:
        raise ImportError(NEEDS)
    path = Path(spec.submodule_search_locations[0]) / EMBEDDED[name].path
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != EMBEDDED[name].sha256:
        raise ValueError(f"this statsmodels has other data for {name}; install 0.14 or 0.15, or use --data.series FILE")
    return path
