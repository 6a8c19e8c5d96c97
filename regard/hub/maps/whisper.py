"""Whisper (Radford et al., 2022) as Hugging Face stores it.

Unlike bart.py: the encoder reads frames through two convolutions, keys have no bias, and every table of positions
begins at row 0.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair
from regard.hub.maps import marian

OURS, THEIRS = "{}.blocks.{}.", "model.{}.layers.{}."


def attention(ours: str, theirs: str) -> tuple[Pair, ...]:
    """Return the pairs of an attention layer whose keys have no bias: added to all of them, it would change nothing."""
    return (
        Pair(ours + ".query.{}", theirs + "q_proj.{}"),
        Pair(ours + ".key_value.weight", (theirs + "k_proj.weight", theirs + "v_proj.weight"), "stack"),
        Pair(ours + ".key_value.bias", theirs + "v_proj.bias", "values"),
        Pair(ours + ".out.{}", theirs + "out_proj.{}"),
    )


PAIRS = (
    *attention(OURS + "attention", THEIRS + "self_attn."),
    *attention(OURS + "cross", THEIRS + "encoder_attn."),
    Pair(OURS + "feedforward.up.{}", THEIRS + "fc1.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "fc2.{}"),
    Pair(OURS + "norms.attention.{}", THEIRS + "self_attn_layer_norm.{}"),
    Pair(OURS + "norms.cross.{}", THEIRS + "encoder_attn_layer_norm.{}"),
    Pair(OURS + "norms.feedforward.{}", THEIRS + "final_layer_norm.{}"),
    Pair("{}.norm.{}", "model.{}.layer_norm.{}"),
    Pair("stem.first.{}", "model.encoder.conv1.{}"),
    Pair("stem.second.{}", "model.encoder.conv2.{}"),
    Pair("stem.waves", "model.encoder.embed_positions.weight"),
    Pair("{}.position.table", "model.{}.embed_positions.weight"),
    Pair("embedding.weight", "model.decoder.embed_tokens.weight"),
)

FIELDS = {
    "dim": Field("d_model", 384),
    "heads": Field("encoder_attention_heads", 6),
    "ffn_dim": Field("encoder_ffn_dim", 1536),
    "depth": Field("encoder_layers", 4),
    "decoder_depth": Field("decoder_layers", 4),
    "vocab_size": Field("vocab_size", 51865),
    "mels": Field("num_mel_bins", 80),
    "max_len": Field("max_target_positions", 448),
    "activation": Field("activation_function", "gelu", ACTIVATIONS),
    "dropout": Field("dropout", 0.0),
    "attention_dropout": Field("attention_dropout", 0.0),
    "ffn_dropout": Field("activation_dropout", 0.0),
}

FIXED: dict[str, Any] = dict(
    position="learned", norm="layer", norm_place="pre", norm_eps=1e-5, bias=True, kernel="full", kv_heads=None,
    head_dim=None, cross_kernel=None,
)  # fmt: skip


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    marian.check_stacks(theirs, attention_heads=6, ffn_dim=1536)
    return {"frames": 2 * theirs.get("max_source_positions", 1500)}


def write(ours: Any) -> dict[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"], "max_source_positions": ours.frames // 2,
        **marian.write_stacks(ours),
    }  # fmt: skip


def check(ours: Any) -> list[str]:
    """Their encoder has positions for pairs of frames."""
    return [f"frames={ours.frames} would have to be even"] if ours.frames % 2 else []


WHISPER = Map(
    kind="whisper", family="whisper", prefix="model.", pairs=PAIRS,
    copies={"proj_out.weight": "model.decoder.embed_tokens.weight"}, fields=FIELDS, fixed=FIXED, read=read, write=write,
    check=check, only=dict(scale_embedding=False, tie_word_embeddings=True),
)  # fmt: skip
