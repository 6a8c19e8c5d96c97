"""Comparisons of one small model with and without each component, and verdicts on what the lectures claim."""

from regard.why import attention_parts, block_parts, image_parts, training_parts  # noqa: F401  they register
from regard.why.component import COMPONENTS, find_component

__all__ = ["COMPONENTS", "find_component"]
