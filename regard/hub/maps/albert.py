"""ALBERT (Lan et al., 2020) as Hugging Face stores it.

Unlike bert.py: one block for all layers, narrow token vectors, and the order of two texts is predicted.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair
from regard.hub.maps import bert

OURS, THEIRS = "encoder.blocks.0.", "albert.encoder.albert_layer_groups.0.albert_layers.0."
EMBEDDINGS = "albert.embeddings."

PAIRS = (
    Pair(OURS + "attention.query.{}", THEIRS + "attention.query.{}"),
    Pair(OURS + "attention.key_value.{}", (THEIRS + "attention.key.{}", THEIRS + "attention.value.{}"), "stack"),
    Pair(OURS + "attention.out.{}", THEIRS + "attention.dense.{}"),
    Pair(OURS + "feedforward.up.{}", THEIRS + "ffn.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "ffn_output.{}"),
    Pair(OURS + "norms.attention.{}", THEIRS + "attention.LayerNorm.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "full_layer_layer_norm.{}"),
    Pair("widen.{}", "albert.encoder.embedding_hidden_mapping_in.{}"),
    Pair("embedding.weight", EMBEDDINGS + "word_embeddings.weight"),
    Pair("embedding.types", EMBEDDINGS + "token_type_embeddings.weight"),
    Pair("embedding.norm.{}", EMBEDDINGS + "LayerNorm.{}"),
    Pair("encoder.position.table", EMBEDDINGS + "position_embeddings.weight"),
    Pair("pooler.dense.{}", "albert.pooler.{}", when=bert.UNPOOLED, written=False),
    Pair("pooler.dense.{}", "albert.pooler.{}"),
    Pair("pair_head.out.{}", "sop_classifier.classifier.{}"),
    Pair("head.dense.{}", "predictions.dense.{}"),
    Pair("head.norm.{}", "predictions.LayerNorm.{}"),
    Pair("head.bias", "predictions.bias"),
    Pair("head.out.{}", "qa_outputs.{}", when=bert.ANSWER),
    Pair("head.out.{}", "classifier.{}"),
)
COPIES = {
    "predictions.decoder.weight": EMBEDDINGS + "word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}

FIELDS = bert.FIELDS | {
    "dim": Field("hidden_size", 4096),
    "embedding_dim": Field("embedding_size", 128),
    "heads": Field("num_attention_heads", 64),
    "ffn_dim": Field("intermediate_size", 16384),
    "vocab_size": Field("vocab_size", 30000),
    "activation": Field("hidden_act", "gelu_new", bert.FIELDS["activation"].values),
    "dropout": Field("hidden_dropout_prob", 0.0),
    "attention_dropout": Field("attention_probs_dropout_prob", 0.0),
}

FIXED = {name: value for name, value in bert.FIXED.items() if name != "embedding_dim"} | dict(shared=True)


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = bert.read_task(theirs, "Albert")
    return fields | {"pooler": bert.has_pooler(fields["task"], tensors, "albert.pooler.weight")}


def check(ours: Any) -> list[str]:
    narrow = [] if ours.embedding_dim else [f"embedding_dim=None would have to be a number, such as dim={ours.dim}"]
    return narrow + bert.check(ours)


ALBERT = Map(
    kind="albert", prefix="albert.", pairs=PAIRS, copies=COPIES, fields=FIELDS, fixed=FIXED,
    read=read, write=lambda ours: bert.write_task(ours, "Albert"), check=check,
    **bert.COMMON | dict(only=bert.COMMON["only"] | dict(num_hidden_groups=1, inner_group_num=1)),
)  # fmt: skip
