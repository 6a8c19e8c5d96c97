"""The work that processes share: which rows are whose, and how losses, gradients, norms and weights come together.

The training loop knows one object: here the one of a single process, which has all rows and all weights. `Processes`
in `distributed.py` is the same for many.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.files import own_tensors
from regard.nn.dropout import Noise
from regard.train.device import device_of

Objective = Callable[..., tuple[Tensor, int]]


class Parallel:
    """One process, which has all rows of a batch and all weights of the model."""

    chief = True
    """Whether this is the process that prints and writes."""
    alone = True
    about = ""
    """The layout in words; empty for one."""

    def __init__(self, model: nn.Module, objective: Objective | None = None, seed: int | None = None) -> None:
        self.model, self.objective = model, objective
        """`model` is what this process trains."""
        self.noise = None if seed is None else Noise(model, seed, device_of(model))
        """The counted random numbers of its dropout; None: a generator's."""

    def loss(self, batch: Batch, *, step: int = 0, before: int = 0, **options: float) -> tuple[Tensor, int]:
        """Return the summed loss of this process's rows of a batch and the number of their targets. `before` is the
        number of rows of the step that came before the batch; both decide what is dropped in training. `options` are
        the objective's."""
        if self.noise is not None and self.model.training:
            self.noise.at(step, torch.arange(before, before + batch.rows))
        assert self.objective is not None
        return self.objective(self.model, batch.to(device_of(self.model)), **options)

    def sum(self, *values: float | int) -> list[Any]:
        """Return sums over all processes."""
        return list(values)

    def agree(self, value: Any) -> Any:
        """Return what the first process has, a value that JSON can hold."""
        return value

    def gradients(self, parameters: list[nn.Parameter], count: int) -> None:
        """Make the gradients those of the mean loss over all targets of all processes."""
        torch._foreach_div_([p.grad for p in parameters if p.grad is not None], count)

    def clip(self, parameters: list[nn.Parameter], most: float) -> float:
        """Shorten the gradient to a norm of at most `most`; return the norm that it had."""
        return nn.utils.clip_grad_norm_(parameters, most).item()

    def shape(self, parameter: Tensor) -> torch.Size:
        """Return the shape of a whole parameter."""
        return parameter.shape

    def part(self, parameter: nn.Parameter, whole: Tensor) -> Tensor:
        """Return this process's part of a tensor that has a number for each of a parameter's."""
        return whole

    def whole(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        """Return that tensor from the parts of all processes."""
        return part

    def matrix(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        """Return that tensor where this process needs it: for a parameter of which it has a part."""
        return part

    def local(self, tensor: Any) -> Tensor:
        """Return the numbers of a tensor that this process has."""
        return tensor

    def state(self, parameter: nn.Parameter, state: dict[str, Any]) -> dict[str, Any]:
        """Return an optimizer's state of a whole parameter."""
        return state

    def tensors(self) -> dict[str, Tensor]:
        """Return the model's tensors by name, whole."""
        return own_tensors(self.model)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Set the model's tensors, those that are given, from whole ones."""
        with torch.no_grad():
            for name, tensor in own_tensors(self.model).items():
                if name in tensors:
                    tensor.copy_(tensors[name])

    def score(self, metrics: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return the metrics of the model, as the first process measures them."""
        return metrics()

    def publish(self, publish: Callable[[], None]) -> None:
        """Write the weights that others load."""
        publish()
