"""CLIP (Radford et al., 2021): two towers, each with a part of config.json for itself."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, block, built_as
from regard.hub.maps.vit import FIXED
from regard.nn.patches import sides

CLASS = "CLIPModel"
LARGEST = 2
"""The EOS id of old config files, for which Hugging Face pools at the largest id of a text instead."""


def tower(ours: str, stack: str, theirs: str, norm: str) -> tuple[Pair, ...]:
    """Return the pairs of tensor names of one tower: its blocks, its last norm and its positions."""
    return (
        *block(
            f"{ours}.{stack}.blocks.{{}}.", theirs + ".encoder.layers.{}.", hidden="mlp.fc1 mlp.fc2",
            layers="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj",
            norms="layer_norm1 layer_norm2",
        ),
        Pair(f"{ours}.{stack}.norm.{{}}", f"{theirs}.{norm}.{{}}"),
        Pair(f"{ours}.{stack}.position.table", theirs + ".embeddings.position_embedding.weight"),
    )  # fmt: skip


PAIRS = (
    *tower("vision", "encoder", "vision_model", "post_layernorm"),
    Pair("vision.norm.{}", "vision_model.pre_layrnorm.{}"),
    Pair("vision.first", "vision_model.embeddings.class_embedding", "one-row"),
    Pair("vision.patches.project.weight", "vision_model.embeddings.patch_embedding.weight"),
    *tower("text", "stack", "text_model", "final_layer_norm"),
    Pair("text.embedding.weight", "text_model.embeddings.token_embedding.weight"),
    Pair("project_picture.weight", "visual_projection.weight"),
    Pair("project_text.weight", "text_projection.weight"),
    Pair("scale", "logit_scale"),
)

FIELDS = {
    "dim": Field("vision_config.hidden_size", 768),
    "heads": Field("vision_config.num_attention_heads", 12),
    "depth": Field("vision_config.num_hidden_layers", 12),
    "ffn_dim": Field("vision_config.intermediate_size", 3072),
    "image": Field("vision_config.image_size", 224),
    "patch": Field("vision_config.patch_size", 32),
    "channels": Field("vision_config.num_channels", 3),
    "activation": Field("vision_config.hidden_act", "quick_gelu", ACTIVATIONS),
    "norm_eps": Field("vision_config.layer_norm_eps", 1e-5),
    "attention_dropout": Field("vision_config.attention_dropout", 0.0),
    "text_dim": Field("text_config.hidden_size", 512),
    "text_heads": Field("text_config.num_attention_heads", 8),
    "text_depth": Field("text_config.num_hidden_layers", 12),
    "text_ffn_dim": Field("text_config.intermediate_size", 2048),
    "vocab_size": Field("text_config.vocab_size", 49_408),
    "max_len": Field("text_config.max_position_embeddings", 77),
    "embedding_dim": Field("projection_dim", 512),
}
ALIKE = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "attention_dropout": 0.0}
"""Settings that are stored for both towers, and that ours share, with their defaults."""


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built_as(theirs, [CLASS])
    parts = {name: theirs.get(name) or {} for name in ("vision_config", "text_config")}
    for name, part in parts.items():
        for field, value in (theirs.get(f"{name}_dict") or {}).items():  # of old files; what differs would count
            if field in part and part[field] != value:
                raise ValueError(f"{name}_dict and {name} give two values of {field}; remove the wrong one")
    for field, usual in ALIKE.items():
        first, other = (usual if part.get(field) is None else part[field] for part in parts.values())
        if first != other:
            raise ValueError(f"{field} is {first!r} for images and {other!r} for texts; only one for both can be read")
    return {}


def check(ours: Any) -> list[str]:
    rows, columns = sides(ours.image)
    return [f"image={ours.image} would have to be square"] if rows != columns else []


def marked(theirs: dict[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """Return their config with the id of EOS, at which they pool a text; raise an error if there is none."""
    end = ids.get("eos_token_id")
    if end is None:
        raise ValueError("clip pools a text at EOS; give its id: eos=…")
    if end == LARGEST:
        raise ValueError(
            f"clip pools at the largest id of a text if the id of EOS is {LARGEST}; use a tokenizer with another one"
        )
    shared = {field: theirs["vision_config"][field] for field in ALIKE}
    parts = {
        "text_config": {"model_type": "clip_text_model", **theirs["text_config"], **shared, **ids},
        "vision_config": {"model_type": "clip_vision_model", **theirs["vision_config"]},
    }
    width = {"projection_dim": theirs["projection_dim"]}
    return theirs | {name: part | width for name, part in parts.items()}


CLIP = Map(
    kind="clip", family="clip", pairs=PAIRS, fields=FIELDS, ignored=("*.position_ids",), read=read,
    write=lambda ours: {"architectures": [CLASS]}, marked=marked, check=check, fixed=FIXED | dict(stem=()),
)  # fmt: skip
