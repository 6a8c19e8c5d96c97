"""The frames of a clip with the attention that each part of them gets, through time."""

from collections.abc import Mapping
from typing import Any

from regard.inside.draw.overlays import as_rgb, grid_of_images, overlay
from regard.inside.views.base import Shown, View, register_view
from regard.inside.views.image import best_label, label_of
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_video import MOST_FRAMES, frames_of, shares_of

ROW = 8
"""Frames that are drawn beside each other."""


def show_frames(prepared: Prepared, *, layer: int | None = None, head: int | None = None) -> Shown:
    """Show how much each tubelet counts for the clip's vector: by rollout, or by the weights of one layer."""
    shares, of = shares_of(prepared, layer, head)
    steps = []
    for number, own in enumerate(shares):
        best = int(own.argmax())
        place = [best // own.shape[1], best % own.shape[1]]
        steps.append({"step": number, "share": round(float(own.sum()), 4), "strongest": place})
    data = {"of": of, "tubelet": prepared.model.config.tubelet, "steps": steps} | best_label(prepared)

    def draw(path: Any) -> Any:
        frames, cells = frames_of(prepared, MOST_FRAMES), shares.numpy()
        patch, top = prepared.model.config.patch, float(cells.max())
        plain = [as_rgb(frame) for frame, _ in frames]
        veiled = [overlay(frame, cells[step], top=top, cell=patch) for frame, step in frames]
        labels = [f"step {step}: {cells[step].sum():.0%}" for _, step in frames]
        images, texts = [], []
        for start in range(0, len(frames), ROW):
            images += [plain[start : start + ROW], veiled[start : start + ROW]]
            texts += [[""] * len(plain[start : start + ROW]), labels[start : start + ROW]]
        return grid_of_images(images, texts, path, title=f"{label_of(data)}  {of}".strip(), top=top, side=1.1)

    return data, draw


def render_frames(data: Mapping[str, Any]) -> str:
    """A line for each step: its share, and the patch that counts most."""
    lines = [f"{label_of(data)}  {data['of']}".strip(), "step  share  strongest patch (row, column)"]
    lines += [
        f"{row['step']:4}  {row['share']:5.1%}  {row['strongest'][0]},{row['strongest'][1]}" for row in data["steps"]
    ]
    return "\n".join(lines)


register_view(View(name="frames", show=show_frames, render=render_frames, options=("layer", "head")), False)
