"""The memory of a training step: predicted by one on `meta`, whose tensors have sizes and no numbers, and measured."""

import copy
import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward

from regard.cost.live import Halved, Live
from regard.cost.report import decimal_size
from regard.cost.substitutes import TorchFunctions
from regard.data.sets.batches import Batch
from regard.train.compute import HALF, computing
from regard.train.config import TrainConfig
from regard.train.optim import build_optimizers
from regard.train.parallel import Parallel

Objective = Callable[..., tuple[Tensor, int]]
LEAST = 32 << 20
"""Bytes below which a measured figure says more about the allocator than about the model."""
PROCESS = Path("/proc/self")
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""glibc's numbers of these settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """The bytes that a training step takes."""

    weights: int
    gradients: int
    optimizer: int
    """The optimizer's state: for AdamW two moments."""
    activations: dict[str, int]
    """Bytes kept for the backward pass, by the part of the model that made it."""
    peak: int
    """The most that is alive at once, with what lives within an operation; activations go while gradients come."""

    def parts(self) -> dict[str, int]:
        """The parts by name, the largest first."""
        named = {"weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer}
        named |= {f"activations of {part}": size for part, size in self.activations.items()}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def cause(self, config: TrainConfig) -> str:
        """The parts that fill the memory, and the fields that make it less, in a few words."""
        kept, fixed = sum(self.activations.values()), self.weights + self.gradients + self.optimizer
        first, second, *_ = [*self.parts().items(), ("", 0)]
        shown = " and ".join(f"{size / self.peak:.0%} {name}" for name, size in (first, second) if size)
        words = f"most of {decimal_size(self.peak)} is {shown}; lower --train.batch-tokens"
        if kept < fixed:
            return f"{words}, or choose a smaller model in a new run"
        words += " and raise --train.accumulate"
        return words if config.checkpoint_blocks else f"{words}, or add --train.checkpoint-blocks"


def predict(model: nn.Module, objective: Objective, batch: Batch, config: TrainConfig) -> Footprint:
    """The memory of a step of `config` on a batch like this one, whose sizes alone matter. No memory is taken."""
    meta = torch.device("meta")
    every = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twins: dict[int, Any] = {}
    for key, tensor in every.items():
        twin = torch.empty_like(tensor, device=meta)
        twins[key] = nn.Parameter(twin, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else twin
    kept = dict(twins)
    copied = copy.deepcopy(model, twins).train()
    objective = getattr(objective, "objective", objective)
    half = HALF.get(config.precision)
    products = nullcontext() if half is None else Halved(half)
    parallel = Parallel(copied, objective, 0 if config.noise == "counted" else None)
    rates: dict[str, Any] = dict(lr=1e-3, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay)
    live, batch = Live(copied), batch.to(meta)
    gradients = 0
    with computing(copied, replace(config, compile=False)), meta, TorchFunctions(), products, live.watched():
        optimizers = build_optimizers(copied, name=config.optimizer, **rates)
        for step in range(2):  # the optimizer's state is there from the first step on
            for _ in range(min(config.accumulate, 2)):
                summed, _ = parallel.loss(batch, step=step, smoothing=config.smoothing)
                live.keep()
                # Not by `backward`, which would leave the modes that a recomputation needs.
                _engine_run_backward((summed,), (torch.ones_like(summed),), False, False, (), True, True)
                del summed
            gradients = sum(size_of(p.grad) for p in copied.parameters() if p.grad is not None)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    weights = sum(map(size_of, kept.values()))
    before = gradients if config.accumulate > 1 else 0
    optimizer_bytes = sum(map(size_of, states_of(optimizers)))
    made = {part or "the loss": size for part, size in live.kept.items()}
    made["the loss"] = max(0, made.get("the loss", 0) - optimizer_bytes - before)
    return Footprint(
        weights=weights, gradients=gradients, optimizer=optimizer_bytes,
        activations={part: size for part, size in made.items() if size}, peak=weights + live.peak,
    )  # fmt: skip


def size_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def states_of(optimizers: Sequence[torch.optim.Optimizer]) -> list[Tensor]:
    """The tensors of optimizers' states."""
    values = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, Tensor)]


def status(name: str) -> int:
    """A size of this process in bytes, as Linux says it."""
    lines = (PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))


class Gauge:
    """The most memory that a training step took, where the system says so: the process on Linux, a CUDA device.

    The second step is measured: the optimizer has its state by then. Until it ends, what is freed goes back to the
    system at once; otherwise the C library keeps up to a third more than is used.
    """

    def __init__(self, model: nn.Module, device: torch.device, measures: bool = True) -> None:
        self.model, self.device, self.measured, self.steps = model, device, 0, 0
        self.latest: Batch | None = None
        self.batch: Batch | None = None
        """The largest batch of the step that is measured."""
        process = measures and device.type == "cpu" and PROCESS.exists()
        self.measures = process or (measures and device.type == "cuda")
        self.option = getattr(ctypes.CDLL(None), "mallopt", None) if process else None
        if self.option:
            self.option(MMAP_THRESHOLD, 1 << 16)

    def start(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Begin a step."""
        self.steps += 1
        if self.steps != 2 or not self.measures:
            return
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        if self.option:
            ctypes.CDLL(None).malloc_trim(0)
        here = [*self.model.parameters(), *self.model.buffers(), *states_of(optimizers)]
        try:
            (PROCESS / "clear_refs").write_text("5")  # the most is counted from here on
            self.besides = status("VmRSS") - sum(map(size_of, here))
        except (OSError, StopIteration):  # a container whose /proc cannot be written, or does not say so much
            self.give_up()

    def stop(self) -> None:
        """End a step."""
        if self.steps != 2 or not self.measures:
            return
        if self.device.type == "cuda":
            self.measured = torch.cuda.max_memory_allocated(self.device)
            return
        try:
            self.measured = status("VmHWM") - self.besides
        except (OSError, StopIteration):
            self.measured = 0
        self.give_up()

    def give_up(self) -> None:
        """Measure no more, and let the C library keep again what is freed."""
        self.measures = False
        if self.option:  # what the C library itself arrives at when large blocks are freed
            self.option(MMAP_THRESHOLD, 32 << 20)
            self.option(TRIM_THRESHOLD, 64 << 20)

    def add(self, batch: Batch) -> None:
        """Remember a batch of the present step."""
        self.latest = batch
        if self.steps == 2 and (self.batch is None or batch.tokens > self.batch.tokens):
            self.batch = batch

    def predict(self, objective: Objective, batch: Batch | None, config: TrainConfig) -> Footprint | None:
        """The predicted memory of a batch; None where `meta` lacks an operation of the model or the objective."""
        if batch is None:
            return None
        try:
            return predict(self.model, objective, batch, config)
        except Exception:  # whatever a model's or an objective's code says to tensors without numbers
            return None

    def cause(self, objective: Objective, config: TrainConfig) -> str:
        """The cause of a lack of memory, in words; empty where it is not known."""
        footprint = self.predict(objective, self.latest, config)
        return "" if footprint is None else footprint.cause(config)

    def compare(self, objective: Objective, config: TrainConfig) -> str:
        """The predicted memory beside the measured one; empty where a family or a device has none to say."""
        footprint = self.predict(objective, self.batch, config) if self.measured else None
        if footprint is None or footprint.peak < LEAST:
            return ""
        share = ", ".join(f"{name} {decimal_size(size)}" for name, size in list(footprint.parts().items())[:3])
        predicted, measured = decimal_size(footprint.peak), decimal_size(self.measured)
        return f"memory of a step: {predicted} predicted, {measured} measured ({share})"
