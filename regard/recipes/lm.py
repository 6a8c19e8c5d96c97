"""Language model: GPT, or a recurrent network, on running text: Python's documentation or yours.

regard train lm
    Python's documentation: 2,000 steps, about twelve minutes of one core; 672 steps, four minutes, lead to 1.81 bits
    per byte of held-out text (xz 2.42)
regard train lm --data.text book.txt --data.kind char
regard train lm --model lstm
"""

import bz2
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.sets.batches import TextStream, text_batches
from regard.data.sets.text import TextConfig
from regard.models import preset
from regard.objectives.next_token import next_token
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe
from regard.tasks import LanguageModel
from regard.tokens import Tokenizer
from regard.tokens.corpus import corpus
from regard.train.config import TrainConfig
from regard.train.loop import evaluate
from regard.train.progress import Line

MODERN: dict[str, Any] = dict(
    position="rotary", norm="rms", activation="swiglu", ffn_dim=344, bias=False, zero_init=True, tie=False
)
"""Llama's choices, so that other engines read what was trained; what each block adds starts at zero."""
VALID_TOKENS = 1 << 18


@register_recipe("lm")
def lm(*, embedded: bool = True) -> Recipe:
    return Recipe(
        name="lm",
        family="gpt",
        model=preset("gpt", "tiny", dropout=0.0 if embedded else 0.1, max_len=128, **MODERN),
        data=TextConfig(),
        train=TrainConfig(
            steps=2000, batch_tokens=2048, optimizer="muon", lr=6e-3, schedule="trapezoid", warmup=20, smoothing=0.0,
            eval_every=250, save_every=250,
        ),
    )  # fmt: skip


@prepare.register
def prepare_text(data: TextConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Windows of the text as long as the model's context."""
    text, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: [text], out, resume)
    recipe = with_vocabulary(recipe, tokenizer)
    recipe = recipe.with_data(sha256=data.digest())
    context = recipe.model.max_len
    ids, valid = encode(tokenizer, text), encode(tokenizer, held_out)[:VALID_TOKENS]
    if len(ids) < 2 or len(valid) < 2:
        raise ValueError("the text has fewer than two tokens to learn from; give more of it")
    rows = max(1, recipe.train.batch_tokens // context)
    return Job(
        recipe=recipe, tokenizer=tokenizer, stream=TextStream(ids, context, rows, seed=recipe.train.seed),
        valid=lambda: text_batches(valid, context, max(1, 8192 // context)), objective=next_token,
        about=f"{len(ids):,} tokens of {len(text.encode()):,} bytes",
        generation=dict(bos=None, eos=None, pad=tokenizer.pad, beams=1, max_len=context, force_end=False),
    )  # fmt: skip


def encode(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The ids of a long text."""
    parts = tokenizer.encode_batch(list(corpus(None, [text])))
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])


def bits_per_byte(writer: LanguageModel, text: str) -> float:
    """What the model needs to tell the text, token by token, in windows of its context."""
    ids, context = encode(writer.tokenizer, text), writer.context
    mean = evaluate(writer.model, text_batches(ids, context, max(1, 8192 // context)), next_token)
    return mean * (len(ids) - 1) / math.log(2) / len(text.encode())


def text_scores(writer: LanguageModel, text: str) -> dict[str, Any]:
    """Bits per byte of a model, next to two programs that compress the same bytes."""
    raw = text.encode()
    return {
        "bits_per_byte": round(bits_per_byte(writer, text), 4),
        "xz": round(8 * len(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME)) / len(raw), 4),
        "bz2": round(8 * len(bz2.compress(raw)) / len(raw), 4),
        "bytes": len(raw),
    }
