"""ELMo's published layout: options in a JSON file beside weights in HDF5."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config import one_line, read_json, reading
from regard.hub.hdf5 import read_hdf5

GATES = (0, 2, 1, 3)
"""TensorFlow's order of gates, input, candidate, forget, output, in PyTorch's."""
FORGET = 1.0
"""TensorFlow adds this to the forget gate in use, not in the weights."""


def elmo_files(directory: Path) -> tuple[Path, Path] | None:
    """The options and the weights of a directory in this layout; None for any other."""
    if (directory / "config.json").exists():
        return None
    found = [sorted(directory.glob(pattern)) for pattern in ("*options.json", "*weights*.hdf5")]
    return (found[0][0], found[1][0]) if all(len(files) == 1 for files in found) else None


def read_elmo(options: Path, weights: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields of our config.json, and our tensors by name."""
    stored = read_json(options)
    with reading(options, "give the options that belong to the weights"):
        fields = fields_of(stored)
    theirs = read_hdf5(weights)
    with reading(weights, "give the weights that belong to the options"):
        try:
            return fields, dict(tensors_of(fields, theirs))
        except RuntimeError as error:  # shapes that do not fit each other
            raise ValueError(f"{one_line(error)}; give the weights that belong to the options") from None


def fields_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Our config from ELMo's options."""
    lstm, spelling = stored["lstm"], stored["char_cnn"]
    clip, widths = lstm.get("cell_clip"), [width for width, _ in spelling["filters"]]
    if clip != lstm.get("proj_clip"):
        raise ValueError(f"cell_clip={clip} and proj_clip={lstm.get('proj_clip')} differ, which cannot be read here")
    if spelling.get("activation", "relu") != "relu":
        raise ValueError(f"activation={spelling['activation']!r} cannot be read here; only 'relu' can")
    if widths != list(range(1, len(widths) + 1)):
        raise ValueError(f"filters of widths {widths} cannot be read here; only 1, 2, 3 and so on can")
    return {
        "model_type": "regard", "family": "bilstm", "vocab_size": spelling["n_characters"],
        "dim": lstm["projection_dim"], "hidden_dim": lstm["dim"], "depth": lstm["n_layers"],
        "residual": lstm.get("use_skip_connections", False), "clip": None if clip is None else float(clip),
        "filters": [count for _, count in spelling["filters"]], "character_dim": spelling["embedding"]["dim"],
        "word_length": spelling["max_characters_per_token"], "highway": spelling["n_highway"], "dropout": 0.0,
    }  # fmt: skip


def tensors_of(fields: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Our tensors by name: matrices are transposed, the gates reordered, and padding has a row of zeros."""
    characters = theirs["char_embed"]
    yield "embedding.characters.weight", torch.cat([torch.zeros_like(characters[:1]), characters])
    for i in range(len(fields["filters"])):
        yield f"embedding.filters.{i}.weight", theirs[f"CNN/W_cnn_{i}"][0].permute(2, 1, 0)
        yield f"embedding.filters.{i}.bias", theirs[f"CNN/b_cnn_{i}"]
    for i in range(fields["highway"]):
        for ours, name in (("inner", "transform"), ("gate", "carry")):
            yield f"embedding.highway.{i}.{ours}.weight", theirs[f"CNN_high_{i}/W_{name}"].mT
            yield f"embedding.highway.{i}.{ours}.bias", theirs[f"CNN_high_{i}/b_{name}"]
    yield "embedding.project.weight", theirs["CNN_proj/W_proj"].mT
    yield "embedding.project.bias", theirs["CNN_proj/b_proj"]
    for side in range(2):
        for layer in range(fields["depth"]):
            front, ours = f"RNN_{side}/RNN/MultiRNNCell/Cell{layer}/LSTMCell", f"stacks.{side}.{layer}.inner"
            both = reordered(theirs[f"{front}/W_0"].mT)  # 4N (inputs, outputs before)
            bias = reordered(theirs[f"{front}/B"].clone())
            size = len(bias) // 4
            bias[size : 2 * size] += FORGET
            yield f"{ours}.weight_ih_l0", both[:, : fields["dim"]]
            yield f"{ours}.weight_hh_l0", both[:, fields["dim"] :]
            yield f"{ours}.bias_ih_l0", bias
            yield f"{ours}.bias_hh_l0", torch.zeros_like(bias)
            if fields["hidden_dim"] != fields["dim"]:
                yield f"{ours}.weight_hr_l0", theirs[f"{front}/W_P_0"].mT


def reordered(gates: Tensor) -> Tensor:
    """The rows of four gates in PyTorch's order."""
    return torch.cat([gates.chunk(4)[gate] for gate in GATES])
