"""AST (Gong et al., 2021) as Hugging Face stores it: its blocks are named as those of ViT."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Map, Pair, built_as, read_labels, write_labels
from regard.hub.maps import vit

ROOT = "audio_spectrogram_transformer"
LABELLED = "ASTForAudioClassification"
EMBEDDINGS = ROOT + ".embeddings."
PAIRS = (
    *vit.blocks("encoder", ROOT + ".encoder.layer"),
    Pair("encoder.norm.{}", ROOT + ".layernorm.{}"),
    Pair("encoder.position.table", EMBEDDINGS + "position_embeddings", "row"),
    Pair("first", (EMBEDDINGS + "cls_token", EMBEDDINGS + "distillation_token"), "rows"),
    Pair("patches.{}", EMBEDDINGS + "patch_embeddings.projection.{}"),
    Pair("head_norm.{}", "classifier.layernorm.{}"),
    Pair("head.out.{}", "classifier.dense.{}"),
)
FIELDS = {name: field for name, field in vit.FIELDS.items() if name not in ("image", "channels")}
SIZES = {
    "image": (("num_mel_bins", 128), ("max_length", 1024)),
    "stride": (("frequency_stride", 10), ("time_stride", 10)),
}
"""Our pairs of bands and frames, with their names and defaults."""


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    labelled = built_as(theirs, ["ASTModel", LABELLED]) == LABELLED
    pairs = {ours: tuple(theirs.get(name, default) for name, default in both) for ours, both in SIZES.items()}
    return pairs | {"labels": read_labels(theirs) if labelled else ()}


def write(ours: Any) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for field, both in SIZES.items():
        value = getattr(ours, field)
        sizes |= dict(zip((name for name, _ in both), (value,) * 2 if isinstance(value, int) else value, strict=True))
    return sizes | write_labels(ours, LABELLED if ours.labels else "ASTModel")


AUDIO_SPECTROGRAM_TRANSFORMER = Map(
    kind="audio-spectrogram-transformer", family="ast", prefix=ROOT + ".", pairs=PAIRS, fields=FIELDS,
    fixed=vit.FIXED | dict(channels=1), only=dict(qkv_bias=True), read=read, write=write,
)  # fmt: skip
