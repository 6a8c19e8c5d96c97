"""Stacks of blocks: the pieces of `pieces.py` put together as `regard/nn/stack.py` puts modules together."""

from typing import Any

from regard.cost.attention import (
    attention_kept,
    attention_live,
    attention_parameters,
    kernel_costs,
    key_flops,
    query_flops,
)
from regard.cost.count import Flops
from regard.cost.pieces import (
    PositionCost,
    feedforward_flops,
    feedforward_kept,
    feedforward_live,
    feedforward_parameters,
    norm_kept,
    norm_parameters,
    position_costs,
)
from regard.nn.attention import AttentionConfig
from regard.nn.block import BlockConfig, own_needs
from regard.nn.kernels.base import check_kernel


def attention_of(config: BlockConfig, *, causal: bool = False, cross: bool = False) -> AttentionConfig:
    """The config of a block's attention layer: its own, or the cross one, which takes no position."""
    biased = position_costs[config.position].biases
    found = AttentionConfig(
        dim=config.dim, heads=config.heads, kv_heads=config.kv_heads, head_dim=config.head_dim, bias=config.bias,
        dropout=config.attention_dropout, max_len=config.max_len,
        kernel=config.cross_kernel or config.kernel if cross else config.kernel,
        needs=frozenset({"crosses"}) if cross else own_needs(causal=causal, biased=biased),
    )  # fmt: skip
    check_kernel(found.kernel, found.needs | ({"drops"} if found.dropout else set()))
    return found


def position_of(config: BlockConfig, *lengths: int) -> PositionCost:
    """The cost of a config's position scheme, after a check that it reaches these lengths."""
    position = position_costs[config.position]
    if position.limited and max(lengths) > config.max_len:
        raise ValueError(
            f"length {max(lengths)} is past max_len={config.max_len} of {config.position} positions; "
            f"use a length up to {config.max_len} or a larger max_len"
        )
    return position


def stack_parameters(config: BlockConfig, *, depth: int, final: bool) -> dict[str, int]:
    """Parameters of a stack without cross-attention, by part."""
    sizes: dict[str, Any] = dict(activation=config.activation, bias=config.bias)
    return {
        "attention": depth * attention_parameters(attention_of(config)),
        "feedforward": depth * feedforward_parameters(config.dim, config.ffn_dim, **sizes),
        "norms": norms_parameters(config, depth=depth, parts=2, final=final),
    }


def stack_flops(config: BlockConfig, *, depth: int, keys: int, causal: bool) -> Flops:
    """Of one token in a stack without cross-attention, over `keys` keys."""
    own = attention_of(config, causal=causal)
    kernel = kernel_costs[own.kernel]
    forward = feedforward_flops(config.dim, config.ffn_dim, activation=config.activation)
    matrices = query_flops(own) + key_flops(own) + forward
    return Flops(matrices=matrices, attention=kernel.score_flops(own, keys) + kernel.summary_flops(own)) * depth


def embedding_kept(config: BlockConfig, position: PositionCost, dim: int, *, normed: bool) -> int:
    """Of one token: the dropout's noise, what a norm keeps, and the input of the matrix that mixes in positions."""
    noise = dim if config.dropout else 0
    return noise + (norm_kept(config.norm, dim) if normed else 0) + position.matrix(dim) // dim


def norms_parameters(config: BlockConfig, *, depth: int, parts: int, final: bool) -> int:
    """Parameters of the norms of a stack whose blocks have `parts` residual parts."""
    return (depth * parts + final) * norm_parameters(config.norm, config.dim)


def stack_kept(
    config: BlockConfig, position: PositionCost, *, depth: int, batch: int, length: int, context: int | None = None,
    causal: bool, final: bool,
) -> int:  # fmt: skip
    """Numbers that a stack keeps for the backward pass, its output included.

    A reversible one keeps two streams, and on the way back the widest of its parts, whose input one of them is.
    """
    tokens = batch * length
    feedforward = feedforward_kept(config.dim, config.ffn_dim, activation=config.activation, dropout=config.ffn_dropout)
    sizes = dict(batch=batch, queries=length)
    own = attention_of(config, causal=causal)
    parts = [tokens * feedforward, attention_kept(own, position, **sizes, keys=length, own=True)]
    if context is not None:
        cross = attention_of(config, cross=True)
        parts.append(attention_kept(cross, position, **sizes, keys=context, own=False))
    noise = config.dim if config.dropout else 0
    parts = [part + tokens * (norm_kept(config.norm, config.dim) + noise) for part in parts]
    end = config.dim + (norm_kept(config.norm, config.dim) if final else 0)
    return (max(parts) + tokens * config.dim if config.reversible else depth * sum(parts)) + tokens * end


def stack_notes(config: BlockConfig, *, training: bool) -> tuple[str, ...]:
    """What the figures of a stack do not show."""
    again = "reversible: on the way back each part of a layer runs once more, which FLOPs do not count"
    return (again,) if config.reversible and training else ()


def stack_live(
    config: BlockConfig, position: PositionCost, *, batch: int, length: int, context: int | None = None, causal: bool
) -> int:
    """Numbers at the widest moment of a stack without gradients; a context stays throughout."""
    sizes = dict(batch=batch, queries=length)
    moments = [
        batch * length * feedforward_live(config.ffn_dim, activation=config.activation),
        attention_live(attention_of(config, causal=causal), position, **sizes, keys=length, own=True),
    ]
    if context is not None:
        moments.append(attention_live(attention_of(config, cross=True), position, **sizes, keys=context, own=False))
    # Callers hold the stack's and the block's input, the block its stream and, where norms come first, the norm's.
    streams = 5 if config.reversible else 4 if config.norm_place == "pre" else 3
    return max(moments) + batch * config.dim * (streams * length + (context or 0))
