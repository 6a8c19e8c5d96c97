"""Tasks about texts: labels, tags, answers, similarity, instructions; from scratch, or from trained weights.

regard train classify       which of 13 languages, from names: 400 steps, two minutes of one core, 97.3 % right
regard train tag            dates, places, amounts, names in sentences: 1,000 steps, five minutes, F1 97.9
regard train answer         questions about a passage: 1,800 steps, 14 minutes, 99.6 % exactly right
regard train embed          paraphrases: 600 steps
regard train instruct       answers to prompts, here dates: 1,000 steps
regard finetune CHECKPOINT --task classify --data.train train.tsv --data.valid dev.tsv
    from 100 examples on: see docs/first-hour.md; SST-2 with MiniLM: see benchmarks/sst2.py
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import nearest, override
from regard.data.sets.batches import IGNORE, Batch, IdPair, Stream, pad
from regard.data.sets.labelled_texts import TEXTS, Examples, ExamplesConfig, Size, labels_of, sides_of, tag_of
from regard.hub.adapter import begin_from
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.labels import similarity, span, text_labels, token_labels
from regard.objectives.next_token import next_token
from regard.registry import models, register_recipe
from regard.runs.choice import Whole
from regard.runs.fit import Job, from_base, get_tokenizer, prepare, with_vocabulary
from regard.runs.linear_probe import probe
from regard.runs.pace import paced, rows_of, share_held_out
from regard.runs.recipe import Recipe, from_scratch
from regard.tasks.language_model import front_of
from regard.tasks.text_encoder import text_inputs as read
from regard.tasks.text_heads import first_tokens
from regard.tokens import Framed, Tokenizer
from regard.train.config import TrainConfig
from regard.train.progress import Line

RATES = {"all": 1e-4, "head": 4e-3, "lora": 2e-3}
"""Learning rates from trained weights; what is small or initialised to zero can take larger steps."""
LEAST = 250
"""Fewest updates of a pretrained model: of few examples, more passes. A choice for minutes of CPU, not an optimum."""
FEW_EXAMPLES = 1000
"""Most examples for which a linear probe is trained beside, and which are all trained on after validation."""
CHARACTERS, SPECIAL = 4.0, 3
"""About the characters of a token, and the special tokens around a text."""
FEW, CONTRASTED = 8, 16
"""Fewest examples in a batch, and where the other texts of a batch are the contrast."""
OBJECTIVES = {
    "classify": text_labels, "tag": token_labels, "answer": span, "embed": similarity, "instruct": next_token,
}  # fmt: skip
HEADS = {"classify": "classify", "tag": "tag", "answer": "answer", "embed": "none"}
"""The model head that each task needs."""


def task_recipe(task: Any, fields: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a task: a small encoder trained with Muon from scratch, or a pretrained model fine-tuned
    with AdamW."""
    data = override(ExamplesConfig(task=task), fields, under="data.")
    size = None if data.embedded else data.size()
    named = "valid" in data.parts  # by a field, or by the folder that holds it
    held: dict[str, Any] = {} if size is None or named else {"held_share": share_held_out(size.count)}
    if data.base is not None:
        family, config = start_config(data.base, task)
        train = TrainConfig(
            epochs=3.0, min_steps=LEAST, batch_tokens=1024, schedule="linear", warmup=0.1, smoothing=0.0, beta2=0.999,
            eval_every=100, save_every=500,
        )  # fmt: skip
        if not data.embedded:
            held |= {"probe": FEW_EXAMPLES} if task == "classify" and data.tune == "all" else {}
            held |= {"refit": FEW_EXAMPLES} if task != "instruct" and "valid" not in data.parts else {}
        examples = ExamplesConfig(task=task, base=data.base, **held)
        return Recipe(name=task, family=family, model=config, data=examples, train=fitting(train, size, data, LEAST))
    model, defaults, pace = FROM_SCRATCH[task]
    family = "gpt" if task == "instruct" else "bert"
    config = preset(family, "tiny", dropout=0.0 if data.embedded else 0.1, max_len=256, **model)
    train = from_scratch(**dict(batch_tokens=2048, lr=2e-3, every=200) | pace)
    examples = ExamplesConfig(task=task, **defaults, **held)
    train = fitting(train, size, data, train.steps)
    return Recipe(name=task, family=family, model=config, data=examples, train=train)


def fitting(train: TrainConfig, size: Size | None, data: ExamplesConfig, least: int) -> TrainConfig:
    """The training with batches, passes and validations that fit the number and the length of the user's examples."""
    if size is None:
        return train
    named = "valid" in data.parts
    held = size.held_out if named else round(share_held_out(size.count) * size.count)
    count = size.count if named else size.count - held
    length = min(size.characters / CHARACTERS + SPECIAL, data.max_len)
    if data.base is not None:
        rows = rows_of(count, CONTRASTED if data.task == "embed" else FEW)
        train = replace(train, batch_tokens=max(64, round(rows * length)))
    return replace(train, **paced(count, held, train.batch_tokens / length, epochs=3.0, least=least))


FROM_SCRATCH: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "classify": (dict(task="classify"), dict(vocab_size=2000), dict(steps=400)),
    # Names that do not occur in training are found by their context, so some words are masked in training.
    "tag": (dict(task="tag", pooler=False), dict(vocab_size=800, hidden=0.25), dict(steps=1000)),
    # The end of an answer depends on where it starts: distances matter more than positions.
    "answer": (
        dict(task="answer", pooler=False, position="rotary", norm_place="pre"), dict(vocab_size=1000),
        dict(steps=1800, batch_tokens=3072, lr=4e-3),
    ),
    "embed": (dict(task="none", pooler=False), dict(vocab_size=1000), dict(steps=600)),
    "instruct": ({}, dict(vocab_size=1000), dict(steps=1000)),
}  # fmt: skip
"""Fields of model, data and training that differ between the tasks, from scratch."""


def start_config(base: str, task: str) -> tuple[str, Any]:
    """The family and config of a model that starts from a checkpoint, with the head that the task needs."""
    model: Any = load_model(find(base))
    family = models.name_of(type(model))
    if task == "instruct":
        if family != "gpt":
            raise ValueError(f"{base} is a {family}; instructions are for language models, such as gpt")
        return family, model.config
    if family != "bert":
        raise ValueError(
            f"{base} is a {family}; {task} needs an encoder such as bert (a language model can be "
            "tuned with --task instruct, or prompted with `regard eval --few-shot`)"
        )
    return family, replace(model.config, task=HEADS[task], labels=(), pooler=model.config.pooler or task == "classify")


ENCODERS_OF_TEXT = ("fill", "embed", "classify", "tag", "answer")
"""Tasks of models that can learn another task of encoders."""
for _task in FROM_SCRATCH:
    _bases = ("generate",) if _task == "instruct" else ENCODERS_OF_TEXT
    register_recipe(_task, asked=_bases, out=_task)(lambda data, task=_task: task_recipe(task, data))


@dataclass(frozen=True, slots=True)
class TextExample:
    """One or two framed texts, and their target: a class, a tag for each token, two ends, or a similarity."""

    frames: tuple[Framed, ...]
    target: Any
    number: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return (max(map(len, self.frames)) * len(self.frames),)


@prepare.register
def prepare_examples(data: ExamplesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Examples as ids for their task; a label of the validation examples must occur in training."""
    examples, held_out = data.split()
    base = find(data.base) if data.base is not None else None
    if base is not None and data.tokenizer is None:
        tokenizer = Tokenizer.load(base)
    else:
        tokenizer = get_tokenizer(data, lambda: texts_of(examples), out, resume, specials=("<mask>",))
    recipe = with_vocabulary(recipe, tokenizer)
    labels = labels_of(data.task, examples)
    if labels:
        recipe = replace(recipe, model=replace(recipe.model, labels=labels))
        if data.task == "classify" and len(labels) < 2:
            raise ValueError(f"{data.train}: all examples have the label {labels[0]!r}; give examples of another, too")
        check_labels(data, labels, held_out)
    config = recipe.model
    encode = partial(ENCODERS[data.task], tokenizer=tokenizer, config=config, max_len=min(data.max_len, config.max_len))
    first, valid = encode(examples), encode(held_out)

    if dropped := len(examples) - len(first):
        line.say(f"left out {dropped:,} of {len(examples):,} examples: longer than {data.max_len} tokens")
    if data.hidden and tokenizer.mask is None:
        raise ValueError("words cannot be hidden: the tokenizer has no mask token; leave out --data.hidden")

    def epoch(number: int, own: Sequence[Any] = first) -> Sequence[Any]:
        examples = own if number == 0 or not data.embedded else encode(data.generated("train", number))
        rng = np.random.default_rng((recipe.train.seed, number, 1))
        return (
            [mask_words(example, data.hidden, tokenizer.mask, rng) for example in examples] if data.hidden else examples
        )

    gather = collate_instructions if data.task == "instruct" else collate_texts
    collate = partial(gather, tokenizer=tokenizer, config=config, task=data.task)
    stream = Stream(epoch, collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    recipe, options = from_base(recipe, data, RATES)
    if data.task == "instruct":
        pad_id, eos = tokenizer.pad, tokenizer.eos
        options["generation"] = dict(
            bos=None, eos=eos, pad=pad_id, beams=1, max_len=config.max_len, force_end=False, prompt_end=PROMPT_END
        )
    every = [*first, *valid]
    if base is not None and data.task == "classify" and data.tune == "all" and len(every) <= data.probe:
        headed = replace(config, pooler=False)
        options["rival"] = lambda whole: probe(
            begin_from(load_model(base), headed), stream.once(every if whole else first)
        )
    # A budget of time is the user's; a file for validation stays out of training.
    if len(every) <= data.refit and recipe.train.minutes is None and "valid" not in data.parts:
        whole = replace(stream, epoch=partial(epoch, own=every))
        options["whole"] = Whole(stream=whole, examples=len(every), held_out=len(valid))
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=stream, valid=lambda: stream.once(valid),
        objective=OBJECTIVES[data.task], about=f"{len(first):,} examples an epoch", **options,
    )  # fmt: skip


def mask_words(example: TextExample, share: float, mask: int | None, rng: np.random.Generator) -> TextExample:
    """An example with some of its words replaced by the mask token."""
    frames = []
    for framed in example.frames:
        words = list(zip(framed.side, framed.words, strict=True))
        gone = {word for word in sorted({w for w in words if w[1] is not None}) if rng.random() < share}
        ids: list[Any] = [mask if word in gone else id for id, word in zip(framed.ids, words, strict=True)]
        frames.append(replace(framed, ids=ids))
    return replace(example, frames=tuple(frames))


def texts_of(examples: Examples) -> Iterator[str]:
    """All texts of examples, to train a tokenizer on."""
    for example in examples:
        for name in TEXTS:
            if isinstance(text := getattr(example, name, None), str):
                yield text


def check_labels(data: ExamplesConfig, labels: tuple[str, ...], held_out: Examples) -> None:
    """Raise an error that names file and line if a validation example has a label that training lacks."""
    train, valid = (data.parts.get(part) for part in ("train", "valid"))
    for example in held_out:
        own = [example.label] if data.task == "classify" else [f"B-{entity.label}" for entity in example.entities]
        for label in own:
            if label not in labels:
                where = f"{valid or train}, line {example.line}: " if example.line else ""
                name = label if data.task == "classify" else label[2:]
                known = [label.removeprefix("B-") for label in labels if not label.startswith("I-") and label != "O"]
                if valid is None:
                    raise ValueError(f"{where}held out, but no other example has the label {name!r}; give --data.valid")
                raise ValueError(f"{where}label {name!r} does not occur in {train}; {nearest(name, known)}")


# ---- each task: examples → framed texts with targets → a batch --------------------------------------------------


def encode_texts(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[TextExample]:
    """Labelled texts, or pairs of texts, with the index of their label."""
    frames = tokenizer.frame(*sides_of(examples), max_len=max_len)
    place = {label: i for i, label in enumerate(config.labels)}
    return [TextExample((f,), place[e.label], i) for i, (f, e) in enumerate(zip(frames, examples, strict=True), 1)]


def encode_tags(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[TextExample]:
    """Texts with a tag for the first token of each word."""
    place = {label: i for i, label in enumerate(config.labels)}
    frames = tokenizer.frame([example.text for example in examples], max_len=max_len)
    encoded = []
    for number, (framed, example) in enumerate(zip(frames, examples, strict=True), 1):
        target = [IGNORE] * len(framed)
        for tokens in first_tokens(framed).values():
            target[tokens[0]] = place[tag_of(framed.offsets[tokens[0]], example.entities)]
        encoded.append(TextExample((framed,), target, number))
    return encoded


def encode_questions(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[TextExample]:
    """Questions with the first and last token of the answer; both are token 0 where there is no answer."""
    frames = tokenizer.frame([e.question for e in examples], [e.passage for e in examples], max_len=max_len)
    encoded = []
    for number, (framed, example) in enumerate(zip(frames, examples, strict=True), 1):
        ends = (0, 0)
        if example.answer is not None:
            start, end = example.start, example.start + len(example.answer)
            inside = [
                token
                for token, (offset, side) in enumerate(zip(framed.offsets, framed.side, strict=True))
                if side == 1 and offset is not None and offset[0] < end and offset[1] > start
            ]
            ends = (inside[0], inside[-1]) if inside else ends  # cut away: this part of the passage has no answer
        encoded.append(TextExample((framed,), ends, number))
    return encoded


def encode_similar(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[TextExample]:
    """Encode pairs of texts, with their similarity as the target."""
    sides = [tokenizer.frame([getattr(e, side) for e in examples], max_len=max_len) for side in ("a", "b")]
    frames = zip(*sides, strict=True)
    return [TextExample(pair, e.score, i) for i, (e, pair) in enumerate(zip(examples, frames, strict=True), 1)]


def encode_instructions(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[IdPair]:
    """Prompts and answers as ids, after the special tokens that texts begin with; long ones are left out."""
    begin = front_of(tokenizer)
    fronts = [[*begin, *ids] for ids in tokenizer.encode_batch([e.prompt + PROMPT_END for e in examples])]
    backs = tokenizer.encode_batch([example.answer for example in examples])
    pairs = [IdPair(front, back, i) for i, (front, back) in enumerate(zip(fronts, backs, strict=True), 1)]
    kept = [pair for pair in pairs if sum(pair.sizes) <= max_len]
    if not kept:
        raise ValueError(f"no prompt with its answer fits into {max_len} tokens; raise --data.max-len")
    return kept


def collate_texts(examples: Sequence[TextExample], *, tokenizer: Tokenizer, config: Any, task: str) -> Batch:
    """A batch of framed texts; of pairs, all first texts above all second ones."""
    frames = [example.frames[side] for side in range(len(examples[0].frames)) for example in examples]
    targets = [example.target for example in examples]
    tensor = pad(targets, IGNORE) if task == "tag" else torch.tensor(targets)
    return Batch(read(frames, tokenizer, config), tensor, tuple(example.number for example in examples))


def collate_instructions(pairs: Sequence[IdPair], *, tokenizer: Tokenizer, config: Any, task: str) -> Batch:
    """A batch of prompts with answers; only the answers and their ends are targets."""
    eos = tokenizer.eos
    assert eos is not None
    rows = [[*pair.source, *pair.target] for pair in pairs]
    targets = [[*[IGNORE] * (len(pair.source) - 1), *pair.target, eos] for pair in pairs]
    return Batch({"ids": pad(rows, 0)}, pad(targets, IGNORE), tuple(pair.number for pair in pairs))


PROMPT_END = "\n"
"""The text between a prompt and its answer."""

ENCODERS: dict[str, Any] = {
    "classify": encode_texts, "tag": encode_tags, "answer": encode_questions, "embed": encode_similar,
    "instruct": encode_instructions,
}  # fmt: skip
