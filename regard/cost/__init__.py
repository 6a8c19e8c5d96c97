"""Parameters, FLOPs and memory of any model, from one pass on the `meta` device, and the formulas of lectures."""

from regard.cost.convnets import CONVNETS, ConvNetConfig, ConvNetCost, convnet_cost
from regard.cost.figures import Cost
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
from regard.cost.measure import cost, parameters
from regard.cost.report import binary_size, decimal_size

__all__ = [
    "CONVNETS",
    "ConvNetConfig",
    "ConvNetCost",
    "Cost",
    "attention_entries",
    "attention_matrix_bytes",
    "binary_size",
    "convnet_cost",
    "cost",
    "decimal_size",
    "decoder_parameters",
    "forward_flops",
    "hardware_flops",
    "parameters",
    "patch_values",
    "patches",
    "training_flops",
]
