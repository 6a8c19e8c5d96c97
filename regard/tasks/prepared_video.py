"""A prepared clip: its tubelets are the tokens; and how much each of them counts by attention."""

import base64
from io import BytesIO
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.readers.image_files import as_images
from regard.modalities.video import VIDEO
from regard.models import parts
from regard.nn.weights import behind_kernels, weights_of
from regard.tasks.prepared import Outputs, Prepared, TokenSequence, all_tokens, first_token

MOST_TOKENS = 8192
"""The most tokens of a clip that is looked at."""
MOST_FRAMES = 16
"""Frames that are shown of a clip."""


def read_clip(task: Any, *videos: Any, **options: Any) -> Prepared:
    """Prepare a clip for an encoder: tokens are its tubelets, named by step, row and column."""
    model, answers = task.model, task.output
    if len(videos) != 1:
        raise ValueError(f"a {type(model).__name__} reads one clip at a time, got {len(videos)}")
    frames = task.preprocessing.fit(VIDEO.read(videos[0]))
    first, (rows, columns) = model.config.first, model.grid
    steps = -(-len(frames) // model.config.tubelet)
    names = [f"{t}:{y},{x}" for t in range(steps) for y in range(rows) for x in range(columns)]
    if len(names) > MOST_TOKENS:
        raise ValueError(f"the clip has {len(names):,} tubelets, too many to show, at most {MOST_TOKENS:,}")
    title = f"{steps} × {rows} × {columns} tubelets of {model.config.tubelet} frames"
    front = ["[class]"] * first
    sequences = [TokenSequence("video", title, front + names, prefix=first)]
    axes = {layer: model.encoder.axis(layer) for layer in parts.attention_layers(model)}
    if "space" in axes.values():
        step = [f"{y},{x}" for y in range(rows) for x in range(columns)]
        sequences.append(TokenSequence("step", "The patches of the first step", front + step, prefix=first))
        apart = model.config.attention == "divided"  # then each patch has its own steps
        title, front = ("The steps of the first patch", []) if apart else ("The steps", front)
        sequences.append(TokenSequence("steps", title, front + [f"step {t}" for t in range(steps)]))
    sequence, places = sequences[0], {"whole": 0, "space": 1, "time": 2}

    def run(inputs: dict[str, Tensor]) -> Tensor:
        rows = model.embed(**inputs) if answers == "vector" else model(**inputs)
        return rows[:, None]

    def choose(prepared: Prepared) -> Outputs:
        column = 0 if answers == "vector" else int(prepared.logits()[0, 0].argmax())
        return Outputs([0], [column], first_token(len(sequence)) if first else all_tokens(len(sequence)))

    prepared = Prepared(
        model=model, inputs=task.tensors([frames]), run=run, answers=answers, row_sequence=None, choose=choose,
        sequences=sequences, labels=list(getattr(model.config, "labels", ())), original=frames,
        sequence_of={layer: places[axis] for layer, axis in axes.items() if axis != "whole"},
        embed=lambda inputs: model.embed(**inputs), own_views=("frames",),
    )  # fmt: skip
    prepared.details = lambda logits: shown(prepared)
    return prepared


def shown(prepared: Prepared) -> dict[str, Any]:
    """The frames of a prepared clip as images, and how much each of their parts counts, for the page."""
    shares, _ = shares_of(prepared)
    patch, size = prepared.model.config.patch, prepared.original.shape[1:3]
    frames = [{"image": as_uri(frame), "step": step} for frame, step in frames_of(prepared, MOST_FRAMES)]
    cover = [round(cells * patch / side, 4) for cells, side in zip(prepared.model.grid, size, strict=True)]
    rounded = [[[round(value, 6) for value in row] for row in step] for step in shares.tolist()]
    return {"frames": frames, "shares": rounded, "top": round(float(shares.max()), 6), "cover": cover}


def as_uri(frame: np.ndarray) -> str:
    """A frame as a data: URI of a PNG file."""
    file = BytesIO()
    as_images([frame])[0].save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@torch.no_grad()
def shares_of(
    prepared: Prepared, layer: int | None = None, head: int | None = None
) -> tuple[Float[Tensor, "T Y X"], str]:
    """Return the share of each tubelet in a clip's vector, and the name of what it follows from: attention rollout
    through all layers, or the weights of one layer."""
    model, kernels = prepared.model, parts.attention_layers(prepared.model)
    names, kept = list(kernels), dict[str, Tensor]()
    if layer is not None and not -len(names) <= layer < len(names):
        raise ValueError(f"no attention layer {layer}: the model has {len(names)}, 0 to {len(names) - 1}")
    wanted = names if layer is None else [names[layer]]
    if head is not None and not 0 <= head < kernels[wanted[0]].heads:
        raise ValueError(f"{wanted[0]} has no head {head}: it has {kernels[wanted[0]].heads}")

    def keep(name: str, kernel: Any, call: dict[str, Any], output: Any) -> None:
        kept[name] = weights_of(kernel, **call, heads=None if head is None else (head,)).mean(1)

    with behind_kernels({name: kernels[name] for name in wanted}, keep):
        prepared.run(prepared.inputs)
    rows, columns = model.grid
    steps = len(prepared.tokens) // (rows * columns)
    sizes = dict(steps=steps, cells=rows * columns, first=model.config.first)
    shares = model.encoder.shares([kept.get(name) for name in names], **sizes, stay=0.5 if layer is None else 0.0)
    of = ("rollout" if layer is None else wanted[0]) + ("" if head is None else f", head {head}")
    return (shares / shares.sum().clamp(min=1e-9)).unflatten(1, (rows, columns)), of


def frames_of(prepared: Prepared, most: int) -> list[tuple[np.ndarray, int]]:
    """Evenly spread frames of a prepared clip as bytes, each with the number of its step."""
    frames, tubelet = prepared.original, prepared.model.config.tubelet
    count = min(most, len(frames))
    return [(frames[i], i // tubelet) for i in ((np.arange(count) + 0.5) / count * len(frames)).astype(int).tolist()]
