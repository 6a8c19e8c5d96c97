"""GPT-2 (Radford et al., 2019) as Hugging Face stores it: matrices are transposed; q, k and v are one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, tied

OURS, THEIRS = "decoder.blocks.{}.", "transformer.h.{}."

PAIRS = (
    Pair((OURS + "attention.query.weight", OURS + "attention.key_value.weight"), THEIRS + "attn.c_attn.weight",
         "qkv-transposed"),
    Pair((OURS + "attention.query.bias", OURS + "attention.key_value.bias"), THEIRS + "attn.c_attn.bias", "qkv"),
    Pair(OURS + "attention.out.weight", THEIRS + "attn.c_proj.weight", "transpose"),
    Pair(OURS + "attention.out.bias", THEIRS + "attn.c_proj.bias"),
    Pair(OURS + "feedforward.up.weight", THEIRS + "mlp.c_fc.weight", "transpose"),
    Pair(OURS + "feedforward.up.bias", THEIRS + "mlp.c_fc.bias"),
    Pair(OURS + "feedforward.down.weight", THEIRS + "mlp.c_proj.weight", "transpose"),
    Pair(OURS + "feedforward.down.bias", THEIRS + "mlp.c_proj.bias"),
    Pair(OURS + "norms.attention.{}", THEIRS + "ln_1.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "ln_2.{}"),
    Pair("decoder.norm.{}", "transformer.ln_f.{}"),
    Pair("decoder.position.table", "transformer.wpe.weight"),
    Pair("embedding.weight", "transformer.wte.weight"),
    Pair("head.weight", "lm_head.weight"),
)  # fmt: skip

HEAD = ("lm_head.weight", "transformer.wte.weight")

FIELDS = {
    "dim": Field("n_embd", 768),
    "heads": Field("n_head", 12),
    "depth": Field("n_layer", 12),
    "vocab_size": Field("vocab_size", 50257),
    "max_len": Field("n_positions", 1024),
    "activation": Field("activation_function", "gelu_new", ACTIVATIONS),
    "dropout": Field("resid_pdrop", 0.1),
    "attention_dropout": Field("attn_pdrop", 0.1),
    "norm_eps": Field("layer_norm_epsilon", 1e-5),
}

FIXED = dict(
    position="learned", norm="layer", norm_place="pre", final_norm=True, bias=True, kernel="full",
    kv_heads=None, head_dim=None, reversible=False,
)  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    tie = theirs.get("tie_word_embeddings", True) and tied(tensors, *HEAD)
    return {"ffn_dim": theirs.get("n_inner") or 4 * theirs.get("n_embd", 768), "tie": tie}


def write(ours: Any) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_inner": ours.ffn_dim,
        "embd_pdrop": ours.dropout,
        "tie_word_embeddings": ours.tie,
    }


GPT2 = Map(
    kind="gpt2", family="gpt", pairs=PAIRS, prefix="transformer.", copies=dict([HEAD]),
    ignored=("*.attn.bias", "*.attn.masked_bias"), fields=FIELDS, fixed=FIXED, read=read, write=write,
    only=dict(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False),
)  # fmt: skip
