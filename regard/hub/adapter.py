"""Fine-tuning: models that start from the weights of another, and runs that store only the tensors they trained."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard.config import check_sizes, one_line, override, parse, read_json, to_dict
from regard.files import check_regular, own_tensors, trained_tensors
from regard.hub.files import CONFIG, check_finite, read_shard, write_json, write_tensors
from regard.hub.skeleton import check_tables, skeleton
from regard.models.parts import head_names, optional_names, pretrained, resized, task_names
from regard.native.quantized import refuse_quantized
from regard.nn.lora import add_low_rank, merge_low_rank
from regard.registry import models

ADAPTER = "adapter.safetensors"
HEAD = ("model_type", "family", "regard_version", "adapter", "quantize")
"""Keys of `config.json` that are not fields of the model's config."""
LORA = (".narrow", ".wide")
"""Suffixes of the names of LoRA parameters."""
MOST_BASES = 16
"""Runs that may stand on top of each other, each the base of the next."""


def begin_from(base: nn.Module, config: Any) -> nn.Module:
    """A model with this config and the weights of `base`, in float32. A head for another task, or for other labels, is
    initialised anew, and so is a pooler that the base lacks. Positions are interpolated for images of another size."""
    base = base if type(config) is type(base.config) else pretrained(base)
    model = type(base)(config)
    stored, own = own_tensors(base), own_tensors(model)
    same_head = all(getattr(config, name, None) == getattr(base.config, name, None) for name in ("task", "labels"))
    with torch.no_grad():
        for name, tensor in own.items():
            fresh = name.startswith(task_names(model)) and not same_head
            if fresh or name.startswith(optional_names(model)) and name not in stored:
                continue
            started = resized(model, base, name, stored[name].to(tensor.device)) if name in stored else None
            if started is None or started.shape != tensor.shape:
                got = "nothing" if started is None else tuple(started.shape)
                raise ValueError(
                    f"{name} would have shape {tuple(tensor.shape)}, what it starts from has {got}; "
                    "leave the sizes of the model as they are"
                )
            tensor.copy_(started)
    return model


def tune(model: nn.Module, mode: str, rank: int) -> None:
    """Set which weights are trained: `all`, the `head` (with the pooler it reads), or the head and `lora` adapters."""
    if mode == "all":
        return
    if mode == "lora":
        add_low_rank(model, rank)
        if not any(name.endswith(LORA) for name, _ in model.named_parameters()):
            raise ValueError("this model has no attention to add LoRA adapters to; use --data.tune all or head")
    heads = head_names(model)
    for name, parameter in model.named_parameters():
        wanted = name.startswith(heads) or name.endswith(LORA)
        parameter.requires_grad_(wanted)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("this model has no head to tune by itself; use --data.tune all or lora")


def save_adapter(model: Any, directory: Path, *, base: Path, mode: str, rank: int) -> None:
    """Write only the trained tensors, and the path of the base."""
    refuse_quantized(model)
    head = {"model_type": "regard", "family": models.name_of(type(model))}
    adapter = {"base": str(base.resolve()), "base_sha256": fingerprint(base), "tune": mode, "rank": rank}
    write_tensors(directory / ADAPTER, trained_tensors(model))
    write_json(directory / CONFIG, head | {"adapter": adapter} | to_dict(model.config))


def load_adapter(directory: Path, base: nn.Module, fields: Mapping[str, Any]) -> nn.Module:
    """The model of a run: its base with the trained tensors put into it, LoRA adapters merged."""
    adapter = read_adapter(fields)
    base = base if type(base) is models[fields.get("family", "missing")] else pretrained(base)
    own = {k: v for k, v in fields.items() if k not in HEAD}
    stored, held = read_shard(directory / ADAPTER), own_tensors(base)
    check_finite(stored, directory / ADAPTER)
    check_sizes(own | {"rank": adapter["rank"]}, sum(tensor.numel() for tensor in (*stored.values(), *held.values())))

    def start() -> nn.Module:
        model = begin_from(base, override(type(base.config)(), own))
        tune(model, adapter["tune"], adapter["rank"])
        return model

    bones = skeleton(start, {**held, **stored}, own)
    wanted = trained_tensors(bones)
    for odd in sorted(wanted.keys() ^ stored.keys()):
        raise ValueError(f"{directory / ADAPTER}: tensor {odd!r} does not match; this is the adapter of another base")
    for odd in [name for name in wanted if wanted[name].shape != stored[name].shape]:
        sizes = f"{tuple(stored[odd].shape)}, not {tuple(wanted[odd].shape)} as"
        raise ValueError(f"{directory / ADAPTER}: {odd} has shape {sizes} {CONFIG} asks; save the run again")
    same = {name: t for name, t in own_tensors(bones).items() if name in held and held[name].shape == t.shape}
    check_tables(bones, {**same, **stored})
    with torch.random.fork_rng(devices=[]):  # these weights are replaced: leave the caller's random state alone
        model = start()
    with torch.no_grad():
        for name, tensor in trained_tensors(model).items():
            tensor.copy_(stored[name])
    merge_low_rank(model)
    return model.requires_grad_(True).eval()


def read_adapter(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `adapter` in a config.json, each of its type."""
    stored, kinds = fields["adapter"], {"base": str, "base_sha256": str, "tune": Literal["head", "lora"], "rank": int}
    if not isinstance(stored, dict):
        raise ValueError(f"adapter is {type(stored).__name__}, not an object {{…}}; save the run again")
    return {name: parse(stored.get(name), kind, f"adapter.{name}") for name, kind in kinds.items()}


def find_base(directory: Path, adapter: Mapping[str, Any]) -> Path:
    """The base of an adapter; an error if it is gone or has changed."""
    base = Path(adapter["base"])
    if not os.path.exists(base):  # Path.exists raises an error for a name that is too long
        shown = one_line(base, 200)
        raise ValueError(f"{directory} holds only what was trained on top of {shown}, which is missing; restore it")
    check_bases(directory, base)
    if fingerprint(base) != adapter["base_sha256"]:
        raise ValueError(f"{base} has changed since {directory} was trained on top of it; put the old weights back")
    return base


def check_bases(directory: Path, base: Path) -> None:
    """Raise an error if the bases below a run lead back to it, or do not end."""
    for _ in range(MOST_BASES):
        if base.resolve() == directory.resolve():
            raise ValueError(
                f"{directory / CONFIG}: adapter.base is the run itself, or leads to it; name its base model"
            )
        if not (base / CONFIG).is_file() or "adapter" not in (fields := read_json(base / CONFIG)):
            return
        base = Path(read_adapter(fields)["base"])
        if not os.path.exists(base):
            return  # loading what stands on it says so
    raise ValueError(
        f"{directory / CONFIG}: more than {MOST_BASES} bases below each other; name a base with its weights"
    )


def fingerprint(base: Path) -> str:
    """The sha256 of a checkpoint's weights."""
    digest = hashlib.sha256()
    for path in [base] if base.is_file() else sorted(base.glob("*.safetensors")):
        check_regular(path)
        with path.open("rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    return digest.hexdigest()
