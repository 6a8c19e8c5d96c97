"""Reading and writing the files of a model directory, whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard import files
from regard.config import one_line, read_json
from regard.files import check_regular, write_atomically

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
INDEX = f"{WEIGHTS}.index.json"
GENERATION = "generation_config.json"
AGAIN = "download or save the checkpoint again, with all its files"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write an object as JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors under their names; the caller leaves out those that share memory with others."""
    write_atomically(path, lambda draft: files.write_tensors(draft, tensors))


def weight_files(directory: Path) -> dict[Path, list[str]]:
    """The files that hold the tensors of a directory: `model.safetensors`, or the shards of its index, each with the
    names of the tensors that the index places there."""
    if (path := directory / WEIGHTS).is_file():
        return {path: []}
    if not (path := directory / INDEX).is_file():
        raise ValueError(_no_weights(directory))
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not all(Path(str(shard)).name == shard for shard in weight_map.values()):
        raise ValueError(f"{path} has no weight_map of tensors to files beside it; {AGAIN}")
    names: dict[Path, list[str]] = {directory / shard: [] for shard in sorted(set(weight_map.values()))}
    for name, shard in weight_map.items():
        names[directory / shard].append(name)
    return names


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors of a directory in their stored types."""
    tensors: dict[str, Tensor] = {}
    for number, (path, names) in enumerate((shards := weight_files(directory)).items(), 1):
        if not os.path.isfile(path):  # Path.is_file raises an error for a name that is too long
            raise ValueError(f"no such file: {one_line(path, 300)}, shard {number} of {len(shards)}; {AGAIN}")
        shard_tensors = read_shard(path)
        for name in names:
            if name not in shard_tensors:
                raise ValueError(f"{path} has no tensor {name}, which {INDEX} places there; {AGAIN}")
        tensors |= shard_tensors
    return tensors


def read_shard(path: Path) -> dict[str, Tensor]:
    """All tensors of one safetensors file."""
    try:
        check_regular(path)
        return load_file(path)
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; {AGAIN}") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short or damaged ({one_line(error)}); copy or save it again") from None


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise an error that names a tensor with NaN or infinite values. The sum finds them in one pass without a copy;
    only where it is not finite, which large numbers can do too, each value is looked at."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or (tensor.element_size() > 1 and tensor.sum().isfinite()):
            continue
        values = tensor.float() if tensor.element_size() == 1 else tensor  # 8-bit floats have no such operations
        if odd := int((~values.isfinite()).sum()):
            fact = f"tensor {name} has {odd:,} of {values.numel():,} values that are NaN or infinite"
            raise ValueError(f"{path}: {fact}; {AGAIN}, or train again with a lower --train.lr")


def _no_weights(directory: Path) -> str:
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in directory.glob(pattern))
    if pickles:
        return (
            f"{directory} holds {pickles[0]}, a pickle, which could run code when read, and no {WEIGHTS}; "
            "load it with transformers and save_pretrained(directory, safe_serialization=True)"
        )
    return f"no such file: {directory / WEIGHTS}; a model directory holds {CONFIG} and {WEIGHTS}"
