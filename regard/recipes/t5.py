"""T5: several tasks in one model, distinguished by a prefix of the text.

regard train t5
    translation, languages, dates and summaries: 2,500 steps, about 25 minutes of one core. After 1,200 of them
    (--train.steps 1200, 15 minutes of a shared core) exactly right 88.8 % of held-out translations, 96.2 % of the
    languages, 96.9 % of dates; ROUGE-L of summaries 85.0 (the text itself 40.2, its first sentence 25.0)
regard train t5 --data.pairs tasks.tsv                     your own: source, tab, target
regard train spans --out runs/spans                        pre-training: spans taken out of a text, to be restored
regard train t5 --data.base runs/spans --data.pairs tasks.tsv
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import override
from regard.data.generated.text_tasks import corrupt
from regard.data.sets.batches import IdPair, Stream, pair_collate
from regard.data.sets.running_text import SpansConfig
from regard.data.sets.text_pairs import TasksConfig
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.next_token import next_token
from regard.recipes.translate import pair_epochs
from regard.registry import models, register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, special_ids, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_text
from regard.train.progress import Line

SENTINELS = tuple(f"<extra_id_{i}>" for i in range(32))
TRAIN = from_scratch(steps=2500, batch_tokens=2048, lr=3e-3, warmup=200, every=250, save_every=50, average=2)
"""Training settings: the mean of the last checkpoints is kept."""


@register_recipe("t5", verb="translate", bases=("text-to-text",))
def t5(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small T5, or of the one that the data name as their base."""
    config = override(TasksConfig(), data, under="data.")
    model, train = preset("t5", "tiny", dropout=0.0 if config.embedded else 0.1), TRAIN
    if config.base is not None:
        base = load_model(find(config.base))
        model = base.config
        if (family := models.name_of(type(base))) != "t5":
            raise ValueError(f"{config.base} is a {family}; t5 starts from a T5")
        train = replace(TRAIN, optimizer="adamw", lr=3e-4, schedule="linear")
    return Recipe(name="t5", family="t5", model=model, data=TasksConfig(base=config.base), train=train)


@register_recipe("spans", bases=("text-to-text",))
def spans(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe that pre-trains a small T5 to restore spans taken out of a text."""
    return Recipe(name="spans", family="t5", model=preset("t5", "tiny", dropout=0.0), data=SpansConfig(), train=TRAIN)


@prepare.register
def prepare_tasks(data: TasksConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Texts and answers as ids, fresh in every epoch where they are generated."""
    pairs, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: (t for p in pairs for t in p), out, resume, specials=SENTINELS)
    recipe = with_vocabulary(recipe, tokenizer)
    return pairs_job(recipe, tokenizer, *pair_epochs(data, pairs, held_out, tokenizer, line))


@prepare.register
def prepare_spans(data: SpansConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Windows of a text; every epoch takes other spans out of other windows."""
    text, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: [text], out, resume, specials=SENTINELS)
    recipe = with_vocabulary(recipe, tokenizer).with_data(sha256=data.digest())
    ids, valid_ids = encode_text(tokenizer, text), encode_text(tokenizer, held_out)

    def windows(ids: np.ndarray, epoch: int | str) -> list[IdPair]:
        return corrupt_windows(ids, tokenizer.sentinels, data, random.Random(f"{recipe.train.seed} {epoch}"))

    return pairs_job(recipe, tokenizer, lambda epoch: windows(ids, epoch), windows(valid_ids, "valid"))


def pairs_job(recipe: Recipe, tokenizer: Tokenizer, epochs: Callable[[int], list[IdPair]], valid: list[IdPair]) -> Job:
    """The training of a T5 on pairs of ids; its decoder starts with the padding token."""
    eos, pad = special_ids(tokenizer, "eos", "pad")
    collate = pair_collate(bos=pad, eos=eos, pad_id=pad)
    stream = Stream(epochs, collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=stream, valid=lambda: stream.once(valid),
        objective=next_token, about=f"{len(epochs(0)):,} pairs an epoch",
        generation=dict(bos=pad, eos=eos, pad=pad, beams=1),
    )  # fmt: skip


def corrupt_windows(ids: np.ndarray, sentinels: list[int], data: SpansConfig, rng: random.Random) -> list[IdPair]:
    """Windows of a text with spans taken out, and those spans; of a short text one window."""
    size = data.max_len - 1
    first = rng.randrange(max(1, min(size, len(ids) - size + 1)))
    starts = range(first, max(first, len(ids) - size) + 1, size)
    pairs = []
    for number, start in enumerate(starts, 1):
        window = ids[start : start + size].tolist()
        source, target = corrupt(window, rng, sentinels=sentinels, rate=data.rate, mean_span=data.span)
        pairs.append(IdPair(source, target, number))
    return pairs
