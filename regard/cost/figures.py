"""Records of the parameters, FLOPs and memory of a model."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from regard.cost.report import render


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The sizes that costs are computed for."""

    batch: int
    """Sequences at once."""
    length: int
    """Tokens of each sequence; of the target, where there is a source as well."""
    source_length: int
    """Tokens of each source, where there is one."""
    training: bool
    """Whether the cost is that of training rather than of inference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flops:
    """FLOPs of a forward pass. A multiply–add counts as 2; only matrix products are counted."""

    matrices: int = 0
    """FLOPs of products with weight matrices; for each token they do not depend on the length."""
    attention: int = 0
    """FLOPs of queries with keys and of weights with values; they grow with the length, unless a kernel limits it."""

    @property
    def forward(self) -> int:
        return self.matrices + self.attention

    @property
    def training(self) -> int:
        """FLOPs of forward and backward: three times the forward pass. Recomputation inside kernels is not counted."""
        return 3 * self.forward

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(matrices=self.matrices + other.matrices, attention=self.attention + other.attention)

    def __mul__(self, times: int) -> "Flops":
        return Flops(matrices=self.matrices * times, attention=self.attention * times)

    def to_dict(self) -> dict[str, int]:
        return dataclasses.asdict(self) | {"forward": self.forward, "training": self.training}


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory in bytes. In training all tensors have the same dtype, AdamW's two moments included."""

    weights: int
    """The parameters."""
    gradients: int
    """Bytes of the gradients; 0 without training."""
    optimizer: int
    """Bytes of AdamW's two moments; 0 without training."""
    activations: dict[str, int]
    """Training: tensors that autograd saves for the backward pass. Otherwise: the peak of live activations.

    Counted as PyTorch on a CPU does (and tested against it): dropout keeps its noise in full numbers (a byte on a
    GPU), padding is hidden by a mask of numbers, the loss goes through the vocabulary in chunks. Token ids, yes/no
    masks and what lives only within one operation are left out.
    """
    cache: dict[str, int]
    """Bytes of a full cache of keys and values (of a recurrent model: its state) in decoding."""
    attention_matrices: dict[str, int]
    """Bytes of the attention matrices of all layers, if they were held at once."""
    scores: int
    """Bytes of the logits of all positions, if they were held at once."""
    matrices_held: tuple[str, ...]
    """The kinds of attention whose matrices are actually materialised (without training one layer at a time)."""
    training: bool = field(repr=False)
    """Whether gradients, optimiser and kept activations belong to the total, or the cache."""

    @property
    def total(self) -> int:
        """Total bytes. Training: weights, gradients, optimiser, activations. Otherwise: weights, activations, cache."""
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
    """Batch size, lengths, and whether training is counted."""
    bytes_per_number: int
    """4 for float32, 2 for bfloat16."""
    parameters: dict[str, int]
    """Number of parameters by part, and the `total`."""
    flops_per_token: dict[str, Flops]
    """FLOPs of one `source` and of one `target` token, or of `any` token, or of one `image` token. Those of a target or
    any token are also, at most, the cost of a step of cached decoding."""
    flops_per_sequence: int
    """FLOPs of products that run once a sequence, as a pooler or a recurrent model's bridge."""
    flops: Flops
    """FLOPs of the whole batch."""
    memory: Memory
    """Memory in bytes."""
    notes: tuple[str, ...]
    """Remarks printed below the figures."""

    def render(self) -> str:
        """The figures as text, sizes in decimal and in binary units."""
        return render(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary for `--json`: bytes and FLOPs as whole numbers."""
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
