"""What things cost when they run: growth with length, the lectures' table, and what is learned under each kernel."""

from regard.bench.architectures import ArchitecturesConfig, measure_architectures
from regard.bench.growth import GrowthConfig, measure_growth
from regard.bench.quality import measure_quality

__all__ = ["ArchitecturesConfig", "GrowthConfig", "measure_architectures", "measure_growth", "measure_quality"]
