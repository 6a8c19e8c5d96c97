"""Recurrent layers: PyTorch's cells, with states as lists so that an LSTM's two parts need no special case."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CELLS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Recurrent(nn.Module):
    """A stack of recurrent layers on B T inputs. State: one tensor (two for an LSTM) of shape depth·directions B N."""

    def __init__(
        self, cell: str, input_dim: int, dim: int, *, depth: int, dropout: float, bidirectional: bool = False
    ) -> None:
        super().__init__()
        self.parts = 2 if cell == "lstm" else 1
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
        initial = None if state is None else tuple(state) if self.parts == 2 else state[0]
        if lengths is None or x.is_meta:  # a tensor without data has no lengths to pack by
            out, last = self.layers(x, initial)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            out, last = self.layers(packed, initial)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
        return out, list(last) if self.parts == 2 else [last]


class Bridge(nn.Module):
    """The decoder's first states from the encoder's last ones, both directions concatenated: tanh(W [→; ←])."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(parts))

    def forward(self, state: list[Tensor]) -> list[Tensor]:
        joined = [torch.cat([part[0::2], part[1::2]], dim=-1) for part in state]  # depth B D
        return [linear(part).tanh() for linear, part in zip(self.parts, joined, strict=True)]
