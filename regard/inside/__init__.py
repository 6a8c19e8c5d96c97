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


def draw_view(task, view, item, path):
    """Draw a view of a task at work on one input."""
    from regard.inside.alignments import draw_translation
    from regard.inside.boxes import draw_boxes
    from regard.inside.captions import draw_words

    if view == "alignment":
        return draw_translation(task, item, task.translate([item])[0][0], path)
    if view == "boxes":
        return draw_boxes(item, task.detect([item])[0], task.model.config.labels, path)
    return draw_words(task, item, path)
