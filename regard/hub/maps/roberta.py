"""RoBERTa (Liu et al., 2019) as Hugging Face stores it.

Unlike bert.py: positions begin at row 2 of their table, the heads have other names, and there is no next sentence.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair
from regard.hub.maps import bert

PAIRS = (
    *bert.blocks("roberta"),
    *bert.embeddings("roberta", "behind-two"),
    Pair("pooler.dense.{}", "classifier.dense.{}", when=bert.CLASSIFY),
    Pair("pooler.dense.{}", "roberta.pooler.dense.{}", unwritten=bert.UNPOOLED),
    Pair("head.out.{}", "classifier.out_proj.{}", when=bert.CLASSIFY),
    *bert.heads("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
)
COPIES = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}

FIELDS = bert.FIELDS | {
    "vocab_size": Field("vocab_size", 50265),
    "activation": Field("hidden_act", "gelu", {"gelu": "gelu"}),  # their head has no other
}


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = bert.read_task(theirs, "Roberta")
    pooler = bert.has_pooler(fields["task"], tensors, "roberta.pooler.dense.weight")
    return fields | {"pooler": pooler, "max_len": theirs.get("max_position_embeddings", 512) - 2}


def write(ours: Any) -> dict[str, Any]:
    return {"max_position_embeddings": ours.max_len + 2, **bert.write_task(ours, "Roberta")}


def check(ours: Any) -> list[str]:
    misfits = ["task='pretrain' would have to be 'mask'"] if ours.task == "pretrain" else []
    return misfits + bert.check(ours)


ROBERTA = Map(
    kind="roberta", prefix="roberta.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=bert.FIXED,
    pad=1, read=read, write=write, check=check, **bert.COMMON,
)  # fmt: skip
