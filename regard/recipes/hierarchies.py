"""Labels of images, by models whose grid of tokens shrinks from stage to stage.

regard train swin              attention inside windows that shift
regard train swinv2            the same with cosines, and offsets on a logarithmic scale
regard train mvit              attention over pooled keys
regard train cnn-attention     convolutions, and self-attention on their last map; --model.attention 0 is a plain CNN
    scikit-learn's 8 × 8 digits: 1,500 steps, one to two minutes of one core each, about one of two; of 360 held-out
    digits 99.4 %, 98.6 %, 98.9 % and 98.9 % right
regard train swin --data.images mnist.npz
    5,000 steps, 29 minutes of one core, about 16 of two: 99.5 % of 10,000 others
regard train swin --data.images FOLDER
    a sub-folder a class; or a .csv of path and label, or an .npz of x and y. Patch, window and stages follow from the
    images
regard finetune runs/swin --data.images FOLDER --data.size 96 --tune lora
"""

from collections.abc import Mapping
from typing import Any

from regard.recipes.vit import image_recipe
from regard.registry import register_recipe
from regard.runs.recipe import Recipe


@register_recipe("swin")
def swin(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Swin Transformer."""
    return image_recipe("swin", "swin", data)


@register_recipe("swinv2")
def swinv2(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Swin Transformer of version 2."""
    return image_recipe("swinv2", "swin", data, size="tiny-v2")


@register_recipe("mvit")
def mvit(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small MViT."""
    return image_recipe("mvit", "mvit", data)


@register_recipe("cnn-attention")
def cnn_attention(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small CNN with self-attention on its last feature map."""
    return image_recipe("cnn-attention", "cnn-attention", data)
