"""Swin v2 (Liu et al., 2022) as Hugging Face stores it: no bias on keys, and a network for the bias of offsets."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Map, Pair
from regard.hub.maps.swin import COMMON, body, read_classes, write_classes

OURS, THEIRS = "stages.{}.blocks.{}.", "swinv2.encoder.layers.{}.blocks.{}.attention.self."


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    stages = len(theirs.get("depths") or (2, 2, 6, 2))
    trained = tuple(theirs.get("pretrained_window_sizes") or ())[:stages]  # theirs may be longer
    return read_classes(theirs, "Swinv2") | {"trained_windows": trained if any(trained) else ()}


def write(ours: Any) -> dict[str, Any]:
    trained = ours.trained_windows or (0,) * len(ours.depths)
    return write_classes(ours, "Swinv2") | {"pretrained_window_sizes": trained}


SWINV2 = Map(
    kind="swinv2", prefix="swinv2.", read=read, write=write,
    pairs=(
        Pair(OURS + "attention.key_value.bias", THEIRS + "value.bias", "values"),
        *body("swinv2"),
        Pair(OURS + "attention.kernel.log_scale", THEIRS + "logit_scale", "heads"),
        Pair(OURS + "position.inner.{}", THEIRS + "continuous_position_bias_mlp.0.{}"),
        Pair(OURS + "position.outer.weight", THEIRS + "continuous_position_bias_mlp.2.weight"),
    ),
    fixed=dict(norm_place="post", kernel="cosine", offsets="log"),
    **COMMON,
)  # fmt: skip
