"""Translate: an encoder–decoder Transformer on sentence pairs, yours or the embedded English → German phrases.

regard train translate --out runs/demo
"""

from regard.data.pairs import PairsConfig
from regard.models import preset
from regard.recipes.base import Recipe
from regard.registry import register_recipe
from regard.train.config import TrainConfig


@register_recipe("translate")
def translate() -> Recipe:
    return Recipe(
        name="translate",
        model=preset("transformer", "tiny"),
        data=PairsConfig(vocab_size=400),
        train=TrainConfig(
            steps=2000, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=100, smoothing=0.0, eval_every=250
        ),
    )
