"""ELMo's published files: options in JSON beside weights in HDF5."""

import json

import numpy as np

from fuzz.hdf5 import hdf5
from fuzz.scratch import FOLDER, put
from regard.hub.checkpoint import load_model

READS = ("regard.hub.hdf5", "regard.hub.maps.elmo")
WORDS = [b"TREE", b"SNOD", b"HEAP", b"\x0b\x00", b"\x10\x00", b"\xff" * 8]
DIM, CELLS, LETTER, FILTERS = 2, 3, 2, (1, 2)
OPTIONS = {
    "lstm": {"cell_clip": 3, "proj_clip": 3, "n_layers": 1, "projection_dim": DIM, "dim": CELLS},
    "char_cnn": {"embedding": {"dim": LETTER}, "filters": [[1, 1], [2, 2]], "n_highway": 1, "n_characters": 262,
                 "max_characters_per_token": 5},
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a published model by name."""
    wide = sum(FILTERS)
    out = {"char_embed": (261, LETTER), "CNN_proj/W_proj": (wide, DIM), "CNN_proj/b_proj": (DIM,)}
    for i, count in enumerate(FILTERS):
        out |= {f"CNN/W_cnn_{i}": (1, i + 1, LETTER, count), f"CNN/b_cnn_{i}": (count,)}
    for name in ("carry", "transform"):
        out |= {f"CNN_high_0/W_{name}": (wide, wide), f"CNN_high_0/b_{name}": (wide,)}
    for side in range(2):
        cell = f"RNN_{side}/RNN/MultiRNNCell/Cell0/LSTMCell"
        out |= {f"{cell}/W_0": (2 * DIM, 4 * CELLS), f"{cell}/B": (4 * CELLS,), f"{cell}/W_P_0": (CELLS, DIM)}
    return out


def seeds() -> list[bytes]:
    """Return options and weights, joined by the length of the first."""
    options = json.dumps(OPTIONS).encode()
    weights = hdf5({name: np.zeros(shape, "float32") for name, shape in shapes().items()})
    return [len(options).to_bytes(2, "big") + options + weights]


def run(data: bytes) -> None:
    """Load the model."""
    size = int.from_bytes(data[:2], "big")
    put("elmo/options.json", data[2 : 2 + size])
    put("elmo/weights.hdf5", data[2 + size :])
    load_model(FOLDER / "elmo")
