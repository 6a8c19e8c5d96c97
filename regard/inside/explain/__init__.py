"""Explanations of outputs by several methods, and their agreement: attention alone is no explanation."""

from regard.inside.explain.agreement import agree, aligners
from regard.inside.explain.effects import ablation, erasure, head_effects
from regard.inside.explain.gradients import gradient
from regard.inside.explain.lens import lens
from regard.inside.explain.patching import pair, patch
from regard.inside.explain.rollout import attention, rollout

__all__ = [
    "ablation", "agree", "aligners", "attention", "erasure", "gradient", "head_effects", "lens", "pair", "patch",
    "rollout",
]  # fmt: skip
