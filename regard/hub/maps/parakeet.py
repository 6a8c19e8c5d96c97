"""Parakeet (NVIDIA, 2023) as Hugging Face stores it: a Conformer with CTC.

Products over the channels are convolutions of size 1 there, and the encoder has a config of its own.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, attention

OURS, THEIRS = "blocks.{}.", "encoder.layers.{}."

PAIRS = (
    *attention(OURS + "attention", THEIRS + "self_attn.", "q_proj k_proj v_proj o_proj"),
    Pair(OURS + "attention.distance.weight", THEIRS + "self_attn.relative_k_proj.weight"),
    Pair(OURS + "attention.content_bias", THEIRS + "self_attn.bias_u", "by-head"),
    Pair(OURS + "attention.distance_bias", THEIRS + "self_attn.bias_v", "by-head"),
    Pair(OURS + "first.up.{}", THEIRS + "feed_forward1.linear1.{}"),
    Pair(OURS + "first.down.{}", THEIRS + "feed_forward1.linear2.{}"),
    Pair(OURS + "feedforward.up.{}", THEIRS + "feed_forward2.linear1.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "feed_forward2.linear2.{}"),
    Pair(OURS + "convolution.gate.weight", THEIRS + "conv.pointwise_conv1.weight", "size-1"),
    Pair(OURS + "convolution.gate.bias", THEIRS + "conv.pointwise_conv1.bias"),
    Pair(OURS + "convolution.depthwise.{}", THEIRS + "conv.depthwise_conv.{}"),
    Pair(OURS + "convolution.norm.{}", THEIRS + "conv.norm.{}"),
    Pair(OURS + "convolution.out.weight", THEIRS + "conv.pointwise_conv2.weight", "size-1"),
    Pair(OURS + "convolution.out.bias", THEIRS + "conv.pointwise_conv2.bias"),
    Pair(OURS + "norms.first.{}", THEIRS + "norm_feed_forward1.{}"),
    Pair(OURS + "norms.attention.{}", THEIRS + "norm_self_att.{}"),
    Pair(OURS + "norms.convolution.{}", THEIRS + "norm_conv.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "norm_feed_forward2.{}"),
    Pair(OURS + "norms.out.{}", THEIRS + "norm_out.{}"),
    Pair("subsampling.first.{}", "encoder.subsampling.layers.0.{}"),
    *(
        Pair(f"subsampling.{kind}.{index}.{{}}", f"encoder.subsampling.layers.{first + 3 * index}.{{}}")
        for kind, first in (("depthwise", 2), ("pointwise", 3))
        for index in range(2)
    ),
    Pair("subsampling.out.{}", "encoder.subsampling.linear.{}"),
    Pair("head.weight", "ctc_head.weight", "size-1"),
    Pair("head.bias", "ctc_head.bias"),
)

FIELDS = {
    "dim": Field("encoder_config.hidden_size", 1024),
    "heads": Field("encoder_config.num_attention_heads", 8),
    "ffn_dim": Field("encoder_config.intermediate_size", 4096),
    "depth": Field("encoder_config.num_hidden_layers", 24),
    "activation": Field("encoder_config.hidden_act", "silu", ACTIVATIONS),
    "bands": Field("encoder_config.num_mel_bins", 80),
    "subsampling": Field("encoder_config.subsampling_factor", 8),
    "channels": Field("encoder_config.subsampling_conv_channels", 256),
    "conv_size": Field("encoder_config.conv_kernel_size", 9),
    "scale_input": Field("encoder_config.scale_input", True),
    "max_len": Field("encoder_config.max_position_embeddings", 5000),
    "dropout": Field("encoder_config.dropout", 0.1),
    "ffn_dropout": Field("encoder_config.activation_dropout", 0.1),
    "attention_dropout": Field("encoder_config.attention_dropout", 0.1),
    "vocab_size": Field("vocab_size", 1025),
    "blank": Field("pad_token_id", 1024),
}

FIXED: dict[str, Any] = dict(
    position="none", norm="layer", norm_place="pre", norm_eps=1e-5, bias=True, kernel="full", kv_heads=None,
    head_dim=None, cross_kernel=None, conv_norm="batch", decoder_depth=0,
)  # fmt: skip
ONLY = {
    "attention_bias": True,
    "convolution_bias": True,
    "subsampling_conv_kernel_size": 3,
    "subsampling_conv_stride": 2,
}


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    encoder = theirs.get("encoder_config") or {}
    for name, needed in ONLY.items():
        if encoder.get(name) not in (None, needed):
            raise ValueError(f"{name}={encoder[name]!r} cannot be read here; only {needed!r} can")
    if encoder.get("num_key_value_heads") not in (None, encoder.get("num_attention_heads")):
        raise ValueError(
            f"num_key_value_heads={encoder['num_key_value_heads']!r} cannot be read here; only as many as heads"
        )
    return {}


def write(ours: Any) -> dict[str, Any]:
    return {"architectures": ["ParakeetForCTC"]}


def check(ours: Any) -> list[str]:
    """Their subsampling drops what is left over of the bands."""
    return (
        [f"bands={ours.bands} would have to be a multiple of {ours.subsampling}"]
        if ours.bands % ours.subsampling
        else []
    )


PARAKEET = Map(
    kind="parakeet_ctc", family="conformer", pairs=PAIRS, fields=FIELDS, fixed=FIXED, read=read, write=write,
    check=check,
)  # fmt: skip
