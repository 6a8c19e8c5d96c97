"""Pictures and texts as vectors of one space: CLIP. It then labels pictures by any texts, and finds them by words.

regard train clip
    64 × 64 scenes drawn here: 1,500 steps, 25 minutes of one core, about 14 of two; then 98.8 % of 1,000 others with
    one thing each are right among 40 phrases, and 94.0 % of 1,000 others find their own text
regard train clip --data.images captions.csv
    pictures of one's own: a .csv, .tsv or .jsonl of path and caption; rows of one path are several captions of it
regard classify RUN image.png --zero-shot "a red circle" "a blue square"
regard embed RUN --search "a red circle" --in FOLDER
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from regard.config import override
from regard.data.sets.captions import Captioned
from regard.data.sets.images import preparation_for
from regard.data.sets.paired import PairedConfig, PairStream
from regard.models import preset
from regard.objectives.contrastive import image_text_contrast
from regard.recipes.captioner import check_length
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, marks, prepare, with_vocabulary
from regard.runs.recipe import Recipe, fields_of
from regard.tasks.image_text_matcher import ImageTextMatcher
from regard.tokens import Tokenizer
from regard.train.config import TrainConfig
from regard.train.progress import Line

BATCH = 128
"""Pairs that are told apart from each other, whatever the pictures' size."""
PLACES = 8
"""Of a picture's side, about."""
WIDTH, WIDEST = 24, 192
"""Of the first convolution, and of any."""
END = "<end>"
"""Others take an <eos> with our usual id for something else, so texts end with a token of their own."""


@register_recipe("clip")
def clip(*, embedded: bool = True, given: Mapping[str, Any] | None = None) -> Recipe:
    asked = override(PairedConfig(), given or {})
    shape = asked.shape()
    model = preset("clip", "tiny", **fields_of(shape), **stem(min(shape[:2])), max_len=max(64, asked.max_len))
    train = TrainConfig(
        steps=1500, batch_tokens=BATCH * model.tokens, optimizer="muon", lr=2e-3, schedule="trapezoid", warmup=100,
        smoothing=0.0, eval_every=250, save_every=250,
    )  # fmt: skip
    data = PairedConfig() if embedded else PairedConfig(shift=0.05, zoom=0.1, colour=0.1)
    return Recipe(name="clip", family="clip", model=model, data=data, train=train)


def stem(side: int) -> dict[str, Any]:
    """Convolutions that leave about eight places of a picture's side."""
    halvings = max(1, round(math.log2(side / PLACES)))
    return dict(patch=2**halvings, stem=tuple(min(WIDTH * 2**i, WIDEST) for i in range(halvings)))


@prepare.register
def prepare_pairs(data: PairedConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Reads or draws the pictures; the model gets their size and the texts' vocabulary."""
    check_length(data, recipe)
    pictures, valid = data.split()
    texts = lambda: (text for several in pictures.captions for text in several)  # noqa: E731
    tokenizer = ending(get_tokenizer(data, texts, out, resume, specials=(END,)))
    bos, eos, fill = marks(tokenizer, "bos", "eos", "pad")
    ids, valid_ids = (framed(some, tokenizer, data.max_len) for some in (pictures, valid))
    sizes = fields_of(pictures.pixels.shape[1:])
    recipe = with_vocabulary(recipe, tokenizer, **sizes)
    stream = PairStream(
        pictures, ids, preparation_for(pictures), data, (bos, eos, fill),
        rows=max(2, recipe.train.batch_tokens // recipe.model.tokens), seed=recipe.train.seed,
    )  # fmt: skip
    return Job(
        recipe=recipe, tokenizer=tokenizer, stream=stream, valid=lambda: stream.once(valid, valid_ids),
        objective=image_text_contrast, preparation=stream.how,
        about=f"{len(pictures):,} pictures with {sum(map(len, ids)):,} texts",
    )  # fmt: skip


def ending(tokenizer: Tokenizer) -> Tokenizer:
    """The same, with texts that end in our own mark if it has that."""
    if tokenizer.inner.token_to_id(END) is None:
        return tokenizer
    return Tokenizer(tokenizer.inner, names=tokenizer.names | {"eos": END})


def framed(pictures: Captioned, tokenizer: Tokenizer, max_len: int) -> list[list[list[int]]]:
    """The texts of each picture between special tokens."""
    flat = iter(tokenizer.frame([text for several in pictures.captions for text in several], max_len=max_len))
    return [[next(flat).ids for _ in several] for several in pictures.captions]


def recall(loaded: ImageTextMatcher, pictures: Captioned) -> tuple[dict[str, float], list[str]]:
    """How often the likest text is one of the picture's own, and the likest picture one with this text; the texts."""
    texts = list(dict.fromkeys(text for several in pictures.captions for text in several))
    seen, read = loaded.embed_arrays(pictures.pixels), loaded.embed_texts(texts)
    likeness = seen @ read.T
    found = [texts[i] for i in likeness.argmax(1).tolist()]
    right = sum(text in own for text, own in zip(found, pictures.captions, strict=True))
    back = likeness.argmax(0).tolist()
    known = sum(text in pictures.captions[i] for text, i in zip(texts, back, strict=True))
    return {
        "text_recall_at_1": round(100 * right / len(pictures), 2),
        "picture_recall_at_1": round(100 * known / len(texts), 2),
    }, found


def images(pictures: Captioned) -> list[Image.Image]:
    """As if they had been read from files."""
    return [Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one) for one in pictures.pixels]
