"""ViT (Dosovitskiy et al., 2021) as Hugging Face stores it; DeiT and MAE say only what differs."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, block, built_as, read_labels, write_labels


def blocks(ours: str, theirs: str) -> tuple[Pair, ...]:
    """Return the pairs of tensor names of a stack of blocks."""
    return block(
        ours + ".blocks.{}.", theirs + ".{}.", hidden="intermediate.dense output.dense",
        layers="attention.attention.query attention.attention.key attention.attention.value attention.output.dense",
        norms="layernorm_before layernorm_after",
    )  # fmt: skip


def body(ours: str, theirs: str, *tokens: str) -> tuple[Pair, ...]:
    """Return the pairs of tensor names of an encoder, its patch embedding and its special tokens."""
    embeddings = theirs + ".embeddings."
    return (
        *blocks(ours + "encoder", theirs + ".encoder.layer"),
        Pair(ours + "encoder.norm.{}", theirs + ".layernorm.{}"),
        Pair(ours + "encoder.position.table", embeddings + "position_embeddings", "row"),
        Pair(ours + "first", tuple(embeddings + token for token in tokens), "rows"),
        Pair(ours + "patches.project.{}", embeddings + "patch_embeddings.projection.{}"),
        Pair(ours + "pooler.dense.{}", theirs + ".pooler.dense.{}"),
    )


FIELDS = {
    "dim": Field("hidden_size", 768),
    "heads": Field("num_attention_heads", 12),
    "depth": Field("num_hidden_layers", 12),
    "ffn_dim": Field("intermediate_size", 3072),
    "activation": Field("hidden_act", "gelu", ACTIVATIONS),
    "dropout": Field("hidden_dropout_prob", 0.0),
    "attention_dropout": Field("attention_probs_dropout_prob", 0.0),
    "norm_eps": Field("layer_norm_eps", 1e-12),
    "image": Field("image_size", 224),
    "patch": Field("patch_size", 16),
    "channels": Field("num_channels", 3),
}

FIXED: dict[str, Any] = dict(
    position="learned", norm="layer", norm_place="pre", bias=True, kernel="full", kv_heads=None, head_dim=None,
    reversible=False,
)  # fmt: skip


def read_patch(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The patch size; theirs may be given by both sides."""
    size = theirs.get("patch_size", 16)
    if isinstance(size, int):
        return {}
    if len(set(size)) != 1:
        raise ValueError(f"patch_size={size} is not square; only square patches can be read")
    return {"patch": size[0]}


def read_class(theirs: Mapping[str, Any], classes: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """The class in `architectures`, which must be one of these, and the labels, if that class has any."""
    built = built_as(theirs, classes)
    classifies = built.removesuffix("WithTeacher").endswith("ForImageClassification")
    return built, read_labels(theirs) if classifies else ()


def read_pooler(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor], root: str) -> bool:
    """Whether a body has a layer behind its class token; one that a classifier carries along is not used."""
    if f"{root}.pooler.dense.weight" not in tensors:
        return False
    for name, needed in (("pooler_act", "tanh"), ("pooler_output_size", theirs.get("hidden_size", 768))):
        if theirs.get(name) not in (None, needed):
            raise ValueError(f"{name}={theirs[name]!r} cannot be read here; only {needed!r} can")
    return True


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    _, labels = read_class(theirs, ["ViTModel", "ViTForImageClassification"])
    pooler = not labels and read_pooler(theirs, tensors, "vit")
    return dict(labels=labels, pooler=pooler) | read_patch(theirs)


VIT = Map(
    kind="vit", family="vit", prefix="vit.", fields=FIELDS, only=dict(qkv_bias=True),
    pairs=(*body("", "vit", "cls_token"), Pair("head.out.{}", "classifier.{}")),
    fixed=FIXED | dict(pooling="cls", teacher="none"), read=read,
    write=lambda ours: write_labels(ours, "ViTForImageClassification" if ours.labels else "ViTModel"),
)  # fmt: skip
