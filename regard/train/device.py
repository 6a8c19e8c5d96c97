"""The device that models compute on: chosen by name, with the cure in one line where it is not there."""

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from regard.config import nearest

AUTO = "auto"
ENVIRONMENT = "REGARD_DEVICE"
"""Environment variable with the device that models are loaded to, where no other is named."""
KNOWN = (AUTO, "cpu", "cuda", "mps", "xpu")
INSTALL = "see docs/install.md"


def loading_device(name: str | None = None) -> torch.device:
    """The device to load a model to: the one of that name, else that of the environment, else the CPU."""
    return pick(os.environ.get(ENVIRONMENT, "cpu")) if name is None else pick(name)


def pick(name: str, option: str = "device") -> torch.device:
    """The device of a name: "cpu", "cuda", "cuda:1", "mps" …; "auto" is a CUDA device if there is one, else the CPU.

    A ValueError, which begins with the option that named it, says what the device lacks and what to use instead.
    """
    if name == AUTO:  # what could not be tried on real hardware is not chosen unasked
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    own = torch._C._get_privateuse1_backend_name()
    if kind not in KNOWN[1:] and (kind != own or not hasattr(torch, own)):
        raise ValueError(f"{option} {name}: no such device; {nearest(kind, KNOWN)}")
    if index and not index.isdecimal():
        raise ValueError(f"{option} {name}: {index!r} is no number of a device; write {kind}:0")
    if kind == "cpu":
        return torch.device("cpu")
    if reason := lacking(kind):
        raise ValueError(f"{option} {name}: {reason}")
    count = torch.get_device_module(kind).device_count()
    if index and int(index) >= count:
        numbers = f"{kind}:0" if count == 1 else f"{kind}:0 to {kind}:{count - 1}"
        raise ValueError(f"{option} {name}: this machine has {numbers}; use one of these")
    return torch.device(name)


def lacking(kind: str) -> str:
    """Why there is no device of a kind, with the cure; empty if there is one."""
    if kind == "cuda" and not torch.backends.cuda.is_built():
        return f"PyTorch was built without CUDA; use cpu, or install a PyTorch with CUDA: {INSTALL}"
    if kind == "mps" and not torch.backends.mps.is_built():
        return "PyTorch was built without MPS, which is for Apple's GPUs; use cpu"
    if not torch.get_device_module(kind).is_available():
        return "PyTorch finds no such device here; use cpu, or check its driver"
    return ""


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's weights."""
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random numbers that a run on a device depends on: of the CPU, "rng", and of the device."""
    states = {"rng": torch.get_rng_state()}
    if device.type != "cpu":
        states[f"rng.{device.type}"] = torch.get_device_module(device).get_rng_state(device)
    return states


def set_random_states(device: torch.device, states: Mapping[str, Tensor]) -> None:
    """Set what `random_states` returned; a run that moved to another kind of device keeps that device's own state."""
    torch.set_rng_state(states["rng"])
    if (own := states.get(f"rng.{device.type}")) is not None:
        torch.get_device_module(device).set_rng_state(own, device)
