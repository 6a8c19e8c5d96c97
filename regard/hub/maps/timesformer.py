"""TimeSformer (Bertasius et al., 2021) as Hugging Face stores it.

Behind the output matrix of attention along time theirs have one more, with nothing in between: ours is the product.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, built_as, read_labels, write_labels
from regard.hub.maps import vit

LABELLED = "TimesformerForVideoClassification"
OURS, THEIRS = "encoder.blocks.{}.", "timesformer.encoder.layer.{}."
EMBEDDINGS = "timesformer.embeddings."


def attention(ours: str, theirs: str) -> tuple[Pair, ...]:
    """Return the pairs of the projections of an attention layer, which theirs have in one matrix."""
    return tuple(
        Pair((f"{ours}query.{kind}", f"{ours}key_value.{kind}"), f"{theirs}attention.qkv.{kind}", "qkv")
        for kind in ("weight", "bias")
    )


PAIRS = (
    *attention(OURS + "attention.", THEIRS + "attention."),
    *attention(OURS + "time.", THEIRS + "temporal_attention."),
    Pair(
        (OURS + "time.out.weight", OURS + "time.out.bias"),
        tuple(THEIRS + f"temporal_{part}.{kind}" for part in ("attention.output.dense", "dense")
              for kind in ("weight", "bias")),
        "product",
    ),
    Pair(OURS + "norms.time.{}", THEIRS + "temporal_layernorm.{}"),
    *vit.blocks("encoder", "timesformer.encoder.layer"),
    Pair("encoder.norm.{}", "timesformer.layernorm.{}"),
    Pair("encoder.position.table", EMBEDDINGS + "position_embeddings", "row"),
    Pair("times", EMBEDDINGS + "time_embeddings", "row"),
    Pair("first", EMBEDDINGS + "cls_token", "row"),
    Pair("tubelets.project.weight", EMBEDDINGS + "patch_embeddings.projection.weight", "one-frame"),
    Pair("tubelets.project.bias", EMBEDDINGS + "patch_embeddings.projection.bias"),
    Pair("head.out.{}", "classifier.{}"),
)  # fmt: skip
FIELDS = vit.FIELDS | {
    "norm_eps": Field("layer_norm_eps", 1e-6),
    "frames": Field("num_frames", 8),
    "attention": Field(
        "attention_type", "divided_space_time", {"divided_space_time": "divided", "joint_space_time": "whole"}
    ),
}


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    labelled = built_as(theirs, ["TimesformerModel", LABELLED]) == LABELLED
    return dict(labels=read_labels(theirs) if labelled else ()) | vit.read_patch(theirs)


def square(ours: Any) -> list[str]:
    """List the sizes that theirs cannot have: their layers count on square frames."""
    return [] if isinstance(ours.image, int) else [f"image={ours.image} would have to be one number"]


TIMESFORMER = Map(
    kind="timesformer", family="video-vit", prefix="timesformer.", pairs=PAIRS, fields=FIELDS,
    only=dict(qkv_bias=True), read=read, check=square,
    fixed=vit.FIXED | dict(tubelet=1, times="added", pooling="cls", norm_mean=False, pooler=False),
    write=lambda ours: write_labels(ours, LABELLED if ours.labels else "TimesformerModel"),
)  # fmt: skip
