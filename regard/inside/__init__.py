"""Looking inside: weights captured without a change to the model, and pictures of them."""

from regard.inside.capture import Seen, alignment, look
from regard.inside.figures import FIGURES, draw
from regard.inside.sequences import draw_bpe, draw_patches
from regard.inside.superposition import draw_superposition
from regard.inside.text import draw_text_attention, show_text
from regard.inside.views import (
    draw_alignment,
    draw_by_length,
    draw_heads,
    draw_lines,
    draw_masks,
    draw_training,
)
from regard.inside.words import compare_word, draw_word, render_word

__all__ = [
    "FIGURES",
    "Seen",
    "alignment",
    "compare_word",
    "draw",
    "draw_alignment",
    "draw_bpe",
    "draw_by_length",
    "draw_heads",
    "draw_lines",
    "draw_masks",
    "draw_patches",
    "draw_superposition",
    "draw_text_attention",
    "draw_training",
    "draw_word",
    "look",
    "render_word",
    "show_text",
]
