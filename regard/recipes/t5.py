"""T5: several tasks in one model, told apart by what stands before the text.

regard train t5
    translation, languages, dates and summaries: 2,500 steps, 19 minutes of one core; exactly right 99.5 % of held-out
    translations, 97.5 % of languages, 100 % of dates; ROUGE-L of summaries 7.0 (the first sentence of the text: 13.0)
regard train t5 --data.pairs tasks.tsv                     your own: source, tab, target
regard train spans --out runs/spans                        pre-training: spans taken out of a text, to be restored
regard train t5 --data.base runs/spans --data.pairs tasks.tsv
"""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from regard.data.generated.text_tasks import corrupt, tasks
from regard.data.sets.batches import IdPair, Stream, pair_collate
from regard.data.sets.labelled_texts import HELD_OUT
from regard.data.sets.text_pairs import Pairs, PairsConfig
from regard.data.sets.running_text import TextConfig
from regard.hub.adapter import begin_from
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.next_token import next_token
from regard.recipes.lm import encode as encode_text
from regard.recipes.translate import encode
from regard.registry import models, register_recipe
from regard.runs.fit import Job, get_tokenizer, special_ids, prepare, with_vocabulary
from regard.runs.recipe import Recipe
from regard.tokens import Tokenizer
from regard.train.config import TrainConfig
from regard.train.progress import Line

SENTINELS = tuple(f"<extra_id_{i}>" for i in range(32))


@dataclass(frozen=True, kw_only=True, slots=True)
class TasksConfig(PairsConfig):
    """Texts with a task before them, and their answers (nothing given: four embedded tasks)."""

    base: str | None = None
    """A T5 run or checkpoint whose weights and tokenizer to start from."""

    def split(self) -> tuple[Pairs, Pairs]:
        if self.embedded:
            return task_pairs("train", self.epoch_size, 0), task_pairs("valid", HELD_OUT, 0)
        return PairsConfig.split(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpansConfig(TextConfig):
    """Running text, and what is taken out of it."""

    rate: float = 0.15
    """Share of the tokens taken out."""
    span: float = 3.0
    """Mean length of a span, in tokens."""
    max_len: int = 128
    """Tokens of a window."""

    def __post_init__(self) -> None:
        TextConfig.__post_init__(self)
        if not 0 < self.rate < 1 or self.span < 1 or self.max_len < 8:
            raise ValueError("rate must be between 0 and 1, span at least 1, max_len at least 8")


SHARES = {"translate": 8, "language": 3, "date": 4, "summarize": 1}
"""Summaries are long: one in sixteen is already a third of all tokens."""


def task_pairs(split: str, count: int, start: int) -> Pairs:
    return [(one.source, one.target) for one in tasks(split, count, start=start, shares=SHARES)]


TRAIN = TrainConfig(
    steps=2500, batch_tokens=2048, optimizer="muon", lr=3e-3, schedule="trapezoid", warmup=200, smoothing=0.0,
    eval_every=250, save_every=50, average=2,
)  # fmt: skip
"""The last weights are kept, not those of the lowest loss: of a few hundred summaries it soon rises again."""


@register_recipe("t5")
def t5(*, embedded: bool = True, base: str | None = None) -> Recipe:
    model, train = preset("t5", "tiny", dropout=0.0 if embedded else 0.1), TRAIN
    if base is not None:
        model = load_model(find(base)).config
        if not isinstance(model, models["t5"].config_class):
            raise ValueError(f"{base} is a {type(model).__name__.removesuffix('Config')}; t5 starts from a T5")
        train = replace(TRAIN, optimizer="adamw", lr=3e-4, schedule="linear")
    return Recipe(name="t5", family="t5", model=model, data=TasksConfig(vocab_size=1000, base=base), train=train)


@register_recipe("spans")
def spans(*, embedded: bool = True) -> Recipe:
    model = preset("t5", "tiny", dropout=0.0)
    return Recipe(name="spans", family="t5", model=model, data=SpansConfig(vocab_size=2000), train=TRAIN)


@prepare.register
def prepare_tasks(data: TasksConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Pairs of texts, fresh in every epoch where they are generated. The decoder starts with the padding token."""
    pairs, held_out = data.split()
    base = find(data.base) if data.base is not None else None
    if base is not None:
        tokenizer = Tokenizer.load(base)
    else:
        tokenizer = get_tokenizer(data, lambda: (t for p in pairs for t in p), out, resume, specials=SENTINELS)
        recipe = with_vocabulary(recipe, tokenizer)
    first, valid = (encode(some, tokenizer, data.max_len) for some in (pairs, held_out))
    if not first or not valid:
        raise ValueError(f"no pair is shorter than max_len={data.max_len} tokens; raise --data.max-len")
    if dropped := len(pairs) - len(first):
        line.say(f"left out {dropped:,} of {len(pairs):,} pairs: empty, or longer than max_len={data.max_len} tokens")

    def epoch(number: int) -> list[IdPair]:
        if not data.embedded or number == 0:
            return first
        return encode(task_pairs("train", data.epoch_size, number * data.epoch_size), tokenizer, data.max_len)

    job = pairs_job(recipe, tokenizer, Stream(epoch, collate_for(tokenizer), recipe.train.batch_tokens), valid)
    if base is None:
        return job
    return replace(job, build=lambda recipe: begin_from(load_model(base), recipe.model))


@prepare.register
def prepare_spans(data: SpansConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Every epoch takes other spans out of other windows."""
    text, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: [text], out, resume, specials=SENTINELS)
    recipe = with_vocabulary(recipe, tokenizer).with_data(sha256=data.digest())
    ids, valid_ids = encode_text(tokenizer, text), encode_text(tokenizer, held_out)

    def epoch(number: int) -> list[IdPair]:
        return restored(ids, tokenizer.sentinels, data, random.Random(f"{recipe.train.seed} {number}"))

    valid = restored(valid_ids, tokenizer.sentinels, data, random.Random(f"{recipe.train.seed} valid"))
    return pairs_job(recipe, tokenizer, Stream(epoch, collate_for(tokenizer), recipe.train.batch_tokens), valid)


def collate_for(tokenizer: Tokenizer):  # noqa: ANN201  what pair_collate returns
    eos, pad = special_ids(tokenizer, "eos", "pad")
    return pair_collate(bos=pad, eos=eos, pad_id=pad)


def pairs_job(recipe: Recipe, tokenizer: Tokenizer, stream: Stream, valid: list[IdPair]) -> Job:
    eos, pad = special_ids(tokenizer, "eos", "pad")
    stream = replace(stream, seed=recipe.train.seed)
    return Job(
        recipe=recipe, tokenizer=tokenizer, stream=stream, valid=lambda: stream.once(valid), objective=next_token,
        about=f"{len(stream.epoch(0)):,} pairs an epoch", generation=dict(bos=pad, eos=eos, pad=pad, beams=1),
    )  # fmt: skip


def restored(ids: np.ndarray, sentinels: list[int], data: SpansConfig, rng: random.Random) -> list[IdPair]:
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
