"""Named views of a model at work on one input; importing this package registers them."""

from regard.inside.views import (  # noqa: F401
    captions,
    explanations,
    feedforward,
    forecast,
    graph,
    image,
    search,
    sound,
    tokens,
    video,
)
from regard.inside.views.base import VIEWS, Shown, View, draw_view, find_view, register_view, show_view
from regard.inside.views.explanations import EXPLANATIONS, explain

__all__ = [
    "EXPLANATIONS", "VIEWS", "Shown", "View", "draw_view", "explain", "find_view", "register_view", "show_view",
]  # fmt: skip
