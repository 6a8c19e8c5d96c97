"""Parameters, FLOPs and memory: arithmetic on configs, no tensors."""

import regard.cost.captioner
import regard.cost.clip
import regard.cost.detr
import regard.cost.families
import regard.cost.hierarchies
import regard.cost.images
import regard.cost.kernels
import regard.cost.recurrent  # noqa: F401  all of them register rules
from regard.cost.convnets import CONVNETS, ConvNetConfig, ConvNetCost, convnet_cost
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
    "CONVNETS",
    "ConvNetConfig",
    "ConvNetCost",
    "Cost",
    "Count",
    "Flops",
    "Memory",
    "Setting",
    "attention_entries",
    "attention_matrix_bytes",
    "binary_size",
    "convnet_cost",
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
