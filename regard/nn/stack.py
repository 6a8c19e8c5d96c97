"""A stack of blocks, and how its weights are initialised."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.attention import Attention
from regard.nn.block import Block, BlockConfig
from regard.nn.cache import Cache
from regard.nn.embeddings import Embedding, Head
from regard.nn.feedforward import FeedForward
from regard.nn.masks import Mask
from regard.nn.norm import build_norm
from regard.nn.positions import Bias, Position
from regard.nn.reversible import Streams, Tape
from regard.registry import positions


def build_position(config: BlockConfig, dim: int | None = None) -> Position:
    """Build the position scheme of a config; `dim` where token vectors have another width than the stack."""
    sizes = dict(dim=dim or config.dim, heads=config.heads, head_dim=config.head_size, max_len=config.max_len)
    return positions.build(config.position, **sizes)


@dataclass(frozen=True, slots=True)
class Encoder:
    """The encoder of inputs that are no tokens, such as frames of sound."""

    encode: Callable[..., Float[Tensor, "B S D"]]
    """Function from a batch of what the model `reads` to the vectors that the decoder cross-attends to."""
    length: Callable[[Mapping[str, Tensor]], int]
    """Function from the inputs of one request to the number of those vectors."""
    longest: int
    """The most of them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a generative Transformer; `source` are the embedding and stack of an encoder of tokens.

    The head's input is multiplied by `scale`.
    """

    embedding: Embedding
    stack: "Stack"
    head: Head
    source: "tuple[Embedding, Stack] | None" = None
    scale: float = 1.0
    encoder: Encoder | None = None


class Stack(nn.Module):
    """`depth` blocks and, for `final_norm`, a norm after them. A `causal` stack requires a mask that hides the future.

    `shared` is one block, used at every depth.
    """

    def __init__(
        self,
        config: BlockConfig,
        position: Position,
        *,
        depth: int,
        causal: bool,
        cross: bool = False,
        final_norm: bool,
        shared: bool = False,
    ) -> None:
        super().__init__()
        self.position, self.causal, self.reversible = position, causal, config.reversible
        blocks = [Block(config, position, causal=causal, cross=cross) for _ in range(1 if shared else depth)]
        self.blocks = nn.ModuleList(repeat(blocks[0], depth) if shared else blocks)
        self.norm = build_norm(config.norm, config.dim, config.norm_eps) if final_norm else nn.Identity()
        self.line: Callable[..., Tensor] | None = None
        """Runs the blocks where other processes have some of them."""

    def cost_note(self, training: bool) -> str:
        """Return a remark on this stack's cost, printed below the figures."""
        again = "reversible: on the way back each part of a layer runs once more, which FLOPs do not count"
        return again if self.reversible and training else ""

    def new_cache(self, room: int) -> Cache:
        """Return an empty cache with room for `room` positions, of the type that each layer's kernel needs."""
        return Cache([block.attention.kernel.memory(room) for block in cast(Iterable[Block], self.blocks)])

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "M S D"] | None = None,
        *,
        mask: Mask | None = None,
        context_mask: Mask | None = None,
        cache: Cache | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Run all blocks; `bias` is one that the input has, such as that of a graph's edges, in place of positions'."""
        if self.causal and mask is None:
            raise ValueError("a causal stack got no mask and would see the future; pass mask=causal()")
        if self.line is not None and cache is None:
            if bias is not None:
                raise ValueError("a pipeline hands on no bias of its inputs; use --train.parallel data")
            return self.norm(self.line(x, context, mask, context_mask))
        return self.norm(
            self.through(self.blocks, x, context, mask=mask, context_mask=context_mask, cache=cache, bias=bias)
        )

    def through(
        self,
        blocks: nn.ModuleList | list[nn.Module],
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B S D"] | None,
        *,
        mask: Mask | None,
        context_mask: Mask | None,
        cache: Cache | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the output of some of the blocks, one after the other."""
        start = cache.length if cache is not None else 0
        mask = mask.at(start) if mask is not None else None
        if bias is None:
            bias = self.position.bias(causal=mask is not None and mask.hides_future)
        bias = bias.at(start) if bias is not None else None
        own = cache.own if cache is not None else [None] * len(blocks)
        source = cache.source if cache is not None and cache.source else [None] * len(blocks)
        y = x if not self.reversible else self.streams(x, context, bias, taped=cache is None)
        for block, keys, context_keys in zip(blocks, own, source, strict=True):
            y = block(
                y, context, mask=mask, bias=bias, context_mask=context_mask, cache=keys, context_cache=context_keys
            )
        return y.join() if isinstance(y, Streams) else y

    def streams(self, x: Float[Tensor, "B T D"], context: Tensor | None, bias: Bias | None, *, taped: bool) -> Streams:
        """Return the input as two streams; with gradients, parts may read the context and the bias's parameters."""
        if not taped or not torch.is_grad_enabled():
            return Streams(x, x, None)
        others = [] if context is None else [context]
        return Streams(x, x, Tape(self, x, bias, [*others, *(self.position.parameters() if bias is not None else ())]))


def glorot(module: nn.Module) -> None:
    """Initialise matrices Glorot-uniformly, a fused one as the matrices that it holds; biases to zero."""
    layers = [layer for layer in module.modules() if isinstance(layer, Attention)]
    fused = {layer.key_value for layer in layers if layer.fused}
    for child in module.modules():
        if isinstance(child, nn.Linear):
            for part in child.weight.detach().chunk(2 if child in fused else 1):
                nn.init.xavier_uniform_(part)
            if child.bias is not None:
                torch.nn.init.zeros_(child.bias)


def init_keys_as_queries(stack: nn.Module) -> None:
    """Initialise keys as copies of queries, so that tokens first attend to similar ones (Trockman & Kolter, 2023)."""
    for layer in (module for module in stack.modules() if isinstance(module, Attention)):
        if layer.kv_heads == layer.heads and layer.fused:
            layer.key_value.weight.detach()[: len(layer.query.weight)] = layer.query.weight.detach()


def zero_output_init(stack: Stack) -> None:
    """Initialise the output matrices of all parts to zero: an untrained stack passes its input on."""
    for module in stack.modules():
        if isinstance(module, Attention):
            nn.init.zeros_(module.out.weight)
        if isinstance(module, FeedForward):
            nn.init.zeros_(module.down.weight)
