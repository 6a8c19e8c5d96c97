"""What each part of a model costs, from sizes alone; a family's rule in `families.py` adds these up.

*parameters* are numbers that are trained. *flops* count matrix products, a multiply–add as 2. *kept* are the numbers
that PyTorch's autograd saves for the backward pass, *live* those of a part's widest moment without gradients.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from regard.nn.attention import AttentionConfig
from regard.nn.block import BlockConfig
from regard.nn.feedforward import GATED
from regard.registry import Registry, positions

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCost:
    """What a kernel adds to the projections around it."""

    parameters: Callable[[int, int], int] = lambda heads, head_dim: 0
    """Its own parameters, from heads and head_dim."""
    multiplies: bool = False
    """They are a matrix that queries are multiplied with, before the fused kernel."""
    normalizes: bool = False
    """Makes normalised copies of q and k, before the fused kernel."""
    pairwise: bool = False
    """Scores are no plain product: head_dim numbers for each query and key, and the whole matrix of weights."""


kernel_costs = Registry("kernel cost")
kernel_costs.register("full")(KernelCost())
kernel_costs.register("dot")(KernelCost())
kernel_costs.register("normalized")(KernelCost(normalizes=True))
kernel_costs.register("general")(KernelCost(parameters=lambda heads, head_dim: heads * head_dim**2, multiplies=True))
kernel_costs.register("additive")(KernelCost(parameters=lambda heads, head_dim: heads * head_dim, pairwise=True))


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
    PositionCost(parameters=lambda config, dim: buckets(config) * config.heads, biases=True, trained_bias=True)
)


def buckets(config: BlockConfig) -> int:
    """Distances that a relative bias tells apart: as its name says, or its class."""
    default = inspect.signature(positions[config.position]).parameters["buckets"].default
    return positions.settings(config.position).get("buckets", default)


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
    return ffn_dim * (4 if activation in GATED else 3 if activation == "relu2" else 2)


def widths(config: AttentionConfig) -> tuple[int, int, int]:
    """Width of all queries together, of all keys together, and of the context that keys are made from."""
    head_dim = config.head_dim or config.dim // config.heads
    return config.heads * head_dim, (config.kv_heads or config.heads) * head_dim, config.context_dim or config.dim


def attention_parameters(config: AttentionConfig) -> int:
    """The four projections and what the kernel trains."""
    inner, keys, context_dim = widths(config)
    return (
        linear_parameters(config.dim, inner, config.bias)
        + linear_parameters(context_dim, 2 * keys, config.bias)
        + linear_parameters(inner, config.dim, config.bias)
        + kernel_costs[config.kernel].parameters(config.heads, inner // config.heads)
    )


def query_flops(config: AttentionConfig) -> int:
    """Of one query: its projection, the output's, and the kernel's matrix where it has one."""
    inner, _, _ = widths(config)
    return 2 * (2 * config.dim * inner + _kernel_matrix(config))


def _kernel_matrix(config: AttentionConfig) -> int:
    kernel = kernel_costs[config.kernel]
    return kernel.parameters(config.heads, widths(config)[0] // config.heads) if kernel.multiplies else 0


def key_flops(config: AttentionConfig) -> int:
    """Of one position of the context: its key and value."""
    _, keys, context_dim = widths(config)
    return 2 * 2 * keys * context_dim


def score_flops(config: AttentionConfig, keys: int) -> int:
    """Of one query over `keys` keys: scores and mixed values. A causal mask is not credited: it hides half at most."""
    inner, _, _ = widths(config)
    return 2 * 2 * inner * keys


def is_fused(config: AttentionConfig, position: PositionCost, *, training: bool) -> bool:
    """Whether weights are computed tile by tile and the matrix is never held."""
    plain = not training or not (config.dropout or ("biased" in config.needs and position.trained_bias))
    return plain and not kernel_costs[config.kernel].pairwise


def attention_kept(
    config: AttentionConfig, position: PositionCost, *, batch: int, queries: int, keys: int, own: bool
) -> int:
    """Of one layer and batch, the mask included; `own` where keys come from the queries' own input."""
    inner, key_width, _ = widths(config)
    kernel, fused = kernel_costs[config.kernel], is_fused(config, position, training=True)
    kept = batch * queries * (config.dim + inner)  # inputs of the first and the last projection
    if kernel.multiplies:  # queries before the matrix, the matrix repeated for the batch, another layout of the output
        kept += batch * (queries * inner * (2 if fused else 1) + _kernel_matrix(config))
    turned = keys * key_width if own and position.turns else 0
    if kernel.normalizes:  # what was normalised (keys stand in one tensor with values), its lengths, the new keys
        kept += batch * (queries * (inner + config.heads) + keys * (config.kv_heads or config.heads))
        kept += batch * (keys * key_width if fused else turned or keys * 2 * key_width)
    if fused:
        statistics = queries * config.heads
        kept += batch * (queries * inner + keys * 2 * key_width + turned + statistics)
        return kept + _mask(config, batch, queries, keys)
    if kernel.pairwise:  # values, the tanh of all sums; repeated heads change the layout, which costs a copy of it
        kept += batch * (keys * inner + queries * keys * inner * (2 if key_width < inner else 1))
    else:  # queries, keys and values, the heads of the last two repeated
        kept += batch * (queries + 2 * keys) * inner
    weights = 3 if config.dropout else 2 if kernel.pairwise else 1  # with dropout: before, the noise, after
    return kept + weights * batch * config.heads * queries * keys


def attention_live(
    config: AttentionConfig, position: PositionCost, *, batch: int, queries: int, keys: int, own: bool
) -> int:
    """Of one layer and batch, without gradients: q, k, v, the mixed values, and the mask or what the kernel needs."""
    inner, key_width, _ = widths(config)
    kernel = kernel_costs[config.kernel]
    turned = keys * key_width if own and position.turns else 0
    extra = queries * inner + _kernel_matrix(config) if kernel.multiplies else 0
    extra += queries * inner + keys * key_width if kernel.normalizes else 0
    live = batch * (queries * 2 * inner + keys * 2 * key_width + turned + extra)
    if kernel.pairwise:  # all sums and their tanh
        return live + batch * queries * keys * inner * (3 if key_width < inner else 2)
    once = config.heads * queries * keys if "biased" in config.needs else 0
    return live + once + _mask(config, batch, queries, keys)


def _mask(config: AttentionConfig, batch: int, queries: int, keys: int) -> int:
    """Numbers of the mask or bias that the fused kernel is given; causality alone needs none."""
    if "biased" in config.needs:  # joined with the padding's mask, each row of the batch has its own
        return (1 if "causal" in config.needs else batch) * config.heads * queries * keys
    return 0 if "causal" in config.needs else batch * queries * keys


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
