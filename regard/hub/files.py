"""Reading and writing the files of a model directory, whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
GENERATION = "generation_config.json"


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a new file beside `path`, then renames it: whoever reads sees the old file or the new one."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o666 & ~_umask())  # mkstemp keeps its files to the owner
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        kept = "; the old file is as it was" if path.exists() else ""
        raise OSError(f"could not write {path}: {reason}; free some space or choose another directory{kept}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8") and None)


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
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(whole, temporary, metadata={"format": "pt"}))


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


def own_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """Parameters and kept buffers by name, each once: of tied ones only the first name."""
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        names.setdefault(id(tensor), name)
    return {name: state[name] for name in names.values()}
