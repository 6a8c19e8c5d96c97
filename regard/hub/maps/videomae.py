"""VideoMAE (Tong et al., 2022) as Hugging Face stores it: blocks as those of ViT, whose keys have no bias."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, built_as, read_labels, write_labels
from regard.hub.maps import vit

LABELLED, PRETRAINED = "VideoMAEForVideoClassification", "VideoMAEForPreTraining"
OURS, THEIRS = "encoder.blocks.{}.attention.", "videomae.encoder.layer.{}.attention.attention."
PAIRS = (
    Pair(OURS + "query.weight", THEIRS + "query.weight"),
    Pair(OURS + "query.bias", THEIRS + "q_bias"),
    Pair(OURS + "key_value.weight", (THEIRS + "key.weight", THEIRS + "value.weight"), "stack"),
    Pair(OURS + "key_value.bias", THEIRS + "v_bias", "values"),
    *vit.blocks("encoder", "videomae.encoder.layer"),
    Pair("encoder.norm.{}", "videomae.layernorm.{}"),
    Pair("tubelets.project.{}", "videomae.embeddings.patch_embeddings.projection.{}"),
    Pair("head_norm.{}", "fc_norm.{}"),
    Pair("head.out.{}", "classifier.{}"),
)
FIELDS = vit.FIELDS | {"frames": Field("num_frames", 16), "tubelet": Field("tubelet_size", 2)}


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    labelled = built_as(theirs, ["VideoMAEModel", LABELLED, PRETRAINED]) == LABELLED
    mean = bool(theirs.get("use_mean_pooling", True))
    if labelled and not mean:
        raise ValueError("use_mean_pooling=False cannot be read for a model with labels; only True can")
    return dict(labels=read_labels(theirs) if labelled else (), norm_mean=mean) | vit.read_patch(theirs)


def write(ours: Any) -> dict[str, Any]:
    return {"use_mean_pooling": ours.norm_mean} | write_labels(ours, LABELLED if ours.labels else "VideoMAEModel")


def whole_tubelets(ours: Any) -> list[str]:
    """List the sizes that theirs read otherwise: they leave out frames that fill no tubelet."""
    rest = ours.frames % ours.tubelet
    return [f"frames={ours.frames} would have to be a multiple of tubelet={ours.tubelet}"] if rest else []


def misfits(ours: Any) -> list[str]:
    """List the fields that theirs cannot have."""
    plain = bool(ours.labels) and not ours.norm_mean
    return whole_tubelets(ours) + (["norm_mean=False would have to be True"] if plain else [])


VIDEOMAE = Map(
    kind="videomae", family="video-vit", prefix="videomae.", pairs=PAIRS, fields=FIELDS, only=dict(qv_bias=True),
    ignored=("decoder.*", "encoder_to_decoder.*", "mask_token", "*.position_embeddings"),
    fixed=vit.FIXED | dict(position="sinusoidal", attention="whole", times="joint", pooling="mean", pooler=False),
    read=read, write=write, check=misfits,
)  # fmt: skip
