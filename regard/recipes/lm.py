"""Language model: GPT, or a recurrent network, on running text: Python's documentation or yours.

regard train lm
    Python's documentation: 2,000 steps, about twelve minutes of one core; 672 steps, four minutes, lead to 1.81 bits
    per byte of held-out text (xz 2.42)
regard train lm --data.text book.txt --data.kind char
regard train lm --data.kind code
    Python's standard library; two minutes, 466 steps, lead to 1.62 bits per byte (bz2 1.52); or dna, bytes
regard train lm --model lstm
regard train lm --model bilstm
    ELMo: both directions, for vectors of words in their sentence; 400 steps lead to 2.01 bits per byte, their mean
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.readers.large_texts import text_bytes
from regard.data.sets.batches import TextStream, text_batches
from regard.data.sets.running_text import TextConfig
from regard.hub.checkpoint import load_generation
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.both_sides import both_sides
from regard.objectives.next_token import next_token
from regard.registry import models, register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_large, encode_text, raw
from regard.train.progress import Line

MODERN: dict[str, Any] = dict(
    position="rotary", norm="rms", activation="swiglu", ffn_dim=344, bias=False, zero_init=True, tie=False
)
"""Settings of Llama's architecture, which other inference engines can read; each block's output is initialised to
zero."""
VALID_TOKENS = 1 << 18
TOKENIZER_TEXT = 1 << 26
"""Characters of a large text that its tokenizer is trained on."""


@register_recipe("lm", verb="generate", bases=("generate", "contextual"))
def lm(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small Llama-like GPT; with dropout on the user's own text, which is repeated in every
    epoch."""
    embedded = override(TextConfig(), data, under="data.").embedded
    return Recipe(
        name="lm",
        family="gpt",
        model=preset("gpt", "tiny", dropout=0.0 if embedded else 0.1, max_len=128, **MODERN),
        data=TextConfig(),
        train=from_scratch(steps=2000, batch_tokens=2048, lr=6e-3, warmup=20, every=250),
    )


@prepare.register
def prepare_text(data: TextConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Windows of the text as long as the model's context."""
    digest = data.digest()
    if data.large:
        large, rest = data.large_split()
        tokenizer = get_tokenizer(data, lambda: large.sample(TOKENIZER_TEXT, text_bytes(data.text)), out, resume)
        ids, held_out, size = encode_large(tokenizer, large, digest), rest.beginning(8 * VALID_TOKENS), None
    else:
        text, held_out = data.split()
        tokenizer = get_tokenizer(data, lambda: [text], out, resume)
        ids, size = encode_text(tokenizer, text), len(raw(text))
    valid = encode_text(tokenizer, held_out)[:VALID_TOKENS]
    recipe = with_vocabulary(recipe, tokenizer)
    recipe = recipe.with_data(sha256=digest)
    context = recipe.model.max_len
    if len(ids) < 2 or len(valid) < 2:
        raise ValueError("the text has fewer than two tokens to learn from; give more of it")
    rows = max(1, recipe.train.batch_tokens // context)
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=TextStream(ids, context, rows, seed=recipe.train.seed),
        valid=lambda: text_batches(valid, context, max(1, 8192 // context)),
        objective=both_sides if getattr(models[recipe.family], "two_sided", False) else next_token,
        about=f"{len(ids):,} tokens of {text_bytes(data.text) if size is None else size:,} bytes",
        generation=generation_of(data.base, tokenizer, context),
    )  # fmt: skip


def generation_of(base: str | None, tokenizer: Tokenizer, context: int) -> dict[str, Any]:
    """The decoding defaults of a language model: those of its base, or of one that has no special tokens."""
    stored: dict[str, Any] = dict(bos=None, eos=None, pad=tokenizer.pad, prompt_end="")
    if base is not None and (path := find(base)).is_dir():
        stored = load_generation(path)
    kept = {name: stored[name] for name in ("bos", "eos", "pad", "prompt_end")}
    return dict(beams=1, max_len=context, force_end=False, **kept)
