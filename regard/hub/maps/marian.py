"""Marian (Junczys-Dowmunt et al., 2018) as Hugging Face stores it: the translators of OPUS-MT.

The 2017 Transformer with norms last, one matrix for both embeddings and the output, a bias on the scores, and
sines and cosines in two halves. Their tables of waves are computed here, not read: the values are the same.
"""

from collections.abc import Collection, Mapping
from typing import Any

from regard.hub.mapping import Map, Pair
from regard.models.transformer import TransformerConfig

SELF, CROSS = "model.{}.layers.{}.self_attn", "model.{}.layers.{}.encoder_attn"

PAIRS = (
    Pair("{}.blocks.{}.attention.query.{}", SELF + ".q_proj.{}"),
    Pair("{}.blocks.{}.attention.key_value.{}", (SELF + ".k_proj.{}", SELF + ".v_proj.{}"), "stack"),
    Pair("{}.blocks.{}.attention.out.{}", SELF + ".out_proj.{}"),
    Pair("{}.blocks.{}.cross.query.{}", CROSS + ".q_proj.{}"),
    Pair("{}.blocks.{}.cross.key_value.{}", (CROSS + ".k_proj.{}", CROSS + ".v_proj.{}"), "stack"),
    Pair("{}.blocks.{}.cross.out.{}", CROSS + ".out_proj.{}"),
    Pair("{}.blocks.{}.feedforward.up.{}", "model.{}.layers.{}.fc1.{}"),
    Pair("{}.blocks.{}.feedforward.down.{}", "model.{}.layers.{}.fc2.{}"),
    Pair("{}.blocks.{}.norms.attention.{}", "model.{}.layers.{}.self_attn_layer_norm.{}"),
    Pair("{}.blocks.{}.norms.cross.{}", "model.{}.layers.{}.encoder_attn_layer_norm.{}"),
    Pair("{}.blocks.{}.norms.feedforward.{}", "model.{}.layers.{}.final_layer_norm.{}"),
    Pair("target_embedding.weight", "model.shared.weight"),
    Pair("head.bias", "final_logits_bias", "row"),
)
IGNORED = ("*.embed_positions.weight", "*.embed_tokens.weight", "lm_head.weight")

FIELDS = {
    "dim": ("d_model", 1024),
    "heads": ("encoder_attention_heads", 16),
    "ffn_dim": ("encoder_ffn_dim", 4096),
    "depth": ("encoder_layers", 12),
    "decoder_depth": ("decoder_layers", 12),
    "vocab_size": ("vocab_size", 58101),
    "max_len": ("max_position_embeddings", 1024),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "ffn_dropout": ("activation_dropout", 0.0),
    "embedding_scale": ("scale_embedding", False),
}
"""Our field: their field, and what they take it to be where config.json leaves it out."""

ACTIVATIONS: dict[str, Any] = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}

FIXED: dict[str, Any] = dict(
    position="sinusoidal-halves", norm="layer", norm_place="post", norm_eps=1e-5, final_norm=False,
    tie="all", bias=True, kernel="full", kv_heads=None, head_dim=None,
)  # fmt: skip
"""What every Marian model is, in our fields."""


def read_config(theirs: Mapping[str, Any], names: Collection[str]) -> TransformerConfig:
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = theirs.get(f"encoder_{name}"), theirs.get(f"decoder_{name}")
        if encoder != decoder:
            raise ValueError(
                f"encoder_{name}={encoder} and decoder_{name}={decoder} differ; here both stacks are alike"
            )
    for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):
        if not theirs.get(name, True):
            raise ValueError(f"{name} is false; only models with one matrix for all three can be read")
    activation = theirs.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation_function={activation!r} is not known; known: {', '.join(ACTIVATIONS)}")
    sizes: dict[str, Any] = {ours: theirs.get(name, default) for ours, (name, default) in FIELDS.items()}
    return TransformerConfig(
        **sizes, **FIXED, activation=ACTIVATIONS[activation], head_bias="final_logits_bias" in names
    )


def write_config(ours: TransformerConfig) -> dict[str, Any]:
    theirs = {name: getattr(ours, field) for field, (name, _) in FIELDS.items()}
    theirs |= {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "activation_function": ours.activation,
        "decoder_layers": ours.decoder_blocks,
        "decoder_attention_heads": ours.heads,
        "decoder_ffn_dim": ours.ffn_dim,
        "decoder_vocab_size": ours.vocab_size,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "static_position_embeddings": True,
        "num_hidden_layers": ours.depth,
    }
    return theirs


def misfits(ours: TransformerConfig) -> list[str]:
    """Each field that Marian cannot express, and what it would have to be."""
    same = {"kv_heads": ours.heads, "head_dim": ours.dim // ours.heads, "final_norm": None}
    out = [
        f"{name}={getattr(ours, name)!r} would have to be {needed!r}"
        for name, needed in FIXED.items()
        if getattr(ours, name) not in ((needed, same[name]) if name in same else (needed,))
    ]
    if ours.activation not in ACTIVATIONS.values():
        out.append(f"activation={ours.activation!r} would have to be one of {sorted(set(ACTIVATIONS.values()))}")
    return out


MARIAN = Map(
    family="transformer", pairs=PAIRS, ignored=IGNORED,
    read_config=read_config, write_config=write_config, misfits=misfits,
)  # fmt: skip
