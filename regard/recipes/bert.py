"""BERT from scratch: masked words and next sentences, on Python's documentation or on your text.

regard train bert
    Python's documentation: 600 steps, four minutes of one core. That is only a beginning: after half of them 11 % of
    the masked tokens are predicted at the first guess; give it more text and hours
regard train bert --data.text book.txt --model.preset mini --train.minutes 60
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import override
from regard.data.sets.batches import IGNORE, Batch, Stream, pad
from regard.data.sets.masked_text import MaskedConfig
from regard.models import preset
from regard.objectives.masked import masked_tokens
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch, go_on_from
from regard.tasks.text_encoder import text_inputs
from regard.tokens.encoding import MaskedExample, cut_text, mask_texts
from regard.train.progress import Line


@register_recipe("bert", verb="fill", bases=("fill", "embed", "classify", "tag", "answer"))
def bert(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small BERT with both of its pre-training objectives; from a base, with those it had."""
    base = override(MaskedConfig(), data, under="data.").base
    plan = Recipe(
        name="bert",
        family="bert",
        model=preset("bert", "tiny", dropout=0.0, max_len=128, task="pretrain"),
        data=MaskedConfig(vocab_size=2000),
        train=from_scratch(steps=600, batch_tokens=2048, lr=2e-3, every=200),
    )
    if base is None:
        return plan
    plan = go_on_from(base, plan)
    return plan.with_data(base=base, next_sentence=plan.model.task == "pretrain")


@prepare.register
def prepare_masked(data: MaskedConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Prepare stretches of text, paired and masked differently in every epoch."""
    text, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: [text], out, resume, specials=("<mask>",))
    if tokenizer.mask is None:
        raise ValueError("the tokenizer has no mask token; train one with `regard train bert`, or give a BERT's")
    task = "pretrain" if data.next_sentence else "mask"
    recipe = with_vocabulary(recipe, tokenizer, task=task, pooler=data.next_sentence)
    recipe = recipe.with_data(sha256=data.digest())
    room = min(data.max_len, recipe.model.max_len)
    sides = 2 if data.next_sentence else 1
    parts, valid_parts = (cut_text(tokenizer, part, (room - 3) // sides) for part in (text, held_out))
    if len(parts) < 2 or len(valid_parts) < 2:
        raise ValueError("the text is too short to be cut into two stretches; give more of it")

    def examples(parts: list[str], *seed: int) -> list[MaskedExample]:
        return mask_texts(parts, tokenizer, data, room, np.random.default_rng(seed))

    def collate(examples: Sequence[MaskedExample]) -> Batch:
        labels = torch.tensor([example.label for example in examples]) if data.next_sentence else None
        inputs = text_inputs([example.framed for example in examples], tokenizer, recipe.model)
        targets = pad([example.targets for example in examples], IGNORE)
        return Batch(inputs, targets, tuple(example.number for example in examples), labels)

    seed = recipe.train.seed
    stream = Stream(lambda epoch: examples(parts, seed, epoch), collate, recipe.train.batch_tokens, seed=seed)
    valid = examples(valid_parts, seed, 1 << 31)
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=stream, valid=lambda: stream.once(valid),
        objective=masked_tokens, about=f"{len(parts):,} stretches of text",
    )  # fmt: skip
