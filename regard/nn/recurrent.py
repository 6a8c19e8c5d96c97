"""Recurrent layers: PyTorch's cells, with states as lists so that an LSTM's two parts need no special case."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.nn.dropout import Dropout

CELLS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Recurrent(nn.Module):
    """A stack of recurrent layers on B T inputs. State: one tensor (two for an LSTM) of shape depth·directions B N."""

    def __init__(
        self, cell: str, input_dim: int, dim: int, *, depth: int, dropout: float, bidirectional: bool = False
    ) -> None:
        super().__init__()
        self.parts = 2 if cell == "lstm" else 1
        self.drops = nn.ModuleList(Dropout(dropout) for _ in range(depth - 1))
        self.layers = CELLS[cell](
            input_dim, dim, depth, batch_first=True, bidirectional=bidirectional, dropout=dropout if depth > 1 else 0.0
        )

    def cost_note(self, training: bool) -> str:
        """Return a remark on the cost of these layers, printed below the figures."""
        lstm = "an LSTM on a CPU runs in oneDNN, whose workspace in training is two to ten times what is counted"
        return lstm if training and self.parts == 2 else ""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        state: list[Tensor] | None = None,
        lengths: Int[Tensor, "B"] | None = None,
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Return outputs and final state; with `lengths`, padding on the right is never read (in both directions)."""
        if self.training and any(drop.p and drop.noise is not None for drop in self.drops):  # type: ignore[union-attr]
            return self.layer_by_layer(x, state, lengths)
        initial = None if state is None else tuple(state) if self.parts == 2 else state[0]
        if lengths is None or x.is_meta:  # a tensor without data has no lengths to pack by
            out, last = self.layers(x, initial)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            out, last = self.layers(packed, initial)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
        return out, list(last) if self.parts == 2 else [last]

    def layer_by_layer(
        self, x: Float[Tensor, "B T D"], state: list[Tensor] | None, lengths: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Return what `forward` does, with counted dropout between the layers, which PyTorch's layers cannot do."""
        layers, lasts, length = self.layers, list[list[Tensor]](), x.shape[1]
        ways = 2 if layers.bidirectional else 1
        run: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh}[layers.mode]
        for depth in range(layers.num_layers):
            here = slice(depth * ways, (depth + 1) * ways)
            own = [weight for each in layers.all_weights[here] for weight in each]
            before = [x.new_zeros(ways, len(x), layers.hidden_size)] * self.parts
            before = before if state is None else [part[here] for part in state]
            x = self.drops[depth - 1](x) if depth else x
            rest = (own, layers.bias, 1, 0.0, True, layers.bidirectional)
            if lengths is None:
                x, *last = run(x, before if self.parts == 2 else before[0], *rest, True)
            else:
                packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
                before = [part[:, packed.sorted_indices] for part in before]
                data, *last = run(packed.data, packed.batch_sizes, before if self.parts == 2 else before[0], *rest)
                last = [part[:, packed.unsorted_indices] for part in last]
                x, _ = pad_packed_sequence(packed._replace(data=data), batch_first=True, total_length=length)
            lasts.append(last)
        return x, [torch.cat(part) for part in zip(*lasts, strict=True)]


class Bridge(nn.Module):
    """The decoder's first states from the encoder's last ones, both directions concatenated: tanh(W [→; ←])."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(parts))

    def forward(self, state: list[Tensor]) -> list[Tensor]:
        joined = [torch.cat([part[0::2], part[1::2]], dim=-1) for part in state]  # depth B D
        return [linear(part).tanh() for linear, part in zip(self.parts, joined, strict=True)]


def reverse(x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B T D"]:
    """The rows read from the right, each within its own length; padding stays where it is."""
    places = torch.arange(x.shape[1], device=x.device)
    ends = lengths.to(x.device)[:, None]
    order = torch.where(places < ends, ends - 1 - places, places)  # B T
    return x.gather(1, order[..., None].expand_as(x))


class LSTMLayer(nn.Module):
    """One LSTM layer from left to right, with a projection of its output where that is narrower than the cells, and
    with cells and outputs clipped where `clip` is given. State: output and cell, each B N."""

    def __init__(self, input_dim: int, cells: int, dim: int, *, clip: float | None = None) -> None:
        super().__init__()
        self.clip = clip
        if dim > cells:
            raise ValueError(f"{cells} cells cannot be projected to {dim}; give hidden_dim={dim} or more")
        self.inner = nn.LSTM(input_dim, cells, batch_first=True, proj_size=dim if dim < cells else 0)

    def forward(
        self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"], state: list[Tensor] | None = None
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Return outputs, zero in the padding, and the state behind each row's last token."""
        if self.clip is None and not self.inner.proj_size and not x.is_meta:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            packed, last = self.inner(packed, None if state is None else tuple(part[None] for part in state))
            out, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
            return out, [part[0] for part in last]
        return self.stepwise(x, lengths, state)

    def stepwise(
        self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"], state: list[Tensor] | None
    ) -> tuple[Float[Tensor, "B T N"], list[Tensor]]:
        """Step by step, since PyTorch's LSTM does not clip, and has no fast path with a projection."""
        inner: Any = self.inner
        limit = float("inf") if self.clip is None else self.clip
        width = inner.proj_size or inner.hidden_size
        h, c = state or [x.new_zeros(len(x), width), x.new_zeros(len(x), inner.hidden_size)]
        gates = x @ inner.weight_ih_l0.mT + inner.bias_ih_l0 + inner.bias_hh_l0  # B T 4N
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (gates[:, t] + h @ inner.weight_hh_l0.mT).chunk(4, dim=-1)
            cell = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(-limit, limit)
            out = o.sigmoid() * cell.tanh()
            out = (out @ inner.weight_hr_l0.mT if inner.proj_size else out).clamp(-limit, limit)
            real = (t < lengths.to(x.device))[:, None]
            h, c = torch.where(real, out, h), torch.where(real, cell, c)
            outputs.append(torch.where(real, out, torch.zeros_like(out)))
        return torch.stack(outputs, dim=1), [h, c]
