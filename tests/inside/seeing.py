"""Tiny random models that see, as `regard.load` would hand them over, and a picture for them."""

import numpy as np
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.models import DETR, CNNAttention, CNNAttentionConfig, DETRConfig, MViT, MViTConfig, Swin, SwinConfig, ViT
from regard.models.captioner import Captioner, CaptionerConfig
from regard.models.vit import ViTConfig
from regard.tasks import ImageCaptioner, ImageEncoder
from tests.inside.loaded import GENERATION, spread_out, writer

PATCHES = dict(image=(12, 20), channels=1, patch=4, dim=12, depth=2, heads=2, ffn_dim=17)
STAGES = dict(image=(14, 18), channels=1, patch=2, dim=8)


def picture(rows, columns, mode="L"):
    pixels = np.random.default_rng(3).integers(0, 256, (rows, columns, len(mode)), dtype=np.uint8)
    return Image.fromarray(pixels[..., 0] if mode == "L" else pixels)


def loaded(model, size=None, kind=ImageEncoder):
    channels = model.config.channels
    return kind(
        model.eval(), Preprocessing(channels=channels, size=size, mean=(0.5,) * channels, std=(0.5,) * channels)
    )


def vit(**changes):
    return spread_out(ViT(ViTConfig(**PATCHES | changes)))


def swin(**changes):
    return spread_out(Swin(SwinConfig(**STAGES | dict(depths=(2, 2), heads=(2, 4), window=4) | changes)))


def mvit(**changes):
    return spread_out(MViT(MViTConfig(**STAGES | dict(depths=(2, 2), heads=1, key_stride=2) | changes)))


def cnn():
    return spread_out(CNNAttention(CNNAttentionConfig(**STAGES | dict(depths=(1, 2), heads=2, attention=2))))


def detr():
    config = DETRConfig(
        image=32, channels=1, stem=4, widths=(4, 8), blocks=(1, 1), bottleneck=False, queries=5, dim=12, depth=2,
        decoder_depth=2, heads=3, ffn_dim=9, labels=("circle", "star"),
    )  # fmt: skip
    return spread_out(DETR(config))


def captions(**changes):
    """A captioner with its tokenizer."""
    tokenizer = writer().tokenizer
    sizes = dict(image=(12, 20), widths=(4, 6), dim=12, max_len=12, dropout=0.0)
    blocks = dict(decoder="transformer", depth=2, heads=3, ffn_dim=17) | changes
    model = spread_out(Captioner(CaptionerConfig(**sizes | blocks, vocab_size=len(tokenizer))))
    how = Preprocessing(channels=3, size=(12, 20), mean=(0.5,) * 3, std=(0.5,) * 3)
    told = dict(num_beams=1, length_penalty=1.0, max_length=8, force_end=False)
    return ImageCaptioner(model.eval(), how, tokenizer, GENERATION | told)
