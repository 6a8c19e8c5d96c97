"""Benchmarks on this machine: growth with length, architectures, kernels in training, decoding, quantised weights."""

from regard.bench.architectures import ArchitecturesConfig, measure_architectures
from regard.bench.growth import GrowthConfig, measure_growth
from regard.bench.quality import measure_quality

__all__ = ["ArchitecturesConfig", "GrowthConfig", "measure_architectures", "measure_growth", "measure_quality"]
