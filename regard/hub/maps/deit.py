"""DeiT (Touvron et al., 2021): a ViT with a second token in front, and perhaps a head for it."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Map, Pair, write_labels
from regard.hub.maps.vit import FIELDS, FIXED, body, read_class, read_patch, read_pooler

TEACHERS = {
    "DeiTModel": "token", "DeiTForImageClassification": "token", "DeiTForImageClassificationWithTeacher": "head",
}  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built, labels = read_class(theirs, TEACHERS)
    pooler = not labels and read_pooler(theirs, tensors, "deit")
    return dict(labels=labels, teacher=TEACHERS[built], pooler=pooler) | read_patch(theirs)


def write(ours: Any) -> dict[str, Any]:
    built = "DeiTForImageClassification" if ours.labels else "DeiTModel"
    return write_labels(ours, built + ("WithTeacher" if ours.teacher == "head" else ""))


DEIT = Map(
    kind="deit", family="vit", prefix="deit.", fields=FIELDS, only=dict(qkv_bias=True),
    pairs=(
        *body("", "deit", "cls_token", "distillation_token"),
        Pair("head.out.{}", "cls_classifier.{}", when=dict(teacher=("head",))),
        Pair("head.out.{}", "classifier.{}"),
        Pair("teacher_head.out.{}", "distillation_classifier.{}"),
    ),
    fixed=FIXED | dict(pooling="cls"), read=read, write=write,
    check=lambda ours: ["teacher='none' would have to be 'token' or 'head'"] if ours.teacher == "none" else [],
)  # fmt: skip
