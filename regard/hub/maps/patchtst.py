"""PatchTST (Nie et al., 2023) as Hugging Face stores it, with its head for forecasts."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import ACTIVATIONS, Field, Map, Pair, attention, built_as

OURS, THEIRS = "blocks.{}.", "model.encoder.layers.{}."
BATCH, LAYER = dict(batch_norm=(True,)), dict(batch_norm=(False,))
NORMS = {"attention": "norm_sublayer1", "channels": "norm_sublayer2", "feedforward": "norm_sublayer3"}

PAIRS = (
    *attention(OURS + "attention", THEIRS + "self_attn.", "q_proj k_proj v_proj out_proj"),
    Pair(OURS + "feedforward.up.{}", THEIRS + "ff.0.{}"),
    Pair(OURS + "feedforward.down.{}", THEIRS + "ff.3.{}"),
    *(Pair(f"{OURS}norms.{our}.{{}}", f"{THEIRS}{their}.batchnorm.{{}}", when=BATCH) for our, their in NORMS.items()),
    *(Pair(f"{OURS}norms.{our}.{{}}", f"{THEIRS}{their}.{{}}", when=LAYER) for our, their in NORMS.items()),
    Pair("patches.project.{}", "model.encoder.embedder.input_embedding.{}"),
    Pair("position.table", "model.encoder.positional_encoder.position_enc"),
    Pair("head.{}", "head.projection.{}"),
)

FIELDS = {
    "channels": Field("num_input_channels", 1),
    "context": Field("context_length", 32),
    "horizon": Field("prediction_length", 24),
    "patch": Field("patch_length", 1),
    "attends": Field("channel_attention", False, {False: "time", True: "both"}),
    "dim": Field("d_model", 128),
    "heads": Field("num_attention_heads", 4),
    "depth": Field("num_hidden_layers", 3),
    "ffn_dim": Field("ffn_dim", 512),
    "activation": Field("activation_function", "gelu", ACTIVATIONS),
    "batch_norm": Field("norm_type", "batchnorm", {"batchnorm": True, "layernorm": False}),
    "norm_place": Field("pre_norm", True, {True: "pre", False: "post"}),
    "norm_eps": Field("norm_eps", 1e-5),
    "dropout": Field("path_dropout", 0.0),
    "attention_dropout": Field("attention_dropout", 0.0),
    "ffn_dropout": Field("ff_dropout", 0.0),
    "head_dropout": Field("head_dropout", 0.0),
}

FIXED: dict[str, Any] = dict(
    position="learned", norm="layer", bias=True, kernel="full", cross_kernel=None, kv_heads=None, head_dim=None,
    covariates=0, quantiles=(), linear=False,
)  # fmt: skip
POOLINGS: dict[Any, str] = {"mean": "mean", "max": "max", None: "none"}
SCALINGS: dict[Any, str] = {"std": "std", None: "none", False: "none"}
"""Their words for our values; null is one of them, and not what is left out."""


def word(theirs: Mapping[str, Any], name: str, default: str, known: Mapping[Any, str]) -> str:
    """Our word for a setting of theirs."""
    value = theirs.get(name, default)
    if value not in known:
        raise ValueError(f"{name}={value!r} cannot be read here; known: {', '.join(map(str, known))}")
    return known[value]


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built_as(theirs, ["PatchTSTForPrediction"])
    return {
        "stride": theirs.get("patch_stride") or 1,
        "pooling": word(theirs, "pooling_type", "mean", POOLINGS),
        "scaling": word(theirs, "scaling", "std", SCALINGS),
    }


def write(ours: Any) -> dict[str, Any]:
    words = {
        "pooling_type": next(key for key, value in POOLINGS.items() if value == ours.pooling),
        "scaling": next(key for key, value in SCALINGS.items() if value == ours.scaling),
    }
    further = dict(patch_stride=ours.step, positional_dropout=ours.dropout, positional_encoding_type="random")
    return {"architectures": ["PatchTSTForPrediction"], **words, **further}


PATCHTST = Map(
    kind="patchtst", family="patchtst", pairs=PAIRS, fields=FIELDS, fixed=FIXED, read=read, write=write,
    only=dict(loss="mse", share_embedding=True, share_projection=True, use_cls_token=False, bias=True),
)  # fmt: skip
