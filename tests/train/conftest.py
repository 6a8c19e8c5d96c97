from pathlib import Path

import pytest

from regard.recipes import recipe

SMALL = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1,
    "data.vocab_size": 270,
    "train.steps": 30, "train.batch_tokens": 256, "train.eval_every": 10, "train.save_every": 10, "train.warmup": 5,
}  # fmt: skip
ONLY_TRANSFORMER = ("model.heads", "model.ffn_dim")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory) -> Path:
    """Phrases to translate; to make up the embedded ones takes longer than to train on them."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    colours = [("red", "rot"), ("blue", "blau"), ("green", "grün")] * 100
    lines = [f"{english} number {i}\tZahl {i} {german}\n" for i, (english, german) in enumerate(colours)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def small(pairs):
    """A function that gives the translation recipe at a size that trains in a second."""

    def make(**changes):
        fields = SMALL | {"data.pairs": str(pairs)} | {key.replace("__", "."): v for key, v in changes.items()}
        if fields.get("model") == "seq2seq":
            fields = {key: value for key, value in fields.items() if key not in ONLY_TRANSFORMER}
        return recipe("translate", fields)

    return make
