"""Parameters, FLOPs and memory: arithmetic on configs, no tensors."""

import regard.cost.families
import regard.cost.recurrent  # noqa: F401  both register rules
from regard.cost.count import Cost, Count, Flops, Memory, Setting, cost, counts, register_count
from regard.cost.formulas import (
    attention_entries,
    attention_matrix_bytes,
    decoder_parameters,
    forward_flops,
    hardware_flops,
    patch_values,
    patches,
    training_flops,
)
from regard.cost.report import binary_size, decimal_size

__all__ = [
    "Cost",
    "Count",
    "Flops",
    "Memory",
    "Setting",
    "attention_entries",
    "attention_matrix_bytes",
    "binary_size",
    "cost",
    "counts",
    "decimal_size",
    "decoder_parameters",
    "forward_flops",
    "hardware_flops",
    "patch_values",
    "patches",
    "register_count",
    "training_flops",
]
