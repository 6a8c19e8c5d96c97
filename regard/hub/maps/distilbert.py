"""DistilBERT (Sanh et al., 2019) as Hugging Face stores it.

Unlike bert.py: no token types, no pooler but for the labels of a text, and there it has a ReLU.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair
from regard.hub.maps import bert

OURS, THEIRS, EMBEDDINGS = "encoder.blocks.{}.", "distilbert.transformer.layer.{}.", "distilbert.embeddings."

PAIRS = (
    Pair(OURS + "attention.query.{}", THEIRS + "attention.q_lin.{}"),
    Pair(OURS + "attention.key_value.{}", (THEIRS + "attention.k_lin.{}", THEIRS + "attention.v_lin.{}"), "stack"),
    Pair(OURS + "attention.out.{}", THEIRS + "attention.out_lin.{}"),
    Pair(OURS + "feedforward.up.{}", THEIRS + "ffn.lin1.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "ffn.lin2.{}"),
    Pair(OURS + "norms.attention.{}", THEIRS + "sa_layer_norm.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "output_layer_norm.{}"),
    Pair("embedding.weight", EMBEDDINGS + "word_embeddings.weight"),
    Pair("embedding.norm.{}", EMBEDDINGS + "LayerNorm.{}"),
    Pair("encoder.position.table", EMBEDDINGS + "position_embeddings.weight"),
    Pair("pooler.dense.{}", "pre_classifier.{}", when=bert.CLASSIFY),
    Pair("pooler.dense.{}", (), when=bert.UNPOOLED, written=False),
    Pair("head.dense.{}", "vocab_transform.{}"),
    Pair("head.norm.{}", "vocab_layer_norm.{}"),
    Pair("head.bias", "vocab_projector.bias"),
    Pair("head.out.{}", "qa_outputs.{}", when=bert.ANSWER),
    Pair("head.out.{}", "classifier.{}"),
)
COPIES = {"vocab_projector.weight": EMBEDDINGS + "word_embeddings.weight"}

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
    return misfits


DISTILBERT = Map(
    kind="distilbert", prefix="distilbert.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=FIXED,
    read=read, write=lambda ours: bert.write_task(ours, "DistilBert"), check=check, **bert.COMMON,
)  # fmt: skip
