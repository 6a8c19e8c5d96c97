"""Recording what a model computes while it runs: attention weights, calls of kernels, hidden states, ablated heads."""

from regard.inside.capture.ablation import without
from regard.inside.capture.weights import Seen, cross_attention, look, matching, watch

__all__ = ["Seen", "cross_attention", "look", "matching", "watch", "without"]
