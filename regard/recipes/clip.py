"""Images and texts as vectors of one space: CLIP. It then labels images by any texts, and finds them by words.

regard train clip
    64 × 64 generated scenes: 1,500 steps, 25 minutes of one core, about 14 of two; then 98.8 % of 1,000 others with
    one object each are right among 40 phrases, and 94.0 % of 1,000 others find their own text
regard train clip --data.images captions.csv
    your own images: a .csv, .tsv or .jsonl of path and caption; rows of one path are several captions of it
regard classify RUN image.png --zero-shot "a red circle" "a blue square"
regard embed RUN --search "a red circle" --in FOLDER
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.sets.image_data import image_fields, preprocessing_for
from regard.data.sets.image_text_pairs import PairedConfig, PairStream
from regard.models import preset
from regard.objectives.contrastive import image_text_contrast
from regard.recipes.captioner import check_length
from regard.registry import register_recipe
from regard.runs.fit import Job, base_preprocessing, get_tokenizer, prepare, special_ids, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens import Tokenizer
from regard.train.progress import Line

BATCH = 128
"""Pairs that are contrasted with each other, whatever the size of the images."""
PATCHES = 8
"""Approximate number of patches along an image's side."""
WIDTH, WIDEST = 24, 192
"""Channels of the first convolution, and most channels of any."""
END = "<end>"
"""Name of the EOS token of texts: Hugging Face gives our usual id of <eos> a special meaning, so this one is
separate."""


@register_recipe("clip", verb="match", bases=("match",))
def clip(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small CLIP for images of the size that the data have."""
    config = override(PairedConfig(), data, under="data.")
    shape = config.shape()
    model = preset("clip", "tiny", **image_fields(shape), **stem(min(shape[:2])), max_len=max(64, config.max_len))
    train = from_scratch(steps=1500, batch_tokens=BATCH * model.tokens, lr=2e-3, every=250)
    augmented = PairedConfig() if config.embedded else PairedConfig(shift=0.05, zoom=0.1, colour=0.1)
    return Recipe(name="clip", family="clip", model=model, data=augmented, train=train)


def stem(side: int) -> dict[str, Any]:
    """Fields of a convolutional stem that leaves about eight patches of an image's side."""
    halvings = max(1, round(math.log2(side / PATCHES)))
    return dict(patch=2**halvings, stem=tuple(min(WIDTH * 2**i, WIDEST) for i in range(halvings)))


@prepare.register
def prepare_pairs(data: PairedConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Images with their texts as ids; the model gets their size and the texts' vocabulary."""
    check_length(data, recipe)
    start = base_preprocessing(data, recipe.model, line)
    images, valid = data.split(start)
    tokenizer = with_end(get_tokenizer(data, lambda: images.texts, out, resume, specials=(END,)))
    bos, eos, padding = special_ids(tokenizer, "bos", "eos", "pad")
    ids, valid_ids = (
        part.grouped(framed.ids for framed in tokenizer.frame(part.texts, max_len=data.max_len))
        for part in (images, valid)
    )
    recipe = with_vocabulary(recipe, tokenizer, **image_fields(images.pixels.shape[1:]))
    stream = PairStream(
        images, ids, start or preprocessing_for(images), data, (bos, eos, padding),
        rows=max(2, recipe.train.batch_tokens // recipe.model.tokens), seed=recipe.train.seed,
    )  # fmt: skip
    return Job(
        recipe=recipe, readers={"text": tokenizer, "image": stream.preprocessing}, stream=stream,
        valid=lambda: stream.once(valid, valid_ids), objective=image_text_contrast,
        about=f"{len(images):,} images with {sum(map(len, ids)):,} texts",
    )  # fmt: skip


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with END as its EOS, if its vocabulary has that token."""
    if tokenizer.inner.token_to_id(END) is None:
        return tokenizer
    return Tokenizer(tokenizer.inner, names=tokenizer.names | {"eos": END})
