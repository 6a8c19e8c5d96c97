"""A model as a directory: `config.json` and `model.safetensors`, ours or another project's."""

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import regard.models  # noqa: F401  registers the families
from regard.config import check_sizes, nearest, one_line, override, reading, to_dict
from regard.files import own_tensors
from regard.hub import ctranslate2
from regard.hub.adapter import HEAD, find_base, load_adapter, read_adapter
from regard.hub.files import CONFIG, INDEX, WEIGHTS, check_finite, read_json, read_tensors, write_json, write_tensors
from regard.hub.generation import load_generation, save_generation
from regard.hub.llama2c import read_llama2c
from regard.hub.mapping import Map
from regard.hub.maps import MAPS
from regard.hub.maps.elmo import elmo_files, read_elmo
from regard.hub.skeleton import Unsampled, check_tables, skeleton
from regard.native.quantized import QUANTIZE, refuse_quantized
from regard.registry import models

__all__ = ["export_model", "load_generation", "load_model", "peek_model", "save_generation", "save_model"]


def save_model(model: Any, directory: str | Path, *, quantize: str = "none") -> None:
    """Write our own layout. Each file is replaced whole or, when the disk is full, not at all (OSError). With
    `quantize`, the model is quantised in this way whenever it is loaded to be used; its file has the float weights."""
    refuse_quantized(model)
    directory = Path(directory)
    head = {"model_type": "regard", "family": models.name_of(type(model)), "regard_version": _version()}
    write_tensors(directory / WEIGHTS, own_tensors(model))
    write_json(
        directory / CONFIG, head | ({} if quantize == "none" else {"quantize": quantize}) | to_dict(model.config)
    )


def stored_quantize(directory: Path) -> Any:
    """The quantisation that a run asks for: none, unless its `config.json` names another."""
    kind = read_json(directory / CONFIG).get("quantize", "none") if (directory / CONFIG).is_file() else "none"
    if kind not in QUANTIZE:
        raise ValueError(f"{directory / CONFIG}: quantize={one_line(repr(kind), 80)} is none of {', '.join(QUANTIZE)}")
    return kind


def load_model(directory: str | Path, *, dtype: torch.dtype | None = None) -> nn.Module:
    """The model of a directory, or of a llama2.c file, ready to use.

    `dtype` None keeps the one that its weights are stored in.
    """
    path = Path(directory)
    if not path.exists():
        raise ValueError(f"no such directory: {path}; give the directory that holds {CONFIG} and {WEIGHTS}")
    config_path, weights_path = _files(path)
    fields, stored = _read(path)
    if "adapter" in fields:
        with reading(config_path):
            model = load_adapter(path, load_model(find_base(path, read_adapter(fields))), fields)
        return model if dtype is None else model.to(dtype)
    known = _known(fields, config_path)
    stored = read_tensors(path) if stored is None else stored
    stored = stored if known is None else known.tidy(stored)
    check_finite(stored, weights_path)
    model = _build(path, fields, known, stored)
    try:
        tensors = stored if known is None else known.to_ours(model.config, own_tensors(model), stored)
        _check_shapes(own_tensors(model), tensors)
    except ValueError as error:
        raise ValueError(f"{weights_path}: {error}") from None
    with reading(config_path):
        check_tables(model, tensors)
    # These weights are replaced: leave the caller's random state alone.
    with torch.random.fork_rng(devices=[]), Unsampled(meta=False):
        model = type(model)(model.config)
    _fill(model, tensors, dtype)
    return model.eval()


def peek_model(directory: str | Path) -> nn.Module:
    """The model of a directory on the meta device, without its weights."""
    path = Path(directory)
    fields, stored = _read(path)
    return _build(path, fields, _known(fields, _files(path)[0]), stored)


def _files(path: Path) -> tuple[Path, Path]:
    """The files of the config and of the weights, for errors."""
    if path.is_file():
        return path, path
    if ctranslate2.is_ctranslate2(weights := path / ctranslate2.WEIGHTS):
        return weights, weights
    return elmo_files(path) or (path / CONFIG, path / (WEIGHTS if (path / WEIGHTS).is_file() else INDEX))


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """The fields of a config, and the tensors where they come with it: of a llama2.c file, or of the layouts of
    CTranslate2 and of ELMo."""
    if path.is_file():
        return read_llama2c(path)
    if ctranslate2.is_ctranslate2(weights := path / ctranslate2.WEIGHTS):
        return ctranslate2.read_ctranslate2(weights)
    files = elmo_files(path)
    return (read_json(path / CONFIG), None) if files is None else read_elmo(*files)


def _build(path: Path, fields: Mapping[str, Any], known: Map | None, stored: Mapping[str, Tensor] | None) -> Any:
    """Return the model of a `config.json` on the meta device; for foreign ones the tensors may determine fields."""
    with reading(_files(path)[0]):
        values = sum(tensor.numel() for tensor in (stored or {}).values())
        if known is None:
            family = models[fields.get("family", "missing")]
            own = {key: value for key, value in fields.items() if key not in HEAD}
            check_sizes(own, values)
            return skeleton(lambda: family(override(family.config_class(), own)), stored, own)
        for more in (path / name for name in known.beside):
            fields = (read_json(more) if more.is_file() else {}) | dict(fields)
        return skeleton(lambda: models[known.family](known.read_config(fields, stored or {})), stored, fields)


def _known(fields: Mapping[str, Any], path: Path) -> Map | None:
    """The map of a foreign `model_type`; None for our own."""
    kind = fields.get("model_type")
    if not isinstance(kind, str) or (kind != "regard" and kind not in MAPS):
        known = ", ".join(["regard", *sorted(MAPS)])
        raise ValueError(f"{path}: unknown model_type {one_line(repr(kind), 80)}; known: {known}")
    return MAPS.get(kind)


def _version() -> str:
    try:
        return metadata.version("regard")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "source"


def _check_shapes(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Raise an error unless names and shapes of tensors are exactly those of a model."""
    _check_names(wanted, tensors, f"saved by another version or family, or with another {CONFIG}?")
    for name, tensor in wanted.items():
        if tensors[name].shape != tensor.shape:
            got, asked = tuple(tensors[name].shape), tuple(tensor.shape)
            raise ValueError(
                f"{name} has shape {got}, {CONFIG} asks for {asked}; the two files belong to different models"
            )


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> None:
    """Copy tensors into the model."""
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


class LayoutError(ValueError):
    """No layout of other projects has such a model."""


def export_model(model: Any, directory: str | Path, *, kind: str | None = None, **generation: Any) -> None:
    """Write the Hugging Face layout, for a model that one of the known `model_type`s can express.

    `kind` chooses one; without, the first that fits is taken. `generation` are the arguments of `save_generation`:
    other projects expect the special tokens in the directory. An encoder takes only `bos`, `eos` and `pad`.
    """
    refuse_quantized(model)
    directory, family = Path(directory), models.name_of(type(model))
    reworded = {
        name: mapping.reword(model.config, own_tensors(model))
        for name, mapping in MAPS.items()
        if mapping.family == family
    }
    fitting = {name: MAPS[name].misfits(config) for name, (config, _) in reworded.items()}
    if not fitting:
        expressible = ", ".join(sorted({mapping.family for mapping in MAPS.values()}))
        raise LayoutError(f"{family!r} has no counterpart among the Hugging Face models known here; {expressible} have")
    if kind is not None and kind not in fitting:
        raise ValueError(f"kind={kind!r} is no {family} model; {nearest(kind, fitting)}")
    kind = kind or min(fitting, key=lambda name: len(fitting[name]))
    known, odd, (config, tensors) = MAPS[kind], fitting[kind], reworded[kind]
    if known.pad is not None and generation.get("pad") not in (None, known.pad):
        odd.append(f"pad={generation['pad']} would have to be {known.pad}")
    if odd:
        raise LayoutError(f"{kind} cannot express this model: {'; '.join(odd)}")
    fields = known.write_config(config)
    if getattr(model, "reads", None) is not None:  # it generates
        if not fields.get("is_encoder_decoder"):
            generation = dict(beams=1, force_end=False) | generation
        generation.setdefault("max_len", model.config.max_len - 1)
        tokens = save_generation(directory, **generation)
    else:
        own = {name: generation.get(name) for name in ("bos", "eos", "pad")}
        tokens = {f"{name}_token_id": id for name, id in own.items() if id is not None}
    ids = {name: id for name, id in tokens.items() if name.endswith("_token_id")}
    fields = known.marked(fields, ids)
    write_tensors(directory / WEIGHTS, known.to_theirs(config, tensors))
    write_json(directory / CONFIG, fields)
