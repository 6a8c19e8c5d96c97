"""Multi30k: a small parallel corpus (29,000 pairs) with much dropout and averaged checkpoints."""

from regard.data.pairs import PairsConfig
from regard.models import preset
from regard.recipes.base import Recipe
from regard.registry import register_recipe
from regard.train.config import TrainConfig


@register_recipe("multi30k")
def multi30k() -> Recipe:
    return Recipe(
        name="multi30k",
        model=preset("transformer", "tiny", dropout=0.2),
        data=PairsConfig(vocab_size=6000),
        train=TrainConfig(
            minutes=60, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=200, average=5, save_every=200
        ),
    )
