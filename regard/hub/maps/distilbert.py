"""DistilBERT (Sanh et al., 2019) as Hugging Face stores it.

Unlike bert.py: no token types, no pooler but for the labels of a text, and there it has a ReLU.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, block
from regard.hub.maps import bert

PAIRS = (
    *block(
        "encoder.blocks.{}.", "distilbert.transformer.layer.{}.", hidden="ffn.lin1 ffn.lin2",
        layers="attention.q_lin attention.k_lin attention.v_lin attention.out_lin",
        norms="sa_layer_norm output_layer_norm",
    ),
    *bert.embeddings("distilbert"),
    Pair("pooler.dense.{}", "pre_classifier.{}", when=bert.CLASSIFY),
    Pair("pooler.dense.{}", (), when=bert.UNPOOLED, unwritten=bert.UNPOOLED),
    *bert.heads("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
)  # fmt: skip
COPIES = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}

FIELDS = {
    "dim": Field("dim", 768),
    "heads": Field("n_heads", 12),
    "depth": Field("n_layers", 6),
    "ffn_dim": Field("hidden_dim", 3072),
    "vocab_size": Field("vocab_size", 30522),
    "max_len": Field("max_position_embeddings", 512),
    "activation": Field("activation", "gelu", ACTIVATIONS),
    "dropout": Field("dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.1),
}

FIXED = bert.FIXED | dict(types=0, norm_eps=1e-12)


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = bert.read_task(theirs, "DistilBert")
    return fields | {"pooler": fields["task"] == "classify", "pooler_activation": "relu"}


def check(ours: Any) -> list[str]:
    misfits = ["task='pretrain' would have to be 'mask'"] if ours.task == "pretrain" else []
    if ours.task == "none" and ours.pooler:
        misfits.append("pooler=True would have to be False")
    if ours.task == "classify" and ours.pooler_activation != "relu":
        misfits.append(f"pooler_activation={ours.pooler_activation!r} would have to be 'relu'")
    return misfits + bert.unpooled(ours)


DISTILBERT = Map(
    kind="distilbert", prefix="distilbert.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=FIXED,
    read=read, write=lambda ours: bert.write_task(ours, "DistilBert"), check=check, **bert.COMMON,
)  # fmt: skip
