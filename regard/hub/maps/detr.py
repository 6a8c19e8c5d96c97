"""DETR (Carion et al., 2020) as Hugging Face stores it, with the names of its ResNet there and in timm."""

import json
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, built_as, read_labels, write_labels
from regard.hub.maps.marian import BLOCKS, check_stacks

CLASS = "DetrForObjectDetection"
NET = "model.backbone.conv_encoder.model."
BLOCK, THEIR_BLOCK = "backbone.stages.{}.{}.", NET + "encoder.stages.{}.layers.{}."
TIMM: dict[str, dict[str, Any]] = {
    "resnet18": dict(widths=(64, 128, 256, 512), blocks=(2, 2, 2, 2), bottleneck=False),
    "resnet34": dict(widths=(64, 128, 256, 512), blocks=(3, 4, 6, 3), bottleneck=False),
    "resnet50": dict(widths=(256, 512, 1024, 2048), blocks=(3, 4, 6, 3), bottleneck=True),
    "resnet101": dict(widths=(256, 512, 1024, 2048), blocks=(3, 4, 23, 3), bottleneck=True),
}
"""Sizes of the backbones that a config.json refers to by name only."""
PARTS = {"conv": "convolution", "bn": "normalization", "0": "convolution", "1": "normalization"}
"""timm's names of the two parts of a layer, and of those of a shortcut."""


def plain(name: str) -> str:
    """Convert timm's name of a ResNet tensor to the name in Hugging Face's ResNet."""
    name = name.replace(NET.replace("conv_encoder.", ""), NET)  # as some releases have it
    if not name.startswith(NET):
        return name
    inner = name.removeprefix(NET)
    if match := re.fullmatch(r"(conv|bn)1\.(\w+)", inner):
        return f"{NET}embedder.embedder.{PARTS[match[1]]}.{match[2]}"
    if match := re.fullmatch(r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.(\d))\.(\w+)", inner):
        stage, block, kind, number, part, rest = match.groups()
        where = f"layer.{int(number) - 1}" if kind else "shortcut"
        return f"{NET}encoder.stages.{int(stage) - 1}.layers.{block}.{where}.{PARTS[kind or part]}.{rest}"
    return name


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built_as(theirs, [CLASS])
    check_stacks(theirs, attention_heads=8, ffn_dim=2048)
    return {"labels": read_labels(theirs), **read_backbone(theirs)}


def read_backbone(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of the ResNet, from its own config or from timm's name of it."""
    inner = theirs.get("backbone_config") or {}
    kind = inner.get("model_type", "timm_backbone")
    if kind == "timm_backbone":
        name = str(inner.get("backbone") or theirs.get("backbone") or "resnet50").partition(".")[0]
        if name not in TIMM or inner.get("output_stride") not in (None, 32):
            raise ValueError(f"backbone={name!r} cannot be read here; known: {', '.join(TIMM)}, with stride 32")
        return dict(stem=64, **TIMM[name])
    if kind != "resnet":
        raise ValueError(f"backbone_config.model_type={kind!r} is not known; known: resnet, timm_backbone")
    blocks = inner.get("depths", (3, 4, 6, 3))
    settings = {name: value for name, value in inner.items() if value is not None}
    settings["out_features"] = (settings.get("out_features") or [f"stage{len(blocks)}"])[-1]
    needed = dict(
        hidden_act="relu", downsample_in_first_stage=False, downsample_in_bottleneck=False,
        out_features=f"stage{len(blocks)}",
    )  # fmt: skip
    for name, value in needed.items():
        if settings.get(name, value) != value:
            raise ValueError(f"backbone_config.{name}={settings[name]!r} cannot be read here; only {value!r} can")
    return dict(
        stem=inner.get("embedding_size", 64), widths=tuple(inner.get("hidden_sizes", (256, 512, 1024, 2048))),
        blocks=tuple(blocks), bottleneck=inner.get("layer_type", "bottleneck") == "bottleneck",
    )  # fmt: skip


def write(ours: Any) -> dict[str, Any]:
    backbone = dict(
        model_type="resnet", num_channels=ours.channels, embedding_size=ours.stem, hidden_sizes=list(ours.widths),
        depths=list(ours.blocks), layer_type="bottleneck" if ours.bottleneck else "basic", hidden_act="relu",
        out_features=[f"stage{len(ours.blocks)}"],
    )  # fmt: skip
    return {
        **write_labels(ours, CLASS), "is_encoder_decoder": True, "use_timm_backbone": False, "backbone": None,
        "use_pretrained_backbone": False, "backbone_config": backbone, "decoder_attention_heads": ours.heads,
        "decoder_ffn_dim": ours.ffn_dim,
    }  # fmt: skip


def check(ours: Any) -> list[str]:
    """The reason why a detector on a trained image model has no counterpart there; none for one on a ResNet."""
    if not ours.tower:
        return []
    return [f"its features come from a {json.loads(ours.tower)['family']}, and would have to come from a ResNet"]


DETR = Map(
    kind="detr", family="detr", renamed=plain, ignored=("*.num_batches_tracked",),
    pairs=(
        *BLOCKS,
        Pair("backbone.stem.convolve.weight", NET + "embedder.embedder.convolution.weight"),
        Pair("backbone.stem.norm.{}", NET + "embedder.embedder.normalization.{}"),
        Pair(BLOCK + "layers.{}.convolve.weight", THEIR_BLOCK + "layer.{}.convolution.weight"),
        Pair(BLOCK + "layers.{}.norm.{}", THEIR_BLOCK + "layer.{}.normalization.{}"),
        Pair(BLOCK + "shortcut.convolve.weight", THEIR_BLOCK + "shortcut.convolution.weight"),
        Pair(BLOCK + "shortcut.norm.{}", THEIR_BLOCK + "shortcut.normalization.{}"),
        Pair("project.{}", "model.input_projection.{}"),
        Pair("queries", "model.query_position_embeddings.weight"),
        Pair("decoder.norm.{}", "model.decoder.layernorm.{}"),
        Pair("head.out.{}", "class_labels_classifier.{}"),
        Pair("box.layers.{}.{}", "bbox_predictor.layers.{}.{}"),
    ),
    fields={
        "channels": Field("num_channels", 3),
        "queries": Field("num_queries", 100),
        "dim": Field("d_model", 256),
        "depth": Field("encoder_layers", 6),
        "decoder_depth": Field("decoder_layers", 6),
        "heads": Field("encoder_attention_heads", 8),
        "ffn_dim": Field("encoder_ffn_dim", 2048),
        "activation": Field("activation_function", "relu", ACTIVATIONS),
        "dropout": Field("dropout", 0.1),
        "attention_dropout": Field("attention_dropout", 0.0),
        "ffn_dropout": Field("activation_dropout", 0.0),
    },
    # Norms that learned here are constants there.
    fixed=dict(norm_place="post", kernel="full", contents=False), read=read, write=write, check=check,
    only=dict(position_embedding_type="sine", dilation=False, auxiliary_loss=False),
)  # fmt: skip
