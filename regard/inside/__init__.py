"""Looking inside a model: recorded attention weights and hidden states, explanations, and figures.

The packages import only what stands before them: `draw` (figures) < `capture` (recording) < `explain` (what outputs
depend on) < `latent` (spaces of vectors) < `views` (named views of one input) < `page` (all of them together). What is
looked into is a `Prepared` input, which `task.read` returns for every task.
"""

from regard.inside.capture import Seen, cross_attention, look
from regard.inside.draw.curves import draw_by_length, draw_training
from regard.inside.draw.figures import FIGURES, draw_figure
from regard.inside.draw.matrices import draw_alignment, draw_heads, draw_lines, draw_masks
from regard.inside.draw.sequences import draw_bpe, draw_patches
from regard.inside.latent.superposition import draw_superposition
from regard.inside.latent.words import compare_word, draw_word, render_word
from regard.inside.views import draw_view, explain, show_view

__all__ = [
    "FIGURES", "Seen", "compare_word", "cross_attention", "draw_alignment", "draw_bpe", "draw_by_length", "draw_figure",
    "draw_heads", "draw_lines", "draw_masks", "draw_patches", "draw_superposition", "draw_training", "draw_view",
    "draw_word", "explain", "look", "render_word", "show_view",
]  # fmt: skip
