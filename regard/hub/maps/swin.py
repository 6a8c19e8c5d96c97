"""Swin (Liu et al., 2021) as Hugging Face stores it; version 2 says only what differs."""

from collections.abc import Mapping
from typing import Any

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, block, write_labels
from regard.hub.maps.vit import read_class, read_patch


def body(root: str) -> tuple[Pair, ...]:
    """Return the pairs of our and Hugging Face's names that Swin and Swin V2 share; `root` is the latter's prefix."""
    merge, below = "stages.{}.merge.", root + ".encoder.layers.{}.downsample."
    return (
        *block(
            "stages.{}.blocks.{}.", root + ".encoder.layers.{}.blocks.{}.", hidden="intermediate.dense output.dense",
            layers="attention.self.query attention.self.key attention.self.value attention.output.dense",
            norms="layernorm_before layernorm_after",
        ),
        Pair(merge + "norm.{}", below + "norm.{}"),
        Pair(merge + "reduce.weight", below + "reduction.weight"),
        Pair("patches.project.{}", root + ".embeddings.patch_embeddings.projection.{}"),
        Pair("patch_norm.{}", root + ".embeddings.norm.{}"),
        Pair("norm.{}", root + ".layernorm.{}"),
        Pair("head.out.{}", "classifier.{}"),
    )  # fmt: skip


FIELDS = {
    "image": Field("image_size", 224),
    "channels": Field("num_channels", 3),
    "patch": Field("patch_size", 4),
    "dim": Field("embed_dim", 96),
    "depths": Field("depths", (2, 2, 6, 2)),
    "heads": Field("num_heads", (3, 6, 12, 24)),
    "window": Field("window_size", 7),
    "ffn_ratio": Field("mlp_ratio", 4.0),
    "activation": Field("hidden_act", "gelu", ACTIVATIONS),
    "norm_eps": Field("layer_norm_eps", 1e-5),
    "dropout": Field("hidden_dropout_prob", 0.0),
    "attention_dropout": Field("attention_probs_dropout_prob", 0.0),
    "path_dropout": Field("drop_path_rate", 0.1),
}

COMMON: dict[str, Any] = dict(
    family="swin", fields=FIELDS, only=dict(qkv_bias=True, use_absolute_embeddings=False),
    ignored=("*.relative_position_index", "*.relative_coords_table", "*.attn_mask"),
)  # fmt: skip


def read_classes(theirs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The labels of the class `name…` in `architectures`, and the patch."""
    _, labels = read_class(theirs, [f"{name}Model", f"{name}ForImageClassification"])
    return {"labels": labels, **read_patch(theirs)}


def write_classes(ours: Any, name: str) -> dict[str, Any]:
    return write_labels(ours, f"{name}ForImageClassification" if ours.labels else f"{name}Model")


SWIN = Map(
    kind="swin", prefix="swin.", read=lambda theirs, tensors: read_classes(theirs, "Swin"),
    write=lambda ours: write_classes(ours, "Swin"),
    pairs=(
        *body("swin"),
        Pair("stages.{}.blocks.{}.position.table",
             "swin.encoder.layers.{}.blocks.{}.attention.self.relative_position_bias_table"),
    ),
    fixed=dict(norm_place="pre", kernel="full", offsets="learned", trained_windows=()),
    **COMMON,
)  # fmt: skip
