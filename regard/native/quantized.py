"""Quantised matrices, integers with scales: a quarter (int8) or a seventh (int4) of the memory that a step reads. Those
of 16 bits are in half.py.

Activations are rounded too, to 12 bits with a scale for each row, so that products are sums of integers: exact in
any order, and a row's result depends on that row alone. Token vectors and heads, where rounding hurts most, never go
below int8; norms, biases and positions stay as they are. In image models, int8 means the bytes of bytewise.py.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int8, Shaped, UInt8
from torch import Tensor, nn

from regard.native import compiled
from regard.native.bytewise import multiply_bytes, pack_bytes, suits_bytes, whole_bytes
from regard.native.half import multiply_half, pack_half
from regard.native.program import Weight
from regard.nn.block import Block
from regard.nn.embeddings import Embedding, Head
from regard.nn.heads import MaskHead
from regard.nn.lora import merge_low_rank
from regard.nn.positions import Position
from regard.nn.recurrent import Recurrent
from regard.nn.relative_attention import DistanceMatrix
from regard.nn.stack import Stack

Kind = Literal["bfloat16", "bfloat16-weights", "int8", "int4", "bytes"]
QUANTIZE = ("none", "bfloat16", "int8", "int4")
"""Ways to quantise, as users name them."""
GROUP = 32
"""Columns that share a scale in int4; rows are padded to a multiple of it."""
LEVELS = 2047
"""Largest integer of an activation."""
BLOCK = 4096
"""Columns whose products may be summed before conversion to floating point."""
HALF = 64
"""An activation is HALF · high + low with both in ±32: sums of BLOCK such products are exact in float32."""
REACHES = [6.0 + 0.2 * step for step in range(16)]
"""Candidates for the integer that a group's extreme value maps to in int4, on the negative side, which has one more."""
CHUNK = 1 << 18
"""Numbers processed at once, so that they stay in the processor's cache."""
ROWS = 512
"""Rows of activations multiplied at once."""
SENSITIVE = ("key_value", "up")
"""Matrices that stay int8 in an encoder: most of the damage of int4 is done there, and nothing is gained, as each is
read once for many rows."""
NARROW = 10
"""Columns from which on a row padded to GROUP bytes, with its scale, is smaller than its floats."""
CURE = "quantised weights cannot be trained; load without --quantize"


def pack(matrix: Float[Tensor, "N K"], kind: Kind) -> Weight:
    """Quantise a matrix: int8 with a scale for each row, or int4 with one for each group of columns."""
    if kind == "bytes":
        return pack_bytes(matrix)
    if kind in ("bfloat16", "bfloat16-weights"):
        return pack_half(matrix, both=kind == "bfloat16")
    rows, columns = matrix.shape
    padding = -columns % GROUP
    pack_part = {"int8": _pack_int8, "int4": _pack_int4}[kind]
    parts = matrix.detach().split(max(1, CHUNK // (columns + padding)))
    values, scales = zip(*(pack_part(F.pad(part.float(), (0, padding))) for part in parts), strict=True)
    return Weight(torch.cat(values), rows, columns, kind, torch.cat(scales))


def _pack_int8(part: Float[Tensor, "N K"]) -> tuple[Int8[Tensor, "N K"], Float[Tensor, "N"]]:
    scales = part.abs().amax(dim=1) / 127
    return (part / _nonzero(scales)[:, None]).round_().to(torch.int8), scales


def _pack_int4(part: Float[Tensor, "N K"]) -> tuple[UInt8[Tensor, "N B"], Float[Tensor, "N M"]]:
    """Return, of several roundings q of each group w, that with the least |w − d q|² at its own best d = w·q / q·q."""
    w = part.reshape(-1, GROUP).T.contiguous()  # a group is a column: sums then run along the memory
    extreme = w.gather(0, w.abs().argmax(dim=0, keepdim=True))[0]
    inverse = torch.where(extreme.abs() > 1e-30, -1 / extreme, 0.0)  # the sign takes the extreme below zero
    most, reach, scales = (torch.full_like(extreme, start) for start in (-1.0, 0.0, 0.0))
    q, product = torch.empty_like(w), torch.empty_like(w)
    for tried in REACHES:
        torch.mul(w, inverse * tried, out=q).round_().clamp_(-8, 7)
        along = torch.mul(w, q, out=product).sum(dim=0)
        square = torch.mul(q, q, out=product).sum(dim=0).clamp_(min=1)
        taken = along * along / square  # |w|² − |w − d q|²
        better = taken > most
        most, reach = torch.where(better, taken, most), torch.where(better, tried, reach)
        scales = torch.where(better, along / square, scales)
    nibbles = torch.mul(w, inverse * reach, out=q).round_().clamp_(-8, 7).add_(8).to(torch.uint8)
    packed = (nibbles[: GROUP // 2] | nibbles[GROUP // 2 :] << 4).T
    return packed.reshape(len(part), -1), scales.view(len(part), -1)


def _nonzero(scales: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    return scales.masked_fill(scales == 0, 1.0)


def whole_numbers(weight: Weight, at: slice | Int[Tensor, "..."]) -> Shaped[Tensor, "... K"]:
    """Return the integers of a selection of rows, padding included."""
    if weight.format == "bytes":
        return whole_bytes(weight)[at]
    values = weight.values[at]
    if weight.format == "int8":
        return values
    bytes_ = values.unflatten(-1, (-1, GROUP // 2))
    return torch.cat([bytes_ & 15, bytes_ >> 4], dim=-1).flatten(-2).to(torch.int8) - 8


def rows_of(weight: Weight, at: slice | Int[Tensor, "..."]) -> Float[Tensor, "... K"]:
    """Return a selection of rows in floating point."""
    if weight.scales is None:
        values = weight.values[at]
        return values.float() if values.dtype == torch.bfloat16 else values
    whole, scales = whole_numbers(weight, at).to(weight.scales.dtype), weight.scales[at]
    groups = scales[..., None] if weight.format != "int4" else scales.repeat_interleave(GROUP, dim=-1)
    return (whole * groups)[..., : weight.columns]


def apply(weight: Weight, x: Float[Tensor, "*N K"], bias: Float[Tensor, "M"] | None = None) -> Float[Tensor, "*N M"]:
    """x Wᵀ + b with PyTorch alone: the reference for the compiled kernels."""
    if weight.format in ("bfloat16", "bfloat16-weights"):
        return multiply_half(weight, x, bias)
    if weight.scales is None:
        return F.linear(x, weight.values, bias)
    numbers = x.reshape(-1, weight.columns)
    numbers = numbers if numbers.dtype == torch.float64 else numbers.float()
    y = multiply_bytes(weight, numbers) if weight.format == "bytes" else _multiply(weight, numbers)
    return (y if bias is None else y + bias).to(x.dtype).view(*x.shape[:-1], weight.rows)


def _multiply(weight: Weight, x: Float[Tensor, "R K"]) -> Float[Tensor, "R M"]:
    sizes = x.abs().amax(dim=1, keepdim=True) / LEVELS
    whole = F.pad((x / _nonzero(sizes)).round_(), (0, -weight.columns % GROUP))
    y = whole.new_empty(len(whole), weight.rows)
    for part, out in zip(whole.split(ROWS), y.split(ROWS), strict=True):
        {"int8": _multiply_int8, "int4": _multiply_int4}[weight.format](weight, part, out)
    return y.mul_(sizes)


def _multiply_int8(weight: Weight, x: Float[Tensor, "R K"], y: Float[Tensor, "R M"]) -> None:
    high = (x / HALF).round_()
    both = torch.cat([high, x - HALF * high])
    for w, scales, sums in _pieces(weight, y):
        sums.zero_()
        for first in range(0, x.shape[1], BLOCK):
            columns = slice(first, first + BLOCK)
            upper, lower = (both[:, columns] @ w[:, columns].T).unflatten(0, (2, len(x)))
            sums += lower.add_(upper, alpha=HALF)
        sums *= scales


def _multiply_int4(weight: Weight, x: Float[Tensor, "R K"], y: Float[Tensor, "R M"]) -> None:
    for w, scales, sums in _pieces(weight, y):
        sums.zero_()
        groups = zip(x.split(GROUP, dim=1), w.split(GROUP, dim=1), scales.T.contiguous(), strict=True)
        for part, matrix, scale in groups:
            sums += (part @ matrix.T).mul_(scale)  # two roundings: a fused one would differ at the ends of vectors


def _pieces(weight: Weight, y: Float[Tensor, "R M"]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield a few rows of a matrix at a time in floating point, with their scales and their columns of the result."""
    assert weight.scales is not None
    step = max(1, CHUNK // (weight.columns + -weight.columns % GROUP))
    for first in range(0, weight.rows, step):
        at = slice(first, first + step)
        yield whole_numbers(weight, at).to(y), weight.scales[at].to(y), y[:, at]


class Quantized(nn.Module):
    """A module with a quantised matrix, perhaps shared with others that are tied to it."""

    bias: Tensor | None

    def hold(self, weight: Weight, bias: Tensor | None = None) -> None:
        self.rows, self.columns, self.format = weight.rows, weight.columns, weight.format
        self.register_buffer("values", weight.values)
        self.register_buffer("scales", weight.scales)
        self.register_buffer("bias", None if bias is None else bias.detach())

    @property
    def packed(self) -> Weight:
        values, scales = cast(Tensor, self.values), cast(Tensor, self.scales)
        return Weight(values, self.rows, self.columns, self.format, scales)

    @property
    def weight(self) -> Tensor:
        raise ValueError(f"this matrix is {self.format}, its floating-point numbers are gone; load without --quantize")

    def product(self, x: Float[Tensor, "*N K"]) -> Float[Tensor, "*N M"]:
        """x Wᵀ + b."""
        if self.training or x.requires_grad and torch.is_grad_enabled():
            raise ValueError(CURE)
        has_kernel = self.format in compiled.FORMATS and compiled.available()
        if has_kernel and x.dtype == torch.float32 and x.device.type == "cpu":
            return compiled.linear(x, self.packed, self.bias)
        return apply(self.packed, x, self.bias)

    def extra_repr(self) -> str:
        return f"{self.rows} × {self.columns}, {self.format}"


class QuantizedLinear(Quantized):
    """Replaces a linear layer."""

    def __init__(self, weight: Weight, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        self.hold(weight, bias)
        self.in_features, self.out_features = weight.columns, weight.rows

    def forward(self, x: Float[Tensor, "*N K"]) -> Float[Tensor, "*N M"]:
        return self.product(x)


class QuantizedHead(QuantizedLinear, Head):  # type: ignore[misc]
    """Replaces an output head."""


class QuantizedEmbedding(Quantized, Embedding):  # type: ignore[misc]
    """Replaces an embedding; its positions, token types and norm stay in floating point."""

    def __init__(self, embedding: Embedding, weight: Weight) -> None:
        nn.Module.__init__(self)
        self.hold(weight)
        self.scale, self.dropout, self.position = embedding.scale, embedding.dropout, embedding.position
        self.types, self.norm = embedding.types, embedding.norm

    def vectors(self, ids: Int[Tensor, "*N"]) -> Float[Tensor, "*N D"]:
        if self.training:
            raise ValueError(CURE)
        return rows_of(self.packed, ids)


class QuantizedMaskHead(Quantized, MaskHead):  # type: ignore[misc]
    """Replaces a masked-token head."""

    def __init__(self, head: MaskHead, weight: Weight) -> None:
        nn.Module.__init__(self)
        self.hold(weight, head.bias)
        self.dense, self.norm, self.activation = head.dense, head.norm, head.activation

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return self.product(self.transform(x))


Step = Callable[[Tensor, Tensor, list[Tensor]], list[Tensor]]


def _rnn(inputs: Tensor, past: Tensor, state: list[Tensor]) -> list[Tensor]:
    return [(inputs + past).tanh()]


def _gru(inputs: Tensor, past: Tensor, state: list[Tensor]) -> list[Tensor]:
    (r, z, n), (r_past, z_past, n_past) = inputs.chunk(3, dim=-1), past.chunk(3, dim=-1)
    new = (n + (r + r_past).sigmoid() * n_past).tanh()
    return [new + (z + z_past).sigmoid() * (state[0] - new)]


def _lstm(inputs: Tensor, past: Tensor, state: list[Tensor]) -> list[Tensor]:
    i, f, g, o = (inputs + past).chunk(4, dim=-1)
    memory = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return [o.sigmoid() * memory.tanh(), memory]


CELLS: dict[type[nn.RNNBase], Step] = {nn.RNN: _rnn, nn.GRU: _gru, nn.LSTM: _lstm}


class QuantizedRecurrent(nn.Module):
    """Replaces recurrent layers: equal states and outputs, computed one position after the other."""

    def __init__(self, layer: Recurrent, pack_one: Callable[[Tensor], Weight]) -> None:
        super().__init__()
        cells = layer.layers
        self.parts, self.dim, self.step = layer.parts, cells.hidden_size, CELLS[type(cells)]
        self.sides = 2 if cells.bidirectional else 1
        names = [f"l{depth}{side}" for depth in range(cells.num_layers) for side in ("", "_reverse")[: self.sides]]

        def matrices(what: str) -> nn.ModuleList:
            both = ((getattr(cells, f"weight_{what}_{name}"), getattr(cells, f"bias_{what}_{name}")) for name in names)
            return nn.ModuleList(QuantizedLinear(pack_one(weight), bias) for weight, bias in both)

        self.inputs, self.states = matrices("ih"), matrices("hh")

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        state: list[Tensor] | None = None,
        lengths: Int[Tensor, "B"] | None = None,
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Return outputs and final state, as `Recurrent` does."""
        first = state or [x.new_zeros(len(self.inputs), len(x), self.dim) for _ in range(self.parts)]
        last: list[list[Tensor]] = []
        for depth in range(0, len(self.inputs), self.sides):
            sides = []
            for number in range(depth, depth + self.sides):
                out, end = self.run(number, x, [part[number] for part in first], lengths)
                sides.append(out)
                last.append(end)
            x = torch.cat(sides, dim=-1)
        return x, [torch.stack(part) for part in zip(*last, strict=True)]

    def run(
        self, number: int, x: Float[Tensor, "B T D"], state: list[Tensor], lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Run one layer in one direction. After the end of a row its state stays and its output is zero."""
        projected, length = self.inputs[number](x), x.shape[1]
        outputs: list[Tensor] = []
        backwards = number % self.sides == 1
        for t in range(length - 1, -1, -1) if backwards else range(length):
            new = self.step(projected[:, t], self.states[number](state[0]), state)
            if lengths is None:
                state = new
                outputs.append(state[0])
            else:
                real = (t < lengths)[:, None]
                state = [torch.where(real, updated, old) for updated, old in zip(new, state, strict=True)]
                outputs.append(state[0] * real)
        return torch.stack(outputs[::-1] if backwards else outputs, dim=1), state


def quantize(model: nn.Module, kind: str) -> nn.Module:
    """Replace the matrices of a model, in place, and return it. `int4` applies to the matrices of blocks and cells, and
    so do the bytes that int8 means in image models, in stacks that are not causal."""
    if kind not in QUANTIZE[1:]:
        raise ValueError(f"quantize={kind!r} is not known; use {', '.join(QUANTIZE[1:])} or none")
    if is_quantized(model):
        raise ValueError("this model is quantised already; load it again to quantise it in another way")
    merge_low_rank(model)
    model.eval().requires_grad_(False)
    outside: Kind = "int8"
    if kind == "bfloat16":
        outside, model = "bfloat16-weights", model.float()
    packed: dict[int, Weight] = {}
    has_convolutions = any(isinstance(module, nn.Conv2d) for module in model.modules())

    def pack_once(matrix: Tensor, kind: Kind) -> Weight:
        """Quantise a matrix once: tied ones stay shared."""
        kind = "int8" if kind == "bytes" and not suits_bytes(matrix) else kind
        if id(matrix) not in packed:
            packed[id(matrix)] = pack(matrix, kind)
        return packed[id(matrix)]

    def replacement(module: Any, kind: Kind) -> nn.Module:
        if isinstance(module, Recurrent):
            return QuantizedRecurrent(module, lambda matrix: pack_once(matrix, kind))
        weight = pack_once(module.weight, kind)
        if isinstance(module, Embedding):
            return QuantizedEmbedding(module, weight)
        if isinstance(module, MaskHead):
            return QuantizedMaskHead(module, weight)
        return (QuantizedHead if isinstance(module, Head) else QuantizedLinear)(
            weight, getattr(module, "added", module.bias)
        )

    def inside(module: nn.Module, causal: bool) -> Kind:
        """Return the kind for the matrices of a block or a cell."""
        many = has_convolutions and isinstance(module, Block) and not causal
        return "bytes" if many and kind == "int8" else cast(Kind, kind)

    def replace(parent: nn.Module, inner: Kind, causal: bool | None) -> None:
        """Replace each child after its own children, freeing its matrix first. `causal` is None outside of stacks."""
        for name in list(parent._modules):
            child = parent._modules[name]
            if child is None or isinstance(child, Position | DistanceMatrix | Quantized):
                continue
            own = inside(child, bool(causal)) if isinstance(child, Block | Recurrent) else inner
            replace(child, own, child.causal if isinstance(child, Stack) else causal)
            if isinstance(child, nn.Linear) and child.in_features < NARROW:
                continue
            if isinstance(child, nn.Linear | Head | MaskHead | Embedding | Recurrent):
                spared = own == "int4" and causal is False and name in SENSITIVE
                setattr(parent, name, replacement(child, "int8" if spared else own))

    replace(model, outside, causal=None)
    # 16-bit numbers would only slow down the rest
    return (model if kind == "bfloat16" else model.float()).eval()


def is_quantized(model: nn.Module) -> bool:
    return any(isinstance(module, Quantized) for module in model.modules())


def refuse_quantized(model: nn.Module) -> None:
    """Raise an error: quantised weights cannot be saved."""
    if is_quantized(model):
        raise ValueError("quantised weights are not saved; load the model without --quantize and save that")


def size_of(model: nn.Module) -> int:
    """Return the bytes of all parameters and buffers; tied ones count once."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors if tensor.numel()}.values())
