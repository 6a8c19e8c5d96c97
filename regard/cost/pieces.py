"""What each part of a model costs, from sizes alone; a family's rule in `families.py` adds these up.

*parameters* are numbers that are trained. *flops* count matrix products, a multiply–add as 2. *kept* are the numbers
that PyTorch's autograd saves for the backward pass, *live* those of a part's widest moment without gradients.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.nn.block import BlockConfig
from regard.nn.feedforward import GATED
from regard.registry import Registry, positions

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionCost:
    """What a position scheme adds."""

    parameters: Callable[[BlockConfig, int], int] = lambda config, dim: 0
    """Its parameters, from a config and the width of the token vectors; one scheme serves a whole stack."""
    matrix: Callable[[int], int] = lambda dim: 0
    """Entries of the matrix that every token is multiplied with."""
    turns: bool = False
    """Makes a turned copy of q and k."""
    biases: bool = False
    """Adds an H · T · S tensor to the scores."""
    trained_bias: bool = False
    """That tensor needs a gradient, for which PyTorch leaves its fused kernel."""
    limited: bool = False
    """There is no position past max_len."""


position_costs = Registry("position cost")
for _name in ("none", "sinusoidal", "sinusoidal-halves", "grid"):
    position_costs.register(_name)(PositionCost())
position_costs.register("learned")(PositionCost(parameters=lambda config, dim: config.max_len * dim, limited=True))
position_costs.register("concatenated")(
    PositionCost(parameters=lambda config, dim: 2 * dim**2, matrix=lambda dim: 2 * dim**2)
)
position_costs.register("rotary")(PositionCost(turns=True))
position_costs.register("alibi")(PositionCost(biases=True))
position_costs.register("relative")(
    PositionCost(
        parameters=lambda config, dim: settings(positions, config.position)["buckets"] * config.heads,
        biases=True,
        trained_bias=True,
    )
)


def settings(registry: Registry, name: str) -> dict[str, Any]:
    """Of a kernel or position: what its name says, otherwise what its class does."""
    known = inspect.signature(registry[name]).parameters
    return {key: parameter.default for key, parameter in known.items()} | registry.settings(name)


def linear_parameters(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def norm_parameters(kind: str, dim: int) -> int:
    """LayerNorm has scale and shift, RMSNorm only the scale."""
    return dim if kind == "rms" else 2 * dim


def norm_kept(kind: str, dim: int) -> int:
    """Of one token: the input and its statistics, mean and deviation or only the length."""
    return dim + (1 if kind == "rms" else 2)


def feedforward_parameters(dim: int, ffn_dim: int, *, activation: str, bias: bool) -> int:
    up = ffn_dim * (2 if activation in GATED else 1)
    return linear_parameters(dim, up, bias) + linear_parameters(ffn_dim, dim, bias)


def feedforward_flops(dim: int, ffn_dim: int, *, activation: str) -> int:
    """Of one token."""
    return 2 * feedforward_parameters(dim, ffn_dim, activation=activation, bias=False)


def feedforward_kept(dim: int, ffn_dim: int, *, activation: str, dropout: float) -> int:
    """Of one token: its input, what the activation needs and what the second matrix reads."""
    hidden = {"relu": 1, "geglu-tanh": 5}.get(activation, 4 if activation in GATED else 2)
    # Without dropout, ReLU's result and the second matrix's input are one tensor.
    noise = (2 if activation == "relu" else 1) if dropout else 0
    return dim + (hidden + noise) * ffn_dim


def feedforward_live(ffn_dim: int, *, activation: str) -> int:
    """Of one token: the hidden layer before, in and after its activation."""
    return ffn_dim * (4 if activation in GATED else 3 if activation in ("relu2", "quick-gelu") else 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentSize:
    """A stack of recurrent layers."""

    cell: str
    """rnn, gru or lstm."""
    inputs: int
    """Width of what the first layer reads."""
    dim: int
    """Units of a layer, in each direction."""
    depth: int
    """Layers."""
    directions: int = 1
    """2 where it reads both ways."""


def recurrent_parameters(size: RecurrentSize) -> int:
    """PyTorch's cells: an input matrix, a state matrix and two biases for each gate."""
    biases = size.directions * size.depth * GATES[size.cell] * size.dim * 2
    return recurrent_flops(size) // 2 + biases


def recurrent_flops(size: RecurrentSize) -> int:
    """Of one token."""
    inputs = size.inputs + (size.depth - 1) * size.directions * size.dim  # of all layers
    return 2 * size.directions * GATES[size.cell] * size.dim * (inputs + size.depth * size.dim)


def recurrent_kept(size: RecurrentSize, *, dropout: float) -> int:
    """Of one token: each layer's input, and of each unit the gates, the new state and what lies between them.

    As PyTorch's own loop keeps them; oneDNN's LSTM (the default on a CPU) holds a workspace of two to ten times that.
    """
    units = {"rnn": 1, "gru": 7, "lstm": 7}[size.cell]
    width = size.directions * size.dim
    between = (size.depth - 1) * width * (2 if dropout else 1)
    return size.inputs + size.depth * units * width + between
