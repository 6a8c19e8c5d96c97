"""ViViT (Arnab et al., 2021), whose tubelets all attend to all, as Hugging Face stores it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, built_as, read_labels, write_labels
from regard.hub.maps import vit
from regard.hub.maps.videomae import whole_tubelets

LABELLED = "VivitForVideoClassification"
EMBEDDINGS = "vivit.embeddings."
PAIRS = (
    *vit.blocks("encoder", "vivit.encoder.layer"),
    Pair("encoder.norm.{}", "vivit.layernorm.{}"),
    Pair("encoder.position.table", EMBEDDINGS + "position_embeddings", "row"),
    Pair("first", EMBEDDINGS + "cls_token", "row"),
    Pair("tubelets.project.{}", EMBEDDINGS + "patch_embeddings.projection.{}"),
    Pair("pooler.dense.{}", "vivit.pooler.dense.{}"),
    Pair("head.out.{}", "classifier.{}"),
)
FIELDS = {name: field for name, field in vit.FIELDS.items() if name != "patch"} | {
    "norm_eps": Field("layer_norm_eps", 1e-6),
    "activation": vit.FIELDS["activation"]._replace(default="gelu_fast"),
    "frames": Field("num_frames", 32),
}


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    labelled = built_as(theirs, ["VivitModel", LABELLED]) == LABELLED
    size = theirs.get("tubelet_size", [2, 16, 16])
    if not (isinstance(size, list) and len(size) == 3 and size[1] == size[2]):
        raise ValueError(f"tubelet_size={size} cannot be read here; only frames and the sides of a square can")
    pooler = not labelled and vit.read_pooler(theirs, tensors, "vivit")
    return dict(labels=read_labels(theirs) if labelled else (), pooler=pooler, tubelet=size[0], patch=size[1])


def write(ours: Any) -> dict[str, Any]:
    size = {"tubelet_size": [ours.tubelet, ours.patch, ours.patch]}
    return size | write_labels(ours, LABELLED if ours.labels else "VivitModel")


VIVIT = Map(
    kind="vivit", family="video-vit", prefix="vivit.", pairs=PAIRS, fields=FIELDS, only=dict(qkv_bias=True), read=read,
    write=write, check=whole_tubelets,
    fixed=vit.FIXED | dict(attention="whole", times="joint", pooling="cls", norm_mean=False),
)  # fmt: skip
