"""Precision of a run, and its blocks recomputed in the backward pass, compiled or rounded to eight bits.

Blocks are the modules of lists called `blocks`. Their `forward` is replaced while a run trains, and only in training:
the model's structure, its weights and what others see of it stay as they are.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from regard.data.sets.batches import Batch
from regard.nn.masks import Rule
from regard.train.config import TrainConfig
from regard.train.device import device_of
from regard.train.eight_bits import FP8, rounded_linear

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""Types that autocast computes products in."""
LEAST_SCALE = 2.0**-10
"""Below this scale, a gradient that is not finite is no matter of float16."""
SLOW = 1.5
"""Products that take this many times as long as those of float32 are said to be slow."""


class Placed:
    """An objective on the model's device and in the run's precision, whatever device the batch is on."""

    def __init__(self, objective: Callable[..., tuple[Tensor, int]], precision: str) -> None:
        self.objective, self.half = getattr(objective, "objective", objective), HALF.get(precision)

    def __call__(self, model: Any, batch: Batch, **options: Any) -> tuple[Tensor, int]:
        device = device_of(model)
        with autocast(device, self.half):
            return self.objective(model, batch.to(device), **options)

    @property
    def classifies(self) -> bool:
        """Whether the model chooses a class, or token, for each target by itself."""
        return getattr(self.objective, "classifies", True)

    @property
    def figures(self) -> Callable[[Any, Batch], dict[str, float]] | None:
        """Function from the model and a batch to figures that the objective has of its own, such as CTC's blanks."""
        own = getattr(self.objective, "figures", None)
        return own and (lambda model, batch: own(model, batch.to(device_of(model))))


def autocast(device: torch.device, half: torch.dtype | None) -> AbstractContextManager[Any]:
    """Context manager: products are computed in the type `half`; None: all is computed in the type of the weights."""
    return nullcontext() if half is None else torch.autocast(device.type, dtype=half)


def scaler_of(config: TrainConfig, device: torch.device) -> torch.amp.GradScaler:
    """Return a scaler of the loss, so that small gradients are not zero in float16; in other precisions it does
    nothing. The loss is a sum over tokens, so less is needed than for the mean that PyTorch's default is made for."""
    scale = max(1.0, 2.0**16 / config.batch_tokens)
    return torch.amp.GradScaler(device.type, init_scale=scale, enabled=config.precision == "float16")


def overflows(scaler: torch.amp.GradScaler) -> bool:
    """Whether gradients may be infinite because of float16 alone: the scaler then passes over the step."""
    return scaler.is_enabled() and scaler.get_scale() > LEAST_SCALE


@contextmanager
def computing(model: nn.Module, config: TrainConfig) -> Iterator[None]:
    """Context manager: the blocks of a model are recomputed, compiled or rounded to eight bits, as the run asks for."""
    changed: list[nn.Module] = []
    if config.precision == "fp8-emulated":
        for layer in (layer for block in blocks_of(model) for layer in block.modules() if type(layer) is nn.Linear):
            layer.forward = partial(rounded_linear, layer, FP8)  # type: ignore[method-assign]
            changed.append(layer)
    if config.compile or config.checkpoint_blocks:
        for block in blocks_of(model):
            run = torch.compile(block.forward) if config.compile else block.forward
            if config.checkpoint_blocks:
                contexts = partial(contexts_of, block)
                run = partial(checkpoint, afresh(run), use_reentrant=False, context_fn=contexts)
            block.forward = in_training(block, run, block.forward)  # type: ignore[method-assign]
            changed.append(block)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def contexts_of(block: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of a block's forward pass, and of its recomputation, which counts no batch a second time."""
    return nullcontext(), statistics_kept([norm for norm in block.modules() if isinstance(norm, _BatchNorm)])


@contextmanager
def statistics_kept(norms: list[Any]) -> Iterator[None]:
    """Context manager: what batch norms learn of their input is forgotten."""
    before = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update({name: buffer.clone() for name, buffer in norm._buffers.items() if buffer is not None})
    try:
        yield
    finally:
        for norm, buffers in zip(norms, before, strict=True):
            norm._buffers.update(buffers)


def in_training(block: nn.Module, run: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A `forward` that is `run` where there will be a backward pass, and `plain` elsewhere."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (run if block.training and torch.is_grad_enabled() else plain)(*args, **kwargs)

    return forward


def afresh(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that evaluates masks and position biases anew, as its recomputation will: blocks share what these
    keep."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        for value in kwargs.values():
            if isinstance(value, Rule):
                value.forget()
        return run(*args, **kwargs)

    return forward


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model, each once; those of reversible stacks are none, since they are recomputed anyway."""
    once = (module for module in model.modules() if not getattr(module, "reversible", False))
    lists = (blocks for module in once if isinstance(blocks := getattr(module, "blocks", None), nn.ModuleList))
    return list(dict.fromkeys(block for blocks in lists for block in blocks))


def check_computing(model: nn.Module, config: TrainConfig, device: torch.device) -> Iterator[str]:
    """Yield remarks on what will be slow or has no effect; a ValueError for a precision that the device lacks."""
    if (half := HALF.get(config.precision)) is not None:
        recurrent = {type(layer) for layer in model.modules() if isinstance(layer, nn.LSTM | nn.GRU | nn.RNN)}
        try:
            times = slowness(half, device)
            with autocast(device, half):
                for layer in recurrent:
                    layer(2, 2, device=device)(torch.ones(1, 2, 2, device=device))
        except (RuntimeError, TypeError):
            what = "" if not recurrent else f" the layers of a {type(model).__name__}"
            fact = f"--train.precision {config.precision}: {device} does not compute{what} in it"
            other = "bfloat16" if half == torch.float16 else "float16"
            raise ValueError(f"{fact}; use float32, or try {other}") from None
        if device.type == "cpu" and times > SLOW:
            yield f"{config.precision}: products take {times:.0f} times as long as in float32 on this CPU"
    if config.precision == "fp8-emulated":
        yield "fp8-emulated: numbers are rounded to eight bits, products are float32's: slower, to see what it would do"
    wanted = [name for name in ("checkpoint_blocks", "compile") if getattr(config, name)]
    if wanted and not blocks_of(model):
        why = "is reversible, which recomputes them already" if any_reversible(model) else "has no blocks"
        yield f"--train.{wanted[0].replace('_', '-')} has no effect: the model {why}"


def any_reversible(model: nn.Module) -> bool:
    return any(getattr(module, "reversible", False) is True for module in model.modules())


def slowness(half: torch.dtype, device: torch.device, size: int = 192) -> float:
    """Return the time of a product in a type, relative to float32."""
    seconds = []
    for dtype in (torch.float32, half):
        x = torch.ones(size, size, dtype=dtype, device=device)
        least = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            (x @ x)[0, 0].item()
            least = min(least, time.perf_counter() - start)
        seconds.append(least)
    return seconds[1] / max(seconds[0], 1e-9)
