"""Parameters, FLOPs and memory of a model, as they are handed back and printed."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from regard.cost.report import render


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What the costs are asked for."""

    batch: int
    """Sequences at once."""
    length: int
    """Tokens of each; of the target, where there is a source as well."""
    source_length: int
    """Tokens of each source, where there is one."""
    training: bool
    """With gradients, or without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """Of a forward pass. A multiply–add is 2; only matrix products count."""

    matrices: int = 0
    """Products with weights: the same for every length."""
    attention: int = 0
    """Queries with keys and weights with values: grows with the length, unless the kernel looks no farther."""

    @property
    def forward(self) -> int:
        return self.matrices + self.attention

    @property
    def training(self) -> int:
        """Backward costs twice forward. What a kernel computes a second time, to keep less, is not counted."""
        return 3 * self.forward

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(matrices=self.matrices + other.matrices, attention=self.attention + other.attention)

    def __mul__(self, times: int) -> "Flops":
        return Flops(matrices=self.matrices * times, attention=self.attention * times)

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self) | {"forward": self.forward, "training": self.training}


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes. In training everything has the same number format, AdamW's two moments included."""

    weights: int
    """The parameters."""
    gradients: int
    """One a parameter; 0 without training."""
    optimizer: int
    """AdamW's two moments of each; 0 without training."""
    activations: dict[str, int]
    """Training: what autograd saves for the backward pass. Otherwise: the widest moment of one layer.

    Counted as PyTorch on a CPU does (and tested against it): dropout keeps its noise in full numbers (a byte on a
    GPU), padding is hidden by a mask of numbers, the loss goes through the vocabulary in chunks. Token ids, yes/no
    masks and what lives only within one operation are left out.
    """
    cache: dict[str, int]
    """Keys and values (a recurrent model: states) between the steps of decoding, a full cache."""
    attention_matrices: dict[str, int]
    """If they were held in all layers at once."""
    scores: int
    """Over the vocabulary, for every position at once, if they were held."""
    matrices_held: tuple[str, ...]
    """The kinds of attention whose matrices are really held (without training by one layer at a time)."""
    training: bool = field(repr=False)
    """Whether gradients, optimiser and kept activations belong to the total, or the cache."""

    @property
    def total(self) -> int:
        """Training: weights, gradients, optimiser, activations. Otherwise: weights, activations, cache."""
        rest = self.gradients + self.optimizer if self.training else sum(self.cache.values())
        return self.weights + rest + sum(self.activations.values())

    def to_dict(self) -> dict[str, Any]:
        figures = dataclasses.asdict(self) | {"total": self.total}
        return {name: figure for name, figure in figures.items() if name != "training"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Parameters, FLOPs and memory of a config at a batch and length."""

    model: str
    """The family's name."""
    setting: Setting
    """Batch, lengths, training or not."""
    bytes_per_number: int
    """4 for float32, 2 for bfloat16."""
    parameters: dict[str, int]
    """By part, and the `total`."""
    flops_per_token: dict[str, Flops]
    """Of one `source` and of one `target` token, or of `any`. The last is also what a step of cached decoding costs, or
    a little more than that where the kernel takes tokens in chunks."""
    flops_per_sequence: int
    """What is computed once a sequence (a recurrent model's bridge)."""
    flops: Flops
    """Of the whole batch."""
    memory: Memory
    """In bytes."""
    notes: tuple[str, ...]
    """What a reader of the figures should know."""

    def render(self) -> str:
        """The figures as text, sizes in decimal and in binary units."""
        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: bytes and FLOPs as whole numbers."""
        setting = dataclasses.asdict(self.setting)
        if "source" not in self.flops_per_token:
            del setting["source_length"]
        figures = {"model": self.model} | setting | dataclasses.asdict(self) | {
            "flops_per_token": {name: flops.to_dict() for name, flops in self.flops_per_token.items()},
            "flops": self.flops.to_dict(),
            "memory": self.memory.to_dict(),
            "notes": list(self.notes),
        }  # fmt: skip
        return {name: figure for name, figure in figures.items() if name != "setting"}
