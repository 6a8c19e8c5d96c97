"""Reading and writing the files of a model directory, whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard import files
from regard.files import write_atomically

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
GENERATION = "generation_config.json"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; a model directory holds {CONFIG} and {WEIGHTS}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}; write it again or restore it from a copy") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not an object {{…}}; write it again")
    return content


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """All tensors under their names; those that share memory must have been left out by the caller."""
    write_atomically(path, lambda draft: files.write_tensors(draft, tensors))


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`; where there is only something else, an error that says what to do."""
    path = directory / WEIGHTS
    if not path.is_file():
        raise ValueError(_no_weights(directory))
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); copy or save it again") from None


def _no_weights(directory: Path) -> str:
    save = "load it with transformers and save_pretrained(directory"
    if (directory / f"{WEIGHTS}.index.json").exists():
        return f"{directory} holds weights in several files, not one {WEIGHTS}; {save}, max_shard_size='1TB')"
    pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in directory.glob(pattern))
    if pickles:
        return (
            f"{directory} holds {pickles[0]}, a pickle, which could run code when read, and no {WEIGHTS}; "
            f"{save}, safe_serialization=True)"
        )
    return f"no such file: {directory / WEIGHTS}; a model directory holds {CONFIG} and {WEIGHTS}"
