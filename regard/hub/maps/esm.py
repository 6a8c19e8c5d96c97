"""ESM (Rives et al., 2021; Lin et al., 2023) as Hugging Face stores it: proteins, and models of DNA in the same layout.

Unlike roberta.py: norms come first, positions may be rotary, and the vector of the mask is zeros.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, block
from regard.hub.maps import bert

LAYER = "esm.encoder.layer.{}."
PAIRS = (
    *block(
        "encoder.blocks.{}.", LAYER, hidden="intermediate.dense output.dense",
        layers="attention.self.query attention.self.key attention.self.value attention.output.dense",
        norms="attention.LayerNorm LayerNorm",
    ),
    Pair("encoder.norm.{}", "esm.encoder.emb_layer_norm_after.{}"),
    Pair("embedding.weight", "esm.embeddings.word_embeddings.weight"),
    Pair("embedding.norm.{}", "esm.embeddings.layer_norm.{}"),
    Pair("encoder.position.table", "esm.embeddings.position_embeddings.weight", "behind-two"),
    Pair("pooler.dense.{}", "classifier.dense.{}", when=bert.CLASSIFY),
    Pair("pooler.dense.{}", "esm.pooler.dense.{}", unwritten=bert.UNPOOLED),
    Pair("head.out.{}", "classifier.out_proj.{}", when=bert.CLASSIFY),
    *bert.heads("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
)  # fmt: skip

FIELDS = {name: field for name, field in bert.FIELDS.items() if name not in ("activation", "types", "max_len")} | {
    "vocab_size": Field("vocab_size", 33),
    "position": Field("position_embedding_type", "absolute", {"absolute": "learned", "rotary": "rotary"}),
    "embedding_norm": Field("emb_layer_norm_before", False),
}
FIXED = {name: value for name, value in bert.FIXED.items() if name not in ("position", "embedding_norm", "mask_id")}
NONE = ("pretrain", "answer")
"""Tasks without a class there."""


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    fields = bert.read_task(theirs, "Esm")
    mask = theirs.get("mask_token_id")
    if theirs.get("token_dropout") and mask is None:
        raise ValueError("token_dropout=True needs mask_token_id, which is missing; download config.json again")
    return fields | {
        "pooler": bert.has_pooler(fields["task"], tensors, "esm.pooler.dense.weight"),
        "max_len": theirs.get("max_position_embeddings", 1026) - 2,
        "mask_id": mask if theirs.get("token_dropout") else None,
    }


def write(ours: Any) -> dict[str, Any]:
    mask = {} if ours.mask_id is None else {"mask_token_id": ours.mask_id}
    lengths = {"max_position_embeddings": ours.max_len + 2, "token_dropout": ours.mask_id is not None}
    return mask | lengths | bert.write_task(ours, "Esm")


def check(ours: Any) -> list[str]:
    problems = [f"task={ours.task!r} would have to be 'mask'"] if ours.task in NONE else []
    return [*problems, *bert.unpooled(ours)]


ESM = Map(
    kind="esm", family="bert", prefix="esm.", pairs=PAIRS, fields=FIELDS, pad=1, read=read, write=write, check=check,
    fixed=FIXED | dict(norm_place="pre", types=0, activation="gelu"),
    copies={"lm_head.decoder.weight": "esm.embeddings.word_embeddings.weight"},
    only=dict(is_decoder=False, add_cross_attention=False, is_folding_model=False, rope_theta=10000.0),
    ignored=("*.position_ids", "*rotary_embeddings.inv_freq", "*contact_head.*", "esm.position_embeddings.weight"),
    beside=bert.COMMON["beside"],
)  # fmt: skip
