"""Records a generative Transformer as a program: the operations of each of its modules."""

from collections.abc import Iterable
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.native.program import (
    GATES,
    Activate,
    Activation,
    Attend,
    AttendRows,
    Columns,
    Embed,
    Gate,
    Gather,
    Heads,
    Linear,
    Norm,
    Program,
    Rotate,
    Store,
    Unit,
    Unsupported,
    Weight,
)  # fmt: skip
from regard.nn.attention import Attention
from regard.nn.block import Block
from regard.nn.embeddings import Embedding, Head
from regard.nn.kernels import Dot, Normalized
from regard.nn.kernels.full import Full
from regard.nn.norm import RMSNorm
from regard.nn.positions import DistanceBias, Position
from regard.nn.stack import Parts, Stack


def record_decoder(parts: Parts, max_positions: int) -> Program:
    """Record ids and positions → logits, with the past in pages."""
    program = Program()
    check_plain(parts)
    x = record_embedding(program, parts.embedding, max_positions)
    for layer, block in enumerate(cast(Iterable[Block], parts.stack.blocks)):
        record_block(program, block, x, layer=layer, parts=parts, max_positions=max_positions)
    last = program.columns("last", x.width)
    program.add(Gather(x, last))
    record_norm(program, parts.stack.norm, last, last, parts.scale)
    weight = weight_of(parts.head)
    program.add(Linear(last, program.columns("scores", weight.rows), weight, parts.head.bias))
    return program


def record_encoder(parts: Parts, max_positions: int) -> Program:
    """Record ids of sources → their keys and values, in the pages of every layer of the decoder."""
    assert parts.source is not None
    embedding, stack = parts.source
    program = Program()
    x = record_embedding(program, embedding, max_positions)
    for block in cast(Iterable[Block], stack.blocks):
        record_block(program, block, x, layer=None, parts=parts, max_positions=max_positions)
    record_norm(program, stack.norm, x, x)
    for layer, block in enumerate(cast(Iterable[Block], parts.stack.blocks)):
        assert block.cross is not None
        k, v = record_keys(program, block.cross, x)
        program.add(Store(k, v, layer, source=True))
    return program


def record_block(
    program: Program, block: Block, x: Columns, *, layer: int | None, parts: Parts, max_positions: int
) -> None:
    """Record one layer; without a `number` it is an encoder layer, whose rows attend to each other."""
    stack = parts.stack if layer is not None else cast(Any, parts.source)[1]
    own = block.attention
    normed = program.columns("normed", x.width)
    heads, mixed = heads_of(own), program.columns("mixed", own.heads * own.head_dim)

    y = before(program, block, "attention", x, normed)
    q, (k, v) = record_queries(program, own, y), record_keys(program, own, y)
    for rotated in (q, k) if own.position is not None else ():
        program.add(Rotate(rotated, own.head_dim, program.once(angles_of, own.position, max_positions)))
    if stack.position.bias() is not None:
        table, zero = program.once(distances, stack.position, max_positions, causal=layer is not None)
        heads = Heads(heads.heads, heads.kv_heads, heads.head_dim, heads.scale, table, zero)
    if layer is None:
        program.add(AttendRows(q, k, v, mixed, heads))
    else:
        program.add(Store(k, v, layer), Attend(q, mixed, heads, layer))
    after(program, block, "attention", x, mixed, own.out)

    if block.cross is not None and layer is not None:
        y = before(program, block, "cross", x, normed)
        q = record_queries(program, block.cross, y)
        program.add(Attend(q, mixed, heads_of(block.cross), layer, source=True))
        after(program, block, "cross", x, mixed, block.cross.out)

    layers = block.feedforward
    y = before(program, block, "feedforward", x, normed)
    up, down = weight_of(layers.up), weight_of(layers.down)
    hidden = program.columns("hidden", up.rows)
    program.add(Linear(y, hidden, up, layers.up.bias))
    if layers.gated:
        gated = program.columns("gated", down.columns)
        program.add(Gate(hidden, gated, GATES[layers.kind]))
        hidden = gated
    else:
        program.add(Activate(hidden, cast(Activation, layers.kind)))
    after(program, block, "feedforward", x, hidden, layers.down)


def before(program: Program, block: Block, part: str, x: Columns, normed: Columns) -> Columns:
    """Record the input of a part: the residual stream, normalised for pre-norm."""
    if not block.pre or isinstance(block.norms[part], nn.Identity):
        return x
    record_norm(program, block.norms[part], x, normed)
    return normed


def after(program: Program, block: Block, part: str, x: Columns, mixed: Columns, out: nn.Module) -> None:
    """Record the output projection of a part and its addition to the residual stream, if the block has one."""
    program.add(Linear(mixed, x, weight_of(out), cast(Any, out).bias, add=block.residual))
    if not block.pre:
        record_norm(program, block.norms[part], x, x)


def record_embedding(program: Program, embedding: Embedding, max_positions: int) -> Columns:
    if embedding.types is not None:
        raise Unsupported("a model with token types cannot be recorded for decoding")
    weight = weight_of(embedding)
    x = program.columns("x", weight.columns)
    positions = table_of(embedding.position, max_positions)
    positions = None if positions is None else positions.to(weight.values.device)
    program.add(Embed(x, weight, embedding.scale, positions))
    if embedding.norm is not None:
        record_norm(program, embedding.norm, x, x)
    return x


def record_queries(program: Program, attention: Attention, y: Columns) -> Columns:
    q = program.columns("q", attention.heads * attention.head_dim)
    program.add(Linear(y, q, weight_of(attention.query), attention.query.bias))
    if isinstance(attention.kernel, Normalized):
        program.add(Unit(q, attention.head_dim, epsilon(attention.query)))
    return q


def record_keys(program: Program, attention: Attention, y: Columns) -> tuple[Columns, Columns]:
    width = attention.kv_heads * attention.head_dim
    both = program.columns("kv", 2 * width)
    program.add(Linear(y, both, weight_of(attention.key_value), attention.key_value.bias))
    k, v = Columns("kv", 0, width), Columns("kv", width, width)
    if isinstance(attention.kernel, Normalized):
        program.add(Unit(k, attention.head_dim, epsilon(attention.key_value)))
    return k, v


def record_norm(program: Program, norm: nn.Module, x: Columns, out: Columns, scale: float = 1.0) -> None:
    """Record a norm, or none; its output may be scaled."""
    if isinstance(norm, nn.Identity):
        if scale != 1:
            raise Unsupported("scaled outputs without a last norm")
        return
    kind: Literal["layer", "rms"] = "rms" if isinstance(norm, RMSNorm) else "layer"
    weight, bias = cast(Any, norm).weight, getattr(norm, "bias", None)
    if scale != 1:
        weight, bias = weight.detach() * scale, None if bias is None else bias.detach() * scale
    program.add(Norm(x, out, kind, weight, bias, cast(Any, norm).eps))


def epsilon(layer: nn.Module) -> float:
    """Return the normalized kernel's epsilon for the layer's dtype; quantised layers output float32."""
    values = weight_of(layer).values
    return torch.finfo(values.dtype if values.is_floating_point() else torch.float32).eps


def heads_of(attention: Attention) -> Heads:
    kernel = attention.kernel
    if type(attention) is not Attention or attention.scale is not None:
        raise Unsupported(f"{type(attention).__name__} projects or scales in another way than programs do")
    if type(kernel) not in (Full, Dot, Normalized):
        raise Unsupported(
            f"{type(kernel).__name__} attention cannot be recorded as a program; full, dot and normalized can"
        )
    scale = 1.0 if isinstance(kernel, Dot) else attention.head_dim**-0.5
    return Heads(attention.heads, attention.kv_heads, attention.head_dim, scale)


def weight_of(module: nn.Module) -> Weight:
    """Return the matrix of a layer; quantised layers have theirs packed."""
    packed = getattr(module, "packed", None)
    if packed is not None:
        return packed
    if type(module) not in (nn.Linear, Embedding, Head):
        raise Unsupported(f"{type(module).__name__} is not a plain linear layer")
    values = cast(Tensor, module.weight).detach()
    return Weight(values, *values.shape)


def table_of(position: Position, max_positions: int) -> Float[Tensor, "T D"] | None:
    """Return what is added to the token vectors, by position."""
    try:
        return position.added(max_positions)
    except NotImplementedError as error:
        raise Unsupported(str(error)) from None


def angles_of(position: Position, max_positions: int) -> Float[Tensor, "2 T K"]:
    try:
        return position.rotations(max_positions)
    except NotImplementedError as error:
        raise Unsupported(str(error)) from None


def distances(position: Position, max_positions: int, *, causal: bool) -> tuple[Float[Tensor, "H N"], int]:
    """Return the bias by distance, and the column of distance 0."""
    bias = position.bias(causal=causal)
    if not isinstance(bias, DistanceBias):
        raise Unsupported(f"{type(bias).__name__} depends on more than the distance")
    zero = max_positions - 1
    keys = torch.arange(max_positions if causal else 2 * zero + 1, device=bias.device)
    with torch.no_grad():
        return bias.values(torch.full((1, 1), zero, device=bias.device), keys[None])[:, 0].contiguous(), zero


def check_plain(parts: Parts) -> None:
    """Raise Unsupported if a hook watches a layer, or one has no operation in programs."""
    modules: list[nn.Module] = [parts.embedding, parts.stack, parts.head, *(parts.source or ())]
    if any(module.reversible for module in modules if isinstance(module, Stack)):
        raise Unsupported("reversible layers have two streams")
    if any(is_watched(module) for module in modules):
        raise Unsupported("forward hooks watch the model")


def is_watched(module: nn.Module) -> bool:
    """Whether a module or one of its children has forward hooks."""
    return any(inner._forward_hooks or inner._forward_pre_hooks for inner in module.modules())
