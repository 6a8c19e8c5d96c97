"""A model as a directory: `config.json` and `model.safetensors`, ours or another project's."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import override, to_dict
from regard.files import own_tensors
from regard.hub.files import CONFIG, WEIGHTS, read_json, read_tensors, write_json, write_tensors
from regard.hub.generation import load_generation, save_generation
from regard.hub.maps import MAPS
from regard.registry import models

__all__ = ["export_model", "load_generation", "load_model", "save_generation", "save_model"]


def save_model(model: Any, directory: str | Path) -> None:
    """Writes our own layout. Each file is replaced whole or, when the disk is full, not at all (OSError)."""
    directory = Path(directory)
    head = {"model_type": "regard", "family": models.name_of(type(model)), "regard_version": _version()}
    write_tensors(directory / WEIGHTS, own_tensors(model))
    write_json(directory / CONFIG, head | to_dict(model.config))


def load_model(directory: str | Path, *, dtype: torch.dtype | None = None) -> nn.Module:
    """The model of a directory, ready to use; `dtype` None keeps the one that its weights are stored in."""
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"no such directory: {directory}; give the directory that holds {CONFIG} and {WEIGHTS}")
    fields = read_json(directory / CONFIG)
    kind = fields.get("model_type")
    if kind != "regard" and kind not in MAPS:
        known = ", ".join(["regard", *sorted(MAPS)])
        raise ValueError(f"{directory / CONFIG}: unknown model_type {kind!r}; known: {known}")
    stored = read_tensors(directory)
    try:
        if kind == "regard":
            family = fields.get("family", "missing")
            config = _own_config(family, fields)
        else:
            family, config = MAPS[kind].family, MAPS[kind].read_config(fields, stored.keys())
        with torch.random.fork_rng(devices=[]):  # the first weights are thrown away: leave the caller's dice alone
            model = models[family](config)
    except ValueError as error:
        raise ValueError(f"{directory / CONFIG}: {error}") from None
    try:
        tensors = stored if kind == "regard" else MAPS[kind].to_ours(own_tensors(model), stored)
        _fill(model, tensors, dtype)
    except ValueError as error:
        raise ValueError(f"{directory / WEIGHTS}: {error}") from None
    return model.eval()


def _own_config(family: str, fields: Mapping[str, Any]) -> Any:
    own = {key: value for key, value in fields.items() if key not in ("model_type", "family", "regard_version")}
    return override(models[family].config_class(), own)


def _version() -> str:
    try:
        return metadata.version("regard")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "source"


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> None:
    """Copies tensors into the model, if their names and shapes are exactly its own."""
    own = own_tensors(model)
    _check_names(own, tensors, "saved by another version or family?")
    for name, tensor in own.items():
        if tensors[name].shape != tensor.shape:
            got, wanted = tuple(tensors[name].shape), tuple(tensor.shape)
            raise ValueError(f"{name} has shape {got}, {CONFIG} asks for {wanted}; one of the two files is not its own")
    floats = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    model.to(dtype or (floats[0] if floats else torch.float32))
    with torch.no_grad():
        for name, tensor in own_tensors(model).items():
            tensor.copy_(tensors[name])


def _check_names(wanted: Mapping[str, Any], got: Mapping[str, Any], guess: str) -> None:
    for what, names in (("missing", wanted.keys() - got.keys()), ("unexpected", got.keys() - wanted.keys())):
        if names:
            shown = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
            raise ValueError(f"{len(names)} {what} tensors: {shown}; {guess}")


def export_model(model: Any, directory: str | Path, **generation: Any) -> None:
    """Writes the Hugging Face layout, for a model that one of the known `model_type`s can express.

    `generation` are the arguments of `save_generation`: other projects expect the special tokens in the directory.
    """
    directory, family = Path(directory), models.name_of(type(model))
    fitting = {kind: MAPS[kind].misfits(model.config) for kind in MAPS if MAPS[kind].family == family}
    if not fitting:
        expressible = ", ".join(sorted({MAPS[kind].family for kind in MAPS}))
        raise ValueError(f"{family!r} has no counterpart among the Hugging Face models known here; {expressible} has")
    kind = min(fitting, key=lambda kind: len(fitting[kind]))
    if fitting[kind]:
        raise ValueError(f"{kind} cannot express this model: {'; '.join(fitting[kind])}")
    write_tensors(directory / WEIGHTS, MAPS[kind].to_theirs(own_tensors(model)))
    generation.setdefault("max_len", model.config.max_len - 1)
    special = {name: id for name, id in save_generation(directory, **generation).items() if name.endswith("_token_id")}
    write_json(directory / CONFIG, MAPS[kind].write_config(model.config) | special)
