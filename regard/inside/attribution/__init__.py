"""Attention is not explanation: what an output rests on, by views that can be compared."""

from regard.inside.attribution.agreement import agree, aligners
from regard.inside.attribution.asking import ask
from regard.inside.attribution.effects import ablation, erasure, head_effects
from regard.inside.attribution.gradients import gradient
from regard.inside.attribution.lens import lens
from regard.inside.attribution.patching import pair, patch
from regard.inside.attribution.question import Question
from regard.inside.attribution.rollout import attention, rollout
from regard.inside.attribution.views import VIEWS, explain, render

__all__ = [
    "VIEWS", "Question", "ablation", "agree", "aligners", "ask", "attention", "erasure", "explain", "gradient",
    "head_effects", "lens", "pair", "patch", "render", "rollout",
]  # fmt: skip
