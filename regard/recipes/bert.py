"""BERT from nothing: hidden words and next sentences, on Python's documentation or on your text.

regard train bert
    Python's documentation: 600 steps, four minutes of one core. That is only a beginning: after half of them 11 % of
    the hidden tokens are found again at the first guess; give it more text and hours
regard train bert --data.text book.txt --model.preset mini --train.minutes 60
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.sets.batches import IGNORE, Batch, Stream, pad
from regard.data.sets.masking import MaskedConfig, hide, pair_up, sentences, stretches
from regard.models import preset
from regard.objectives.masked import masked_tokens
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe
from regard.tasks.text_encoder import text_inputs
from regard.tokens import Framed, Tokenizer
from regard.train.config import TrainConfig
from regard.train.progress import Line


@register_recipe("bert")
def bert(*, embedded: bool = True) -> Recipe:
    return Recipe(
        name="bert",
        family="bert",
        model=preset("bert", "tiny", dropout=0.0, max_len=128, task="pretrain"),
        data=MaskedConfig(vocab_size=2000),
        train=TrainConfig(
            steps=600, batch_tokens=2048, optimizer="muon", lr=2e-3, schedule="trapezoid", warmup=100, smoothing=0.0,
            eval_every=200, save_every=200,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hidden:
    """A frame with words hidden, what they were, and whether its second text follows (0) or not (1)."""

    framed: Framed
    targets: list[int]
    label: int | None
    number: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.framed),)


@prepare.register
def prepare_masked(data: MaskedConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Every epoch pairs other stretches and hides other words."""
    text, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: [text], out, resume, specials=("<mask>",))
    if tokenizer.mask is None:
        raise ValueError("the tokenizer has no mask token; train one with `regard train bert`, or give a BERT's")
    task = "pretrain" if data.next_sentence else "mask"
    recipe = with_vocabulary(recipe, tokenizer, task=task, pooler=data.next_sentence)
    recipe = recipe.with_data(sha256=data.digest())
    room = min(data.max_len, recipe.model.max_len)
    sides = 2 if data.next_sentence else 1
    parts, valid_parts = (cut(tokenizer, some, (room - 3) // sides) for some in (text, held_out))
    if len(parts) < 2 or len(valid_parts) < 2:
        raise ValueError("the text is too short to be cut into two stretches; give more of it")

    def examples(some: list[str], seed: tuple[int, int]) -> list[Hidden]:
        return hidden(some, tokenizer, data, room, np.random.default_rng(seed))

    def collate(some: Sequence[Hidden]) -> Batch:
        labels = torch.tensor([one.label for one in some]) if data.next_sentence else None
        inputs = text_inputs([one.framed for one in some], tokenizer, recipe.model)
        return Batch(inputs, pad([one.targets for one in some], IGNORE), tuple(one.number for one in some), labels)

    seed = recipe.train.seed
    stream = Stream(lambda epoch: examples(parts, (seed, epoch)), collate, recipe.train.batch_tokens, seed=seed)
    valid = examples(valid_parts, (seed, 1 << 31))
    return Job(
        recipe=recipe, tokenizer=tokenizer, stream=stream, valid=lambda: stream.once(valid), objective=masked_tokens,
        about=f"{len(parts):,} stretches of text",
    )  # fmt: skip


def cut(tokenizer: Tokenizer, text: str, room: int) -> list[str]:
    """A text as stretches of whole sentences, each at most `room` tokens where a sentence is not longer."""
    parts = sentences(text)
    return stretches(parts, [len(ids) for ids in tokenizer.encode_batch(parts)], room)


def hidden(
    parts: list[str], tokenizer: Tokenizer, data: MaskedConfig, room: int, rng: np.random.Generator
) -> list[Hidden]:
    """The stretches, alone or paired up, with words hidden."""
    if data.next_sentence:
        first, second, labels = zip(*pair_up(parts, rng), strict=True)
        frames = tokenizer.frame(first, second, max_len=room)
    else:
        labels = (None,) * len(parts)
        frames = tokenizer.frame(parts, max_len=room)
    assert tokenizer.mask is not None
    specials = [getattr(tokenizer, role) for role in tokenizer.names if getattr(tokenizer, role) is not None]
    how: dict[str, Any] = dict(
        rate=data.rate, mask=tokenizer.mask, ordinary=np.setdiff1d(np.arange(len(tokenizer)), specials)
    )
    found = []
    for number, (framed, label) in enumerate(zip(frames, labels, strict=True), 1):
        own = framed.words if data.whole_words else range(len(framed))
        words = [
            None if word is None or side is None else (side, word) for side, word in zip(framed.side, own, strict=True)
        ]
        ids, targets = hide(framed.ids, words, rng, **how)
        found.append(Hidden(replace(framed, ids=ids), targets, label, number))
    return found
