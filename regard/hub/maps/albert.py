"""ALBERT (Lan et al., 2020) as Hugging Face stores it.

Unlike bert.py: one block for all layers, narrow token vectors, and the order of two texts is predicted.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, block
from regard.hub.maps import bert

PAIRS = (
    *block(
        "encoder.blocks.0.", "albert.encoder.albert_layer_groups.0.albert_layers.0.", hidden="ffn ffn_output",
        layers="attention.query attention.key attention.value attention.dense",
        norms="attention.LayerNorm full_layer_layer_norm",
    ),
    Pair("widen.{}", "albert.encoder.embedding_hidden_mapping_in.{}"),
    *bert.embeddings("albert"),
    Pair("pooler.dense.{}", "albert.pooler.{}", unwritten=bert.UNPOOLED),
    Pair("pair_head.out.{}", "sop_classifier.classifier.{}"),
    *bert.heads("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
)  # fmt: skip
COPIES = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
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
