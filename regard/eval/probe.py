"""Linear probe: a linear classifier on the features of every layer of a frozen image encoder, and of an untrained copy.

The layer with the lowest error has the features that suit the labels best. The classifier reads the features of all
positions side by side, as it reads all pixels of an image for comparison: their mean would not say where anything is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.readers.arrays import is_arrays, read_classes
from regard.data.readers.image_lists import list_labelled
from regard.data.sets.labelled_images import ImagesConfig, LabelledImages
from regard.data.sets.unlabelled_images import UnlabelledConfig
from regard.eval.scores import chosen_data
from regard.hub.remote import find
from regard.inside.capture.states import vectors_in
from regard.models import build
from regard.registry import models
from regard.runs.recipe import Recipe
from regard.tasks import ImageEncoder, load

WIDEST = 5000
"""The most numbers of an image that the classifier reads; of more positions, neighbours are averaged."""
STRENGTH = 10.0
"""The classifier's inverse regularisation times the number of features, so that wide ones are not fitted closer."""
LABELS = 1000
"""Default number of labelled images that the classifier is trained on."""


def probe(run: str | Path, changes: Mapping[str, Any], *, labels: int | None = None, limit: int | None = None) -> dict:
    """Return the test error of a linear classifier on each layer's features, for the trained and the untrained
    model."""
    path = find(run)
    loaded: Any = load(path)
    if "image" not in loaded.inputs or loaded.verb("embed") is None:
        raise ValueError(f"{run} has no vector for an image; a probe is for encoders of images")
    learn, test = labelled(loaded, path, changes, labels or LABELS, limit)
    untrained = ImageEncoder(fresh(loaded.model), loaded.preprocessing)
    table: list[dict[str, Any]] = [{"layer": "pixels", **score(flat(learn), flat(test), learn, test)}]
    trained, blank = (
        [features(task, learn.pixels[:]), features(task, test.pixels[:])] for task in (loaded, untrained)
    )  # fmt: skip
    for name in trained[0]:
        row = {"layer": name, **score(trained[0][name], trained[1][name], learn, test)}
        table.append(row | {"untrained": score(blank[0][name], blank[1][name], learn, test)["error"]})
    best = min(table[1:], key=lambda row: row["error"])
    return {
        "probe": table,
        "best": best["layer"],
        "error": best["error"],
        "untrained": min(row["untrained"] for row in table[1:]),
        "pixels": table[0]["error"],
        "labels": len(learn),
        "examples": len(test),
    }


def check_labels(data: Any) -> None:
    """Raise an error if the images of a recipe's data have no labels."""
    if not isinstance(data, UnlabelledConfig | ImagesConfig):
        raise ValueError("a probe is for encoders of images; leave out --probe")
    if data.images is not None and is_arrays(data.images):
        read_classes(Path(data.images))
    elif data.images is not None and len({image.label for image in list_labelled(data.images)}) < 2:
        raise ValueError(f"{data.images} has fewer than two classes; leave out --probe, or give a folder a class")


def labelled(
    loaded: ImageEncoder, run: Path, changes: Mapping[str, Any], labels: int, limit: int | None
) -> tuple[LabelledImages, LabelledImages]:
    """Return labelled training and test images at the model's input size."""
    stored, named = run / "recipe.toml", {key.removeprefix("data.") for key in changes}
    own = Recipe.load(stored).data if stored.exists() else None
    data = chosen_data(own if isinstance(own, ImagesConfig) else ImagesConfig(), None, changes)
    if "images" not in named and isinstance(own, UnlabelledConfig):
        same = ("images", "valid", "test", "size", "channels")
        data = replace(data, **{name: getattr(own, name) for name in same if name not in named})
    preprocessing = loaded.eval_preprocessing()
    try:
        learn, test = data.split(preprocessing)[0], data.held_out(preprocessing)
    except ValueError as error:
        raise ValueError(f"{error} (a probe needs labels: --data.images)") from None
    order = np.random.default_rng(0).permutation(len(learn))[:labels]
    learn, test = learn.take(order), test.sample(limit or len(test), 0)
    if len(np.unique(learn.labels)) < 2:
        raise ValueError(f"the {len(learn)} labelled images are all of one class; raise --labels")
    return learn, test


def fresh(model: Any) -> nn.Module:
    """Return an untrained model with the config of this one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(models.name_of(type(model)), model.config)


def features(loaded: ImageEncoder, pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Return the features of each image by layer, all positions side by side, and under "vector" the model's own
    embedding."""
    model, outputs = loaded.model, dict[str, list[Tensor]]()
    hooks = []
    for path, layer in model.named_modules():
        if re.search(r"(^|\.)(patches|blocks\.\d+)$", path):
            hooks.append(layer.register_forward_hook(keep(outputs, path)))
    try:
        own = loaded.outputs(model.embed, loaded.numbers(pixels))
    finally:
        for hook in hooks:
            hook.remove()
    blocks = [path for path in outputs if not path.endswith("patches")]
    names = {path: "patches" for path in outputs} | {path: f"block {i}" for i, path in enumerate(blocks, 1)}
    return {names[path]: torch.cat(rows).numpy() for path, rows in outputs.items()} | {
        "vector": torch.stack(own).numpy()
    }


def keep(outputs: dict[str, list[Tensor]], path: str) -> Callable[..., None]:
    """Return a forward hook that stores a layer's output, all positions side by side, or groups of neighbours."""

    def hook(layer: nn.Module, inputs: Any, out: Any) -> None:
        x = vectors_in(out)
        x = x.transpose(1, 2) if x.dim() == 3 else x.flatten(2)  # B D T
        groups = max(1, min(x.shape[2], WIDEST // x.shape[1]))
        outputs.setdefault(path, []).append(F.adaptive_avg_pool1d(x.float(), groups).flatten(1))

    return hook


def flat(images: LabelledImages) -> np.ndarray:
    return images.pixels[:].reshape(len(images), -1) / 255.0


def score(learn: np.ndarray, test: np.ndarray, known: LabelledImages, wanted: LabelledImages) -> dict[str, Any]:
    """Return the width of the features, and the test error in percent of a linear classifier trained on them."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    reader = make_pipeline(StandardScaler(), LogisticRegression(C=STRENGTH / learn.shape[1], max_iter=1000))
    predicted = reader.fit(learn, known.labels).predict(test)
    return {"width": learn.shape[1], "error": round(100 * float((predicted != wanted.labels).mean()), 2)}


def render(results: Mapping[str, Any]) -> str:
    """Return the results as a table of layers, with the best one marked."""
    lines = [f"{'layer':12}{'width':>7}{'error':>10}{'untrained':>12}"]
    for row in results["probe"]:
        blank = f"{row['untrained']:10.2f} %" if "untrained" in row else ""
        mark = "  cut here" if row["layer"] == results["best"] else ""
        lines.append(f"{row['layer']:12}{row['width']:7}{row['error']:8.2f} %{blank}{mark}")
    lines.append(f"a linear classifier on {results['labels']:,} labels, {results['examples']:,} held-out images")
    if results["error"] >= min(results["pixels"], results["untrained"]):
        other = "raw pixels" if results["pixels"] <= results["untrained"] else "the untrained model"
        lines.append(f"doctor: no better than {other}: the encoder learned too little; train longer or on more images")
    return "\n".join(lines)
