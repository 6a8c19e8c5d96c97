"""The tokens that CTC hears, each at the vector that says it, over the spectrogram."""

from collections.abc import Mapping
from typing import Any

import torch

from regard.inside.draw.sound import draw_heard
from regard.inside.views.base import Shown, View, register_view
from regard.tasks.prepared import Prepared


@torch.no_grad()
def show_heard(prepared: Prepared) -> Shown:
    """Show which vector says which token, with the probabilities of blank and of the best token for every vector."""
    frames = prepared.inputs["audio"][0].float().cpu()
    probabilities = prepared.run(prepared.inputs)[0].float().cpu().softmax(-1)
    blank, step = prepared.model.config.blank, prepared.request["step"]
    outputs = prepared.outputs
    names = prepared.names(outputs.columns)
    rows = [
        {"token": name, "vector": row, "seconds": round(row * step, 3), "probability": round(value, 4)}
        for name, row, value in zip(
            names, outputs.rows, probabilities[outputs.rows, outputs.columns].tolist(), strict=True
        )
    ]
    others = probabilities.clone()
    others[:, blank] = 0
    silent, best = probabilities[:, blank].tolist(), others.max(1).values.tolist()
    text = prepared.request["text"]
    data = {"text": text, "step": step, "tokens": rows, "blank": [round(value, 4) for value in silent]}
    pairs = [(row["token"], row["seconds"]) for row in rows]
    return data, lambda path: draw_heard(frames, len(probabilities) * step, pairs, silent, best, path, text)


def render_heard(data: Mapping[str, Any]) -> str:
    """A line for each token: when it begins, and its probability."""
    lines = [f"{data['text'] or '(nothing)'}", "second  vector  probability  token"]
    lines += [
        f"{row['seconds']:6.2f}  {row['vector']:6}  {row['probability']:11.3f}  {row['token']}"
        for row in data["tokens"]
    ]
    return "\n".join(lines)


register_view(View(name="heard", show=show_heard, render=render_heard, needs_weights=False, complete=False), False)
