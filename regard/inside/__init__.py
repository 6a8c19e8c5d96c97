"""Looking inside: weights captured without a change to the model, and pictures of them."""

from regard.inside.capture import Seen, alignment, look
from regard.inside.figures import FIGURES, draw
from regard.inside.views import (
    draw_alignment,
    draw_by_length,
    draw_heads,
    draw_lines,
    draw_masks,
    draw_training,
)

__all__ = [
    "FIGURES",
    "Seen",
    "alignment",
    "draw",
    "draw_alignment",
    "draw_by_length",
    "draw_heads",
    "draw_lines",
    "draw_masks",
    "draw_training",
    "look",
]
