"""T5 (Raffel et al., 2020) as Hugging Face stores it, the first (plain layers) and 1.1 (gated, its own output)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, Tensors, attention, settings_of, tied, with_settings

PLAIN = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "silu": "silu", "relu2": "relu2"}
GATED = {"gated-gelu": "geglu-tanh", "gated-silu": "swiglu", "gated-gelu_new": "geglu-tanh"}

OURS, SELF, CROSS = "{}.blocks.{}.", "{}.block.{}.layer.0.", "{}.block.{}.layer.1."
WHEN = dict(activation=tuple(GATED.values()))


def feedforward(stack: str, layer: int) -> tuple[Pair, ...]:
    """Return the pairs of the feed-forward layers of a stack, each of which is this layer of its block."""
    ours, theirs = f"{stack}.blocks.{{}}.", f"{stack}.block.{{}}.layer.{layer}."
    gated = theirs + "DenseReluDense.wi_0.{}", theirs + "DenseReluDense.wi_1.{}"
    return (
        Pair(ours + "feedforward.up.{}", gated, "stack", when=WHEN),
        Pair(ours + "feedforward.up.{}", theirs + "DenseReluDense.wi.{}"),
        Pair(ours + "feedforward.down.{}", theirs + "DenseReluDense.wo.{}"),
        Pair(ours + "norms.feedforward.{}", theirs + "layer_norm.{}"),
    )


PAIRS = (
    *attention(OURS + "attention", SELF + "SelfAttention.", "q k v o"),
    Pair(OURS + "norms.attention.{}", SELF + "layer_norm.{}"),
    *attention(OURS + "cross", CROSS + "EncDecAttention.", "q k v o"),
    Pair(OURS + "norms.cross.{}", CROSS + "layer_norm.{}"),
    *feedforward("encoder", 1),
    *feedforward("decoder", 2),
    Pair("{}.norm.{}", "{}.final_layer_norm.{}"),
    Pair("{}.position.table", "{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
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
    embedding_scale=False, embedding_norm=False, head_bias=False, reversible=False, cross_kernel=None,
)  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    buckets = theirs.get("relative_attention_num_buckets", 32)
    far = theirs.get("relative_attention_max_distance", 128)
    dropout = theirs.get("dropout_rate", 0.1)
    return {
        "position": with_settings("relative", buckets=buckets, far=far),
        "attention_dropout": dropout,
        "ffn_dropout": dropout,
        # `tie_word_embeddings` decides whether logits are scaled; the tensors show which matrices are shared.
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
    misfits = [] if ours.tie in ("all", "inputs") else [f"tie={ours.tie!r} would have to be 'all' or 'inputs'"]
    if ours.position.startswith("relative") and settings_of(ours.position)["inside_scale"]:
        misfits.append(f"position={ours.position!r} would have to be without inside_scale")
    return misfits


def reword(ours: Any, tensors: Tensors) -> tuple[Any, Tensors]:
    """Return an equivalent model without scaled scores: the factor 1/√K is multiplied into the query matrices."""
    if ours.kernel != "full":
        return ours, tensors
    scale = ours.head_size**-0.5
    return replace(ours, kernel="dot"), {n: t * scale if ".query." in n else t for n, t in tensors.items()}


T5 = Map(
    kind="t5", family="t5", pairs=PAIRS, copies=COPIES,
    ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    fields=FIELDS, fixed=FIXED, read=read, write=write, check=check, reword=reword,
)  # fmt: skip
