"""Word vectors by skip-gram with negative sampling, on Python's documentation or on your text.

regard train skipgram
    Python's documentation: 200 steps, 0.3 minutes of one core; 62.6 % of held-out neighbours score above a noise word
    (50.6 % by frequency alone), from 270,000 words; give it millions
regard train skipgram --data.text news.txt --data.similarities wordsim353.tsv
regard train skipgram --data.text news.txt --model.dim 300 --data.window 10 --data.analogies questions-words.txt
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.readers.large_texts import text_bytes
from regard.data.sets.word_windows import ROW, WordsConfig, WordStream
from regard.models import preset
from regard.objectives.noise import noise_contrast
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens.encoding import encode_large, encode_text
from regard.tokens.words import word_tokenizer
from regard.train.progress import Line

VALID_WORDS = 1 << 16
"""Held-out words of a validation."""


@register_recipe("skipgram", verb="words", bases=("words",), tunes=("all",), whole="a table of word vectors")
def skipgram(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of word vectors with the usual window, noise words and epochs."""
    return Recipe(
        name="skipgram",
        family="skipgram",
        model=preset("skipgram", "small"),
        data=WordsConfig(),
        train=from_scratch(
            steps=1, epochs=5.0, min_steps=200, batch_tokens=256 * ROW, optimizer="adamw", lr=0.025, schedule="linear",
            warmup=0, weight_decay=0.0, clip=0.0, every=100,
        ),
    )  # fmt: skip


@prepare.register
def prepare_words(data: WordsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Rows of words with their neighbours and noise words."""
    digest = data.digest()
    learn = partial(word_tokenizer, vocab_size=data.vocab_size, min_count=data.min_count, lowercase=data.lowercase)
    if data.large:
        large, rest = data.large_split()
        tokenizer = get_tokenizer(data, lambda: large, out, resume, learn=learn)
        ids, held_out = encode_large(tokenizer, large, digest), rest.beginning(16 * VALID_WORDS)
    else:
        text, held_out = data.split()
        tokenizer = get_tokenizer(data, lambda: [text], out, resume, learn=learn)
        ids = encode_text(tokenizer, text)
    recipe = with_vocabulary(recipe, tokenizer).with_data(sha256=digest)
    counts = np.bincount(ids, minlength=len(tokenizer))
    if tokenizer.unk is not None:
        counts[tokenizer.unk] = 0
    if np.count_nonzero(counts) < 2:
        raise ValueError("the text has fewer than two words to learn; give more of it, or lower --data.min-count")
    rows = max(1, recipe.train.batch_tokens // ROW)
    sizes: dict[str, Any] = dict(
        counts=counts, window=data.window, rows=rows, subsample=data.subsample, seed=recipe.train.seed
    )
    valid = WordStream(encode_text(tokenizer, held_out)[:VALID_WORDS], **sizes)
    size = text_bytes(data.text) if data.large else len(text.encode())
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=WordStream(ids, **sizes),
        valid=valid.once, objective=partial(noise_contrast, negatives=data.negatives),
        about=f"{counts.sum():,} words of {size:,} bytes",
    )  # fmt: skip
