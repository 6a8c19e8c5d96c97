"""wav2vec 2.0 with CTC (Baevski et al., 2020) as Hugging Face stores it.

The kernel of its positions is stored as a direction and a length for each place, which are multiplied here.
"""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, attention, built_as

OURS, THEIRS = "encoder.blocks.{}.", "wav2vec2.encoder.layers.{}."
CONV = "wav2vec2.feature_extractor.conv_layers."
POSITIONS = "wav2vec2.encoder.pos_conv_embed.conv."

PAIRS = (
    *attention(OURS + "attention", THEIRS + "attention.", "q_proj k_proj v_proj out_proj"),
    Pair(OURS + "feedforward.up.{}", THEIRS + "feed_forward.intermediate_dense.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "feed_forward.output_dense.{}"),
    Pair(OURS + "norms.attention.{}", THEIRS + "layer_norm.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "final_layer_norm.{}"),
    Pair("norm.{}", "wav2vec2.encoder.layer_norm.{}"),
    Pair("convolutions.layers.{}.{}", CONV + "{}.conv.{}"),
    Pair("convolutions.norms.{}.{}", CONV + "{}.layer_norm.{}"),
    Pair("input_norm.{}", "wav2vec2.feature_projection.layer_norm.{}"),
    Pair("project.{}", "wav2vec2.feature_projection.projection.{}"),
    Pair(
        "positions.conv.weight",
        (POSITIONS + "parametrizations.weight.original0", POSITIONS + "parametrizations.weight.original1"),
        "weight-norm",
    ),
    Pair("positions.conv.bias", POSITIONS + "bias"),
    Pair("head.{}", "lm_head.{}"),
)

FIELDS = {
    "vocab_size": Field("vocab_size", 32),
    "blank": Field("pad_token_id", 0),
    "dim": Field("hidden_size", 768),
    "heads": Field("num_attention_heads", 12),
    "depth": Field("num_hidden_layers", 12),
    "ffn_dim": Field("intermediate_size", 3072),
    "activation": Field("hidden_act", "gelu", ACTIVATIONS),
    "dropout": Field("hidden_dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.1),
    "ffn_dropout": Field("activation_dropout", 0.1),
    "norm_eps": Field("layer_norm_eps", 1e-5),
    "conv_channels": Field("conv_dim", (512,) * 7),
    "sizes": Field("conv_kernel", (10, 3, 3, 3, 3, 2, 2)),
    "strides": Field("conv_stride", (5, 2, 2, 2, 2, 2, 2)),
    "conv_bias": Field("conv_bias", False),
    "conv_norm": Field("feat_extract_norm", "group", {"group": "first", "layer": "each"}),
    "norm_place": Field("do_stable_layer_norm", False, {False: "post", True: "pre"}),
    "position_size": Field("num_conv_pos_embeddings", 128),
    "position_groups": Field("num_conv_pos_embedding_groups", 16),
}

FIXED: dict[str, Any] = dict(
    position="none", norm="layer", bias=True, kernel="full", kv_heads=None, head_dim=None, cross_kernel=None,
    reversible=False,
)  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built_as(theirs, ["Wav2Vec2ForCTC"])
    return {}


def renamed(name: str) -> str:
    """Earlier releases named the two parts of the positions' kernel otherwise."""
    part = re.fullmatch(r"(.*pos_conv_embed\.conv\.)weight_([gv])", name)
    return name if part is None else f"{part[1]}parametrizations.weight.original{'gv'.index(part[2])}"


WAV2VEC2 = Map(
    kind="wav2vec2", family="wav2vec2", prefix="wav2vec2.", pairs=PAIRS, fields=FIELDS, fixed=FIXED, read=read,
    renamed=renamed, ignored=("*masked_spec_embed",),
    only=dict(feat_extract_activation="gelu", add_adapter=False, adapter_attn_dim=None),
    # Without masks in training, they have no vector for what is masked.
    write=lambda ours: dict(
        architectures=["Wav2Vec2ForCTC"], num_feat_extract_layers=len(ours.conv_channels), mask_time_prob=0.0
    ),
)  # fmt: skip
