"""Llama (Touvron et al., 2023; also 2, 3 and 3.1) as Hugging Face stores it.

Rotary positions, grouped heads, RMSNorm, a gated layer, no biases.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import GATES, Field, Map, Pair, block, settings_of, tied, with_settings

PAIRS = (
    *block(
        "decoder.blocks.{}.", "model.layers.{}.", hidden="mlp.gate_proj mlp.up_proj mlp.down_proj",
        layers="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj",
        norms="input_layernorm post_attention_layernorm",
    ),
    Pair("decoder.norm.{}", "model.norm.{}"),
    Pair("embedding.weight", "model.embed_tokens.weight"),
    Pair("head.weight", "lm_head.weight"),
)  # fmt: skip

HEAD = ("lm_head.weight", "model.embed_tokens.weight")

FIELDS = {
    "dim": Field("hidden_size", 4096),
    "heads": Field("num_attention_heads", 32),
    "kv_heads": Field("num_key_value_heads", None),
    "head_dim": Field("head_dim", None),
    "depth": Field("num_hidden_layers", 32),
    "ffn_dim": Field("intermediate_size", 11008),
    "vocab_size": Field("vocab_size", 32000),
    "max_len": Field("max_position_embeddings", 2048),
    "activation": Field("hidden_act", "silu", GATES),
    "attention_dropout": Field("attention_dropout", 0.0),
    "norm_eps": Field("rms_norm_eps", 1e-6),
    "tie": Field("tie_word_embeddings", False),
    "bias": Field("attention_bias", False),
}

FIXED = dict(position="rotary", norm="rms", norm_place="pre", final_norm=True, kernel="full", reversible=False)

ROPES = {
    "default": {},
    "linear": {"stretch": "factor"},
    "llama3": {
        "stretch": "factor", "trained": "original_max_position_embeddings",
        "slow": "low_freq_factor", "fast": "high_freq_factor",
    },
}  # fmt: skip
"""Scalings of rotary positions for longer texts: our setting of `rotary`, and their name of it."""


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    if theirs.get("mlp_bias", False) != theirs.get("attention_bias", False):
        raise ValueError("mlp_bias and attention_bias differ; here all matrices of a block have biases, or none")
    rope = dict(theirs.get("rope_scaling") or theirs.get("rope_parameters") or {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPES:
        raise ValueError(f"rope_type={kind!r} is not known; known: {', '.join(ROPES)}")
    if (rope | dict(theirs)).get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not 1; here all dimensions of a head are rotated")
    scaling = {"original_max_position_embeddings": theirs.get("max_position_embeddings")} | rope
    if missing := [name for name in ROPES[kind].values() if scaling.get(name) is None]:
        raise ValueError(f"rope_type={kind!r} needs {missing[0]}")
    base = rope.get("rope_theta", theirs.get("rope_theta", 10000.0))
    settings = {ours: scaling[name] for ours, name in ROPES[kind].items()}
    tie = theirs.get("tie_word_embeddings", False) and tied(tensors, *HEAD)
    return {"dropout": 0.0, "tie": tie, "position": with_settings("rotary", base=base, **settings)}


def write(ours: Any) -> dict[str, Any]:
    rope = settings_of(ours.position)
    kind = "llama3" if rope["trained"] else "linear" if rope["stretch"] != 1 else "default"
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_key_value_heads": ours.kv_heads or ours.heads,
        "head_dim": ours.head_size,
        "mlp_bias": ours.bias,
        "rope_theta": rope["base"],
        "rope_scaling": {"rope_type": kind} | {name: rope[own] for own, name in ROPES[kind].items()},
    }


def check(ours: Any) -> list[str]:
    return [f"heads={ours.heads} would have to divide dim={ours.dim}"] if ours.dim % ours.heads else []


LLAMA = Map(
    kind="llama", family="gpt", pairs=PAIRS, prefix="model.", copies=dict([HEAD]),
    ignored=("*.rotary_emb.inv_freq",), fields=FIELDS, fixed=FIXED, read=read, write=write, check=check,
)  # fmt: skip
