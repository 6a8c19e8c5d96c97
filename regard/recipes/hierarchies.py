"""Labels of images, by models whose grid of tokens shrinks from stage to stage.

regard train swin              attention inside windows that shift
regard train swinv2            the same with cosines, and offsets on a logarithmic scale
regard train mvit              attention over pooled keys
regard train cnn-attention     convolutions, and self-attention on their last map; --model.attention 0 is a plain CNN
    scikit-learn's 8 × 8 digits: 1,500 steps, one to two minutes of one core each, about one of two; of 360 held-out
    digits 99.4 %, 98.6 %, 98.9 % and 98.9 % right
regard train lr-net            local relations in place of convolutions: weights from the pixels
    the same digits: 1,500 steps, at most twelve minutes of one core; 99.4 % right
regard train swin --data.images mnist.npz
    5,000 steps, 29 minutes of one core, about 16 of two: 99.5 % of 10,000 others
regard train cnn-attention --data.images FOLDER --train.minutes 10
    what to take from scratch and in little time: convolutions know that neighbours belong together, a ViT has to learn
    it. With few passes over the images these are only shifted and mirrored; with many they are mixed as well. Without
    a budget 1,500 steps for few images, 5,000 for many: one to five minutes of one core for images of 32 × 32
regard train swin --data.images FOLDER
    a sub-folder a class; or a .csv of path and label, or an .npz of x and y. Patch, window and stages follow from the
    images
regard finetune runs/swin --data.images FOLDER --data.size 96 --tune lora
"""

from types import MappingProxyType

from regard.recipes.vit import image_recipe
from regard.registry import register_recipe

SIZES = {"swin": ("swin", "tiny"), "swinv2": ("swin", "tiny-v2"), "mvit": ("mvit", "tiny")}
SIZES |= {"cnn-attention": ("cnn-attention", "tiny"), "lr-net": ("lr-net", "tiny")}
"""The family and the preset of each recipe."""
for _name in SIZES:
    register_recipe(_name, verb="classify")(
        lambda data, train=MappingProxyType({}), name=_name: image_recipe(name, *SIZES[name], data, train)
    )
