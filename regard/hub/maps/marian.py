"""Marian (Junczys-Dowmunt et al., 2018) as Hugging Face stores it: the translators of OPUS-MT.

The 2017 Transformer with norms last, one matrix for both embeddings and the output, a bias on the logits, and
sines and cosines in two halves. Their tables of waves are computed here, not read: the values are the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, Tensors, attention, block

OURS, THEIRS = "{}.blocks.{}.", "model.{}.layers.{}."

BLOCKS = (
    *block(
        OURS, THEIRS, layers="self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj",
        hidden="fc1 fc2", norms="self_attn_layer_norm final_layer_norm",
    ),
    *attention(OURS + "cross", THEIRS + "encoder_attn.", "q_proj k_proj v_proj out_proj"),
    Pair(OURS + "norms.cross.{}", THEIRS + "encoder_attn_layer_norm.{}"),
)  # fmt: skip
PAIRS = (
    *BLOCKS,
    Pair("target_embedding.weight", "model.shared.weight"),
    Pair("head.bias", "final_logits_bias", "row"),
)
COPIES = {
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "lm_head.weight": "model.shared.weight",
}

FIELDS = {
    "dim": Field("d_model", 1024),
    "heads": Field("encoder_attention_heads", 16),
    "ffn_dim": Field("encoder_ffn_dim", 4096),
    "depth": Field("encoder_layers", 12),
    "decoder_depth": Field("decoder_layers", 12),
    "vocab_size": Field("vocab_size", 58101),
    "max_len": Field("max_position_embeddings", 1024),
    "activation": Field("activation_function", "gelu", ACTIVATIONS),
    "dropout": Field("dropout", 0.1),
    "attention_dropout": Field("attention_dropout", 0.0),
    "ffn_dropout": Field("activation_dropout", 0.0),
    "embedding_scale": Field("scale_embedding", False),
}

FIXED: dict[str, Any] = dict(
    position="sinusoidal-halves", norm="layer", norm_place="post", norm_eps=1e-5, final_norm=False,
    embedding_norm=False, tie="all", bias=True, kernel="full", kv_heads=None, head_dim=None,
    cross_kernel=None,
)  # fmt: skip


def check_stacks(theirs: Mapping[str, Any], **usual: int) -> None:
    """Raise an error where encoder and decoder have different sizes; `usual` are the defaults of those."""
    for name, default in usual.items():
        encoder, decoder = (theirs.get(f"{stack}_{name}", default) for stack in ("encoder", "decoder"))
        if encoder != decoder:
            raise ValueError(
                f"encoder_{name}={encoder} and decoder_{name}={decoder} differ; here both stacks are alike"
            )


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    check_stacks(theirs, attention_heads=16, ffn_dim=4096)
    return {"head_bias": "final_logits_bias" in tensors}


def write_stacks(ours: Any) -> dict[str, Any]:
    return {
        "is_encoder_decoder": True,
        "decoder_layers": ours.decoder_blocks,
        "decoder_attention_heads": ours.heads,
        "decoder_ffn_dim": ours.ffn_dim,
        "num_hidden_layers": ours.depth,
    }


def write(ours: Any) -> dict[str, Any]:
    return {"architectures": ["MarianMTModel"], "decoder_vocab_size": ours.vocab_size, **write_stacks(ours)}


WRITERS = ("out.weight", "out.bias", "down.weight", "down.bias")
"""Ends of the names of layers that add to the residual stream, whose rows are its channels."""


def reword(ours: Any, tensors: Tensors) -> tuple[Any, Tensors]:
    """Return an equal model with all sines before all cosines: the channels of the residual stream are permuted, which
    changes nothing else. Interleaved waves become halves that way."""
    if ours.position != "sinusoidal":
        return ours, tensors
    order = torch.cat([torch.arange(0, ours.dim, 2), torch.arange(1, ours.dim, 2)])
    permuted = {}
    for name, tensor in tensors.items():
        norm = ".norm" in name
        if norm or name.endswith(WRITERS):
            permuted[name] = tensor[order]
        else:
            reads_stream = tensor.dim() == 2  # embeddings, and the layers that read it
            permuted[name] = tensor[:, order] if reads_stream else tensor
    return replace(ours, position="sinusoidal-halves"), permuted


MARIAN = Map(
    kind="marian", family="transformer", prefix="model.", pairs=PAIRS, copies=COPIES,
    ignored=("*.embed_positions.weight",), fields=FIELDS, fixed=FIXED, read=read, write=write, reword=reword,
    only=dict(share_encoder_decoder_embeddings=True, tie_word_embeddings=True, static_position_embeddings=True),
)  # fmt: skip
