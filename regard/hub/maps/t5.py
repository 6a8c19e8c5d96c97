"""T5 (Raffel et al., 2020) as Hugging Face stores it, the first (plain layers) and 1.1 (gated, its own output)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, settings_of, tied, with_settings

PLAIN = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "silu": "silu", "relu2": "relu2"}
GATED = {"gated-gelu": "geglu-tanh", "gated-silu": "swiglu", "gated-gelu_new": "geglu-tanh"}

OURS, THEIRS = "{}.blocks.{}.", "{}.block.{}.layer."
FIRST = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def layer(stack: str, place: str) -> tuple[Pair, ...]:
    """The feed-forward layer, which stands behind cross-attention where there is some."""
    ours, theirs = stack + ".blocks.{}.", stack + ".block.{}.layer." + place
    gates = (theirs + ".DenseReluDense.wi_0.weight", theirs + ".DenseReluDense.wi_1.weight")
    return (
        Pair(ours + "feedforward.up.weight", gates, "stack", when=dict(activation=tuple(GATED.values()))),
        Pair(ours + "feedforward.up.weight", theirs + ".DenseReluDense.wi.weight"),
        Pair(ours + "feedforward.down.weight", theirs + ".DenseReluDense.wo.weight"),
        Pair(ours + "norms.feedforward.weight", theirs + ".layer_norm.weight"),
    )


def attention(part: str, place: str) -> tuple[Pair, ...]:
    ours, theirs = OURS + part, THEIRS + place
    return (
        Pair(ours + ".query.weight", theirs + ".q.weight"),
        Pair(ours + ".key_value.weight", (theirs + ".k.weight", theirs + ".v.weight"), "stack"),
        Pair(ours + ".out.weight", theirs + ".o.weight"),
    )


PAIRS = (
    *attention("attention", "0.SelfAttention"),
    *attention("cross", "1.EncDecAttention"),
    *layer("encoder", "1"),
    *layer("decoder", "2"),
    Pair(OURS + "norms.attention.weight", THEIRS + "0.layer_norm.weight"),
    Pair(OURS + "norms.cross.weight", THEIRS + "1.layer_norm.weight"),
    Pair("{}.norm.weight", "{}.final_layer_norm.weight"),
    Pair("{}.position.table", "{}" + FIRST),
    Pair("target_embedding.weight", "shared.weight"),
    Pair("head.weight", "lm_head.weight"),
)
HEAD = ("lm_head.weight", "shared.weight")
COPIES = {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"} | dict([HEAD])

FIELDS = {
    "dim": Field("d_model", 512),
    "heads": Field("num_heads", 8),
    "head_dim": Field("d_kv", 64),
    "ffn_dim": Field("d_ff", 2048),
    "depth": Field("num_layers", 6),
    "decoder_depth": Field("num_decoder_layers", None),
    "vocab_size": Field("vocab_size", 32128),
    "max_len": Field("n_positions", 512),
    "activation": Field("feed_forward_proj", "relu", PLAIN | GATED),
    "dropout": Field("dropout_rate", 0.1),
    "norm_eps": Field("layer_norm_epsilon", 1e-6),
}

FIXED = dict(
    position="relative", norm="rms", norm_place="pre", final_norm=True, bias=False, kernel="dot", kv_heads=None,
    embedding_scale=False, embedding_norm=False, head_bias=False,
)  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    buckets = theirs.get("relative_attention_num_buckets", 32)
    far = theirs.get("relative_attention_max_distance", 128)
    dropout = theirs.get("dropout_rate", 0.1)
    return {
        "position": with_settings("relative", buckets=buckets, far=far),
        "attention_dropout": dropout,
        "ffn_dropout": dropout,
        # What `tie_word_embeddings` says is whether scores are scaled; which matrices are one, the tensors say.
        "head_scale": theirs.get("scale_decoder_outputs", theirs.get("tie_word_embeddings", True)),
        "tie": "all" if tied(tensors, *HEAD) else "inputs",
    }


def write(ours: Any) -> dict[str, Any]:
    position = settings_of(ours.position)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "d_kv": ours.head_size,
        "num_decoder_layers": ours.decoder_blocks,
        "relative_attention_num_buckets": position["buckets"],
        "relative_attention_max_distance": position["far"],
        "scale_decoder_outputs": ours.head_scale,
        "tie_word_embeddings": ours.head_scale,
    }


def check(ours: Any) -> list[str]:
    found = [] if ours.tie in ("all", "inputs") else [f"tie={ours.tie!r} would have to be 'all' or 'inputs'"]
    if ours.position.startswith("relative") and settings_of(ours.position)["inside_scale"]:
        found.append(f"position={ours.position!r} would have to be without inside_scale")
    return found


T5 = Map(
    kind="t5", family="t5", pairs=PAIRS, copies=COPIES,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    fields=FIELDS, fixed=FIXED, read=read, write=write, check=check,
)  # fmt: skip
