"""Checkpoints: complete or absent. Tensors in safetensors, numbers in JSON, never a pickle.

A checkpoint is a directory that is written under another name, flushed to the disk, and then renamed. Its manifest has
the size and the checksum of each file, so that one which a disk has lost or changed later is found.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.config import at_least, one_line, override, parse, read_json, reading
from regard.files import check_regular, sync, trained_tensors, write_tensors
from regard.train.device import device_of, random_states, set_random_states
from regard.train.parallel import Parallel

WEIGHTS, OPTIMIZER, STATE = FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
MANIFEST = "manifest.json"
Plain = bool | int | float | None
"""Values of an optimizer's state that are no tensors."""


class Damaged(ValueError):  # noqa: N818  says of which file
    """Raised for a checkpoint with a file that is missing, cut short or changed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The position of a run in its budget and its data."""

    step: int = 0
    epoch: int = 0
    index: int = 0
    seconds: float = 0.0
    best: float | None = None
    """Validation loss of the best weights so far."""
    metric: float | None = None
    """Their metric."""
    waited: int = 0
    """Validations since the best one."""
    best_step: int = 0
    """The step of the best weights so far; 0 before the first validation."""
    scale: float | None = None
    """The factor on the loss in float16."""
    scale_steps: int = 0
    """Updates since it last changed."""

    def scaled(self, state: dict[str, Any]) -> "Progress":
        """The progress with the state of a gradient scaler, which is empty where none is in use."""
        return replace(self, scale=state.get("scale"), scale_steps=state.get("_growth_tracker", 0))

    def scaling(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of a new gradient scaler as that of this progress, which may have been another precision's."""
        own = {"scale": self.scale, "_growth_tracker": self.scale_steps}
        return state | own if state and self.scale is not None else state

    def validated(self, loss: float, metrics: dict[str, float], select: str) -> tuple["Progress", bool]:
        """The progress after a validation, and whether it is the best: by the first metric if `select` says so, then
        by the loss."""
        metric = next(iter(metrics.values()), None)
        better = self.best is None or loss < self.best
        if select == "metric" and metric is not None and self.metric is not None and metric != self.metric:
            better = metric > self.metric
        if better:
            return replace(self, best=loss, metric=metric, waited=0, best_step=self.step), True
        return replace(self, waited=self.waited + 1), False


def save(directory: Path, parallel: Parallel, optimizers: list[torch.optim.Optimizer], progress: Progress) -> None:
    """Writes `directory/step-N`; after a crash at any moment it is either complete or absent. It is the same whatever
    the processes share: the first one writes what all of them have."""
    weights, (tensors, numbers) = trained(parallel), _flatten(optimizers, parallel)
    if not parallel.chief:
        return
    final = directory / f"step-{progress.step:08d}"
    draft = directory / f".draft-{progress.step:08d}-{os.getpid()}"
    try:
        draft.mkdir(parents=True)
        write_tensors(draft / WEIGHTS, weights)
        tensors |= random_states(device_of(parallel.model))
        write_tensors(draft / OPTIMIZER, tensors)
        state = {"progress": asdict(progress), "optimizers": numbers}
        (draft / STATE).write_text(json.dumps(state))
        (draft / MANIFEST).write_text(json.dumps({name: _entry(draft / name) for name in FILES}))
        for path in (*draft.iterdir(), draft):
            sync(path)
        _remove(final)
        draft.rename(final)
        sync(directory)
    except OSError as error:
        last = f"; {saved(directory)[-1]} is complete" if saved(directory) else ""
        reason = error.strerror or error
        raise OSError(f"could not save step {progress.step}: {reason}; free some space, then --resume{last}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def resume(
    directory: Path, parallel: Parallel, optimizers: list[torch.optim.Optimizer], say: Callable[[str], None]
) -> Progress:
    """Restores the newest sound checkpoint and returns its progress; damaged ones are named and put aside. Without any
    checkpoint a run is at its start; an error if none of several is sound."""
    problems: list[tuple[Path, Damaged]] = []
    for path in reversed(saved(directory)):
        try:
            progress = load(path, parallel, optimizers)
        except Damaged as error:
            problems.append((path, error))
            continue
        for damaged, problem in problems:
            if not parallel.chief:
                continue
            aside = damaged.with_name(f"damaged-{damaged.name}")
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)
            say(f"{problem}; put aside as {aside.name}, going on from step {progress.step}")
        return progress
    if problems:
        cure = "restore one from a copy, or start anew with another --out"
        raise ValueError(f"no checkpoint in {directory} is sound; {cure} ({problems[0][1]})")
    return Progress()


def load(path: Path, parallel: Parallel, optimizers: list[torch.optim.Optimizer]) -> Progress:
    """Restores model, optimizers and random state from a checkpoint; returns its progress. Nothing is changed if one of
    its files is damaged."""
    weights, tensors = (_read_tensors(path, name) for name in (WEIGHTS, OPTIMIZER))
    check(path, STATE)
    with damages(path / STATE):
        state = read_json(path / STATE)
        progress = override(Progress(), state["progress"])
        at_least(0, step=progress.step, epoch=progress.epoch, index=progress.index)
        numbers = [{name: parse(value, Plain, name) for name, value in own.items()} for own in state["optimizers"]]
    if len(optimizers) != len(numbers):
        raise ValueError(f"{path}: the run was trained with another optimizer; leave out --train.optimizer")
    check_weights(path, weights, parallel)
    with damages(path / OPTIMIZER):
        stored = {name: tensors.pop(name) for name in [*tensors] if name.partition(".")[0] == "rng"}
        states, known = _states(optimizers, parallel, tensors, numbers), random_states(device_of(parallel.model))
        for name in known.keys() & {"rng", *stored}:
            if (stored[name].dtype, stored[name].shape) != (torch.uint8, known[name].shape):
                raise ValueError(f"{name} has shape {tuple(stored[name].shape)}")
    parallel.load(weights)
    set_random_states(device_of(parallel.model), stored)
    for optimizer, own in zip(optimizers, states, strict=True):
        optimizer.load_state_dict({"state": own, "param_groups": optimizer.state_dict()["param_groups"]})
    return progress


@contextmanager
def damages(path: Path) -> Iterator[None]:
    """Context manager: whatever is wrong in the content of a file is `Damaged`."""
    try:
        with reading(path):
            yield
    except PermissionError:
        raise  # of a sound file, perhaps
    except (ValueError, OSError) as error:
        raise Damaged(f"{path} cannot be read ({error})") from None


def check(path: Path, name: str) -> None:
    """Raise an error if a file of a checkpoint is not as its manifest says; older checkpoints have no manifest."""
    if not (path / MANIFEST).exists():
        return
    try:
        with damages(path / MANIFEST):
            entry = read_json(path / MANIFEST)[name]
        own = _entry(path / name)
    except FileNotFoundError:
        raise Damaged(f"{path / name} is missing") from None
    if own != entry:
        raise Damaged(f"{path / name} differs from its checksum in {MANIFEST}")


def _entry(path: Path) -> dict[str, Any]:
    """The size and the checksum of a file."""
    check_regular(path)
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _read_tensors(path: Path, name: str) -> dict[str, Tensor]:
    check(path, name)
    try:
        check_regular(path / name)
        return load_file(path / name)
    except PermissionError:
        raise  # of a sound file, perhaps
    except (OSError, ValueError, SafetensorError) as error:
        raise Damaged(f"{path / name} cannot be read ({one_line(error)})") from None


def trained(parallel: Parallel) -> dict[str, Tensor]:
    """The tensors of the model that are trained, whole."""
    names = trained_tensors(parallel.model)
    return {name: tensor for name, tensor in parallel.tensors().items() if name in names}


def check_weights(path: Path, stored: dict[str, Tensor], parallel: Parallel) -> None:
    """Raise an error if the weights of a checkpoint are not those of this model."""
    own = {name: parallel.shape(tensor) for name, tensor in trained_tensors(parallel.model).items()}
    if own != {name: tensor.shape for name, tensor in stored.items()}:
        raise ValueError(f"checkpoint {path} is of another model; start anew with another --out")


def saved(directory: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(directory.glob("step-*"))


def prune(directory: Path, keep: int) -> None:
    """Keeps the newest `keep` checkpoints, all but the last two without optimizer state; removes broken drafts."""
    for draft in directory.glob(".draft-*"):
        shutil.rmtree(draft, ignore_errors=True)
    kept = saved(directory)
    for path in kept[:-keep]:
        _remove(path)
    for path in kept[-keep:-2]:
        (path / OPTIMIZER).unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Deletes a checkpoint under another name, so that a partly deleted one is never read."""
    if path.exists():
        shutil.rmtree(path.rename(path.with_name(f".draft-{path.name}-{os.getpid()}")))


def average(paths: list[Path], parallel: Parallel) -> None:
    """Sets the model's weights to the mean of several checkpoints; an error if one of them is damaged."""
    sums: dict[str, Tensor] = {}
    for path in paths:
        try:
            weights = _read_tensors(path, WEIGHTS)
        except Damaged as error:
            raise ValueError(f"{error}; delete {path}, then --resume: the mean is that of the others") from None
        for name, value in weights.items():
            sums[name] = sums.get(name, torch.zeros_like(value, dtype=torch.float64)) + value
    parallel.load({name: total / len(paths) for name, total in sums.items()})


def _flatten(
    optimizers: list[torch.optim.Optimizer], parallel: Parallel
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The optimizers' state: tensors by `optimizer/parameter/name`, and the plain numbers of each optimizer."""
    tensors: dict[str, Tensor] = {}
    numbers = []
    for o, optimizer in enumerate(optimizers):
        plain: dict[str, Any] = {}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for p, parameter in enumerate(parameters):
            for name, value in parallel.state(parameter, optimizer.state.get(parameter, {})).items():
                if isinstance(value, Tensor):
                    tensors[f"{o}/{p}/{name}"] = value.contiguous()
                else:
                    plain[f"{p}/{name}"] = value
        numbers.append(plain)
    return tensors, numbers


def _states(
    optimizers: list[torch.optim.Optimizer],
    parallel: Parallel,
    tensors: dict[str, Tensor],
    numbers: list[dict[str, Any]],
) -> list[dict[int, dict[str, Any]]]:
    """The state of each optimizer from what `_flatten` returned; an error if it is that of other parameters."""
    states = []
    for o, (optimizer, plain) in enumerate(zip(optimizers, numbers, strict=True)):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        own = {key.removeprefix(f"{o}/"): value for key, value in tensors.items() if key.startswith(f"{o}/")}
        state: dict[int, dict[str, Any]] = {}
        for key, value in (own | plain).items():
            p, name = key.split("/")
            parameter = parameters[int(p)]
            shape = tuple(parallel.shape(parameter))
            if isinstance(value, Tensor) and value.numel() > 1 and tuple(value.shape) != shape:
                raise ValueError(f"{o}/{key} has shape {tuple(value.shape)}, its parameter {shape}")
            if isinstance(value, Tensor) and tuple(value.shape) == shape:
                value = parallel.part(parameter, value)
            if parameter.numel():  # another process has those of other blocks
                state.setdefault(int(p), {})[name] = value
        states.append(state)
    return states
