"""MAE (He et al., 2022): a ViT and the decoder that it was trained with."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.hub.mapping import Field, Map, Pair, built_as
from regard.hub.maps.vit import FIELDS, FIXED, blocks, body, read_patch

CLASS = "ViTMAEForPreTraining"


def read(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    built_as(theirs, [CLASS])
    return read_patch(theirs)


VIT_MAE = Map(
    kind="vit_mae", family="mae", only=dict(qkv_bias=True),
    pairs=(
        *body("vit.", "vit", "cls_token"),
        *blocks("decoder", "decoder.decoder_layers"),
        Pair("decoder.norm.{}", "decoder.decoder_norm.{}"),
        Pair("decoder.position.table", "decoder.decoder_pos_embed", "row"),
        Pair("blank", "decoder.mask_token", "vector"),
        Pair("narrow.{}", "decoder.decoder_embed.{}"),
        Pair("head.{}", "decoder.decoder_pred.{}"),
    ),
    fields=FIELDS | {
        "decoder_dim": Field("decoder_hidden_size", 512),
        "decoder_depth": Field("decoder_num_hidden_layers", 8),
        "decoder_heads": Field("decoder_num_attention_heads", 16),
        "decoder_ffn_dim": Field("decoder_intermediate_size", 2048),
        "hidden": Field("mask_ratio", 0.75),
        "normalized": Field("norm_pix_loss", False),
    },
    fixed=FIXED, read=read, write=lambda ours: {"architectures": [CLASS]},
)  # fmt: skip
