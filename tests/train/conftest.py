import pytest

from regard.recipes import recipe

SMALL = {
    "model.dim": 16, "model.heads": 2, "model.ffn_dim": 24, "model.depth": 1,
    "data.vocab_size": 270, "data.epoch_size": 300,
    "train.steps": 30, "train.batch_tokens": 256, "train.eval_every": 10, "train.save_every": 10, "train.warmup": 5,
}  # fmt: skip
ONLY_TRANSFORMER = ("model.heads", "model.ffn_dim")


@pytest.fixture
def small():
    """A function that gives the embedded translation recipe at a size that trains in a second."""

    def make(**changes):
        fields = SMALL | {key.replace("__", "."): value for key, value in changes.items()}
        if fields.get("model") == "seq2seq":
            fields = {key: value for key, value in fields.items() if key not in ONLY_TRANSFORMER}
        return recipe("translate", fields)

    return make
