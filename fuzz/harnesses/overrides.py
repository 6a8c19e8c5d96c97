"""Fields on the command line: `--train.steps 100`, one `key=value` a line."""

import regard.recipes  # noqa: F401  registers them
from regard.config import flatten, override
from regard.runs.recipe import configure, recipe

READS = ("regard.config",)
BASE = recipe("translate")
WORDS = [
    b"\n",
    b"=",
    *(f"{name}=".encode() for name in flatten(BASE)),
    b"model.preset=big",
    b"model=gpt",
    b"1e3",
    b"none",
    b"true",
    b"1,2",
]


def seeds() -> list[bytes]:
    """Return a few lines of fields that there are."""
    return [
        b"train.steps=100\nmodel.dim=64\nmodel.heads=4",
        b"model=transformer:big\ntrain.lr=none",
        b"data.pairs=x.tsv\ntrain.warmup=0.1",
    ]


def run(data: bytes) -> None:
    """Apply the fields to a recipe, first all at once and then by the command line's way."""
    lines = data.decode("utf-8", "replace").split("\n")
    changes = {key: value for key, _, value in (line.partition("=") for line in lines)}
    override(BASE, {key: value for key, value in changes.items() if "." in key})
    configure(BASE, changes)
