"""From examples of a task to batches: what is read, and what is to be said about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import nearest
from regard.data.sets.batches import IGNORE, Batch, IdPair, Stream, pad
from regard.data.sets.labelled import Examples, ExamplesConfig
from regard.hub.adapter import begin_from, save_adapter, tune
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.objectives.labels import similarity, span, text_labels, token_labels
from regard.objectives.next_token import next_token
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe
from regard.tasks.language_model import front_of
from regard.tasks.text_encoder import text_inputs as read
from regard.tasks.text_heads import first_tokens
from regard.tokens import Framed, Tokenizer
from regard.train.progress import Line

RATES = {"all": 1e-4, "head": 4e-3, "lora": 2e-3}
"""What is small or starts at zero can take larger steps."""
OBJECTIVES = {
    "classify": text_labels, "tag": token_labels, "answer": span, "embed": similarity, "instruct": next_token,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """One or two framed texts, and what is to be said: a class, a tag for each token, two ends, or a likeness."""

    frames: tuple[Framed, ...]
    target: Any
    number: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return (max(map(len, self.frames)) * len(self.frames),)


@prepare.register
def prepare_examples(data: ExamplesConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Encodes the examples for their task; a label of the validation examples must occur in training."""
    examples, held_out = data.split()
    base = find(data.base) if data.base is not None else None
    if base is not None and data.tokenizer is None:
        tokenizer = Tokenizer.load(base)
    else:
        tokenizer = get_tokenizer(data, lambda: texts_of(examples), out, resume, specials=("<mask>",))
    recipe = with_vocabulary(recipe, tokenizer) if base is None else recipe
    if len(tokenizer) > recipe.model.vocab_size:
        raise ValueError(
            f"{data.tokenizer or base} has {len(tokenizer):,} tokens, the model {recipe.model.vocab_size:,}; use its"
        )
    labels = labels_of(data.task, examples)
    if labels:
        recipe = replace(recipe, model=replace(recipe.model, labels=labels))
        check_labels(data, labels, held_out)
    config = recipe.model
    encode = partial(ENCODERS[data.task], tokenizer=tokenizer, config=config, max_len=min(data.max_len, config.max_len))
    first, valid = encode(examples), encode(held_out)

    if dropped := len(examples) - len(first):
        line.say(f"left out {dropped:,} of {len(examples):,} examples: longer than {data.max_len} tokens")
    if data.hidden and tokenizer.mask is None:
        raise ValueError("words cannot be hidden: the tokenizer has no mask token; leave out --data.hidden")

    def epoch(number: int) -> Sequence[Any]:
        examples = first if number == 0 or not data.embedded else encode(data.generated("train", number))
        rng = np.random.default_rng((recipe.train.seed, number, 1))
        return [hide_words(one, data.hidden, tokenizer.mask, rng) for one in examples] if data.hidden else examples

    gather = collate_instructions if data.task == "instruct" else collate_readings
    collate = partial(gather, tokenizer=tokenizer, config=config, task=data.task)
    stream = Stream(epoch, collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    how: dict[str, Any] = {}
    if base is not None and recipe.train.lr is None:
        recipe = replace(recipe, train=replace(recipe.train, lr=RATES[data.tune]))
    if base is not None:
        how["build"] = lambda recipe: tuned(begin_from(load_model(base), recipe.model), data)
    if base is not None and data.tune != "all":
        how["publish"] = partial(save_adapter, base=base, how=data.tune, rank=data.rank)
    if data.task == "instruct":
        pad_id, eos = tokenizer.pad, tokenizer.eos
        how["generation"] = dict(
            bos=None, eos=eos, pad=pad_id, beams=1, max_len=config.max_len, force_end=False, prompt_end=PROMPT_END
        )
    return Job(
        recipe=recipe, tokenizer=tokenizer, stream=stream, valid=lambda: stream.once(valid),
        objective=OBJECTIVES[data.task], about=f"{len(first):,} examples an epoch", **how,
    )  # fmt: skip


def hide_words(reading: Reading, share: float, mask: int | None, rng: np.random.Generator) -> Reading:
    """The same with some words shown as the mask."""
    frames = []
    for framed in reading.frames:
        words = list(zip(framed.side, framed.words, strict=True))
        gone = {word for word in sorted({w for w in words if w[1] is not None}) if rng.random() < share}
        ids: list[Any] = [mask if word in gone else id for id, word in zip(framed.ids, words, strict=True)]
        frames.append(replace(framed, ids=ids))
    return replace(reading, frames=tuple(frames))


def tuned(model: Any, data: ExamplesConfig) -> Any:
    tune(model, data.tune, data.rank)
    return model


def texts_of(examples: Examples) -> Iterator[str]:
    """Everything that can be read in examples, to train a tokenizer on."""
    for example in examples:
        for name in ("text", "second", "question", "passage", "a", "b", "prompt", "answer"):
            if isinstance(text := getattr(example, name, None), str):
                yield text


def labels_of(task: str, examples: Examples) -> tuple[str, ...]:
    """The labels in order; tags begin (B-) or go on (I-), and O is none."""
    if task == "classify":
        return tuple(sorted({example.label for example in examples}))
    if task == "tag":
        kinds = sorted({entity.label for example in examples for entity in example.entities})
        return ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
    return ()


def check_labels(data: ExamplesConfig, labels: tuple[str, ...], held_out: Examples) -> None:
    """A label that training never shows cannot be right: it is named with its file and line."""
    for example in held_out:
        own = [example.label] if data.task == "classify" else [f"B-{entity.label}" for entity in example.entities]
        for label in own:
            if label not in labels:
                where = f"{data.valid or data.train}, line {example.line}: " if example.line else ""
                name = label if data.task == "classify" else label[2:]
                known = [label.removeprefix("B-") for label in labels if not label.startswith("I-") and label != "O"]
                if data.valid is None:
                    raise ValueError(f"{where}held out, but no other example has the label {name!r}; give --data.valid")
                raise ValueError(f"{where}label {name!r} does not occur in {data.train}; {nearest(name, known)}")


# ---- each task: examples → readings → a batch -------------------------------------------------------------------


def encode_texts(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[Reading]:
    """Labelled texts, or pairs of texts."""
    frames = tokenizer.frame(*sides_of(examples), max_len=max_len)
    place = {label: i for i, label in enumerate(config.labels)}
    return [Reading((f,), place[e.label], i) for i, (f, e) in enumerate(zip(frames, examples, strict=True), 1)]


def sides_of(examples: Examples) -> tuple[list[str], list[str] | None]:
    """The first texts and, where some example has one, the second ones."""
    pairs = any(example.second is not None for example in examples)
    return [e.text for e in examples], [e.second or "" for e in examples] if pairs else None


def encode_tags(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[Reading]:
    """The first token of each word carries its tag."""
    place = {label: i for i, label in enumerate(config.labels)}
    frames = tokenizer.frame([example.text for example in examples], max_len=max_len)
    readings = []
    for number, (framed, example) in enumerate(zip(frames, examples, strict=True), 1):
        target = [IGNORE] * len(framed)
        for tokens in first_tokens(framed).values():
            target[tokens[0]] = place[tag_of(framed.offsets[tokens[0]], example.entities)]
        readings.append(Reading((framed,), target, number))
    return readings


def tag_of(place: tuple[int, int] | None, entities: Sequence[Any]) -> str:
    """The tag of the word that begins at a place: B where an entity begins with it, I inside one, else O."""
    assert place is not None
    for entity in entities:
        if entity.start <= place[0] < entity.end:
            return f"{'B' if place[0] == entity.start else 'I'}-{entity.label}"
    return "O"


def encode_questions(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[Reading]:
    """The first and last token of the answer; the very first token of all stands for "no answer"."""
    frames = tokenizer.frame([e.question for e in examples], [e.passage for e in examples], max_len=max_len)
    readings = []
    for number, (framed, example) in enumerate(zip(frames, examples, strict=True), 1):
        ends = (0, 0)
        if example.answer is not None:
            start, end = example.start, example.start + len(example.answer)
            inside = [
                token
                for token, (offset, side) in enumerate(zip(framed.offsets, framed.side, strict=True))
                if side == 1 and offset is not None and offset[0] < end and offset[1] > start
            ]
            ends = (inside[0], inside[-1]) if inside else ends  # cut away: this reading does not answer
        readings.append(Reading((framed,), ends, number))
    return readings


def encode_similar(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[Reading]:
    sides = [tokenizer.frame([getattr(e, side) for e in examples], max_len=max_len) for side in ("a", "b")]
    frames = zip(*sides, strict=True)
    return [Reading(pair, e.score, i) for i, (e, pair) in enumerate(zip(examples, frames, strict=True), 1)]


def encode_instructions(examples: Examples, *, tokenizer: Tokenizer, config: Any, max_len: int) -> list[IdPair]:
    """Prompt and answer as one text with its end, begun as the model's texts begin; what is too long is left out."""
    begin = front_of(tokenizer)
    fronts = [[*begin, *ids] for ids in tokenizer.encode_batch([e.prompt + PROMPT_END for e in examples])]
    backs = tokenizer.encode_batch([example.answer for example in examples])
    pairs = [IdPair(front, back, i) for i, (front, back) in enumerate(zip(fronts, backs, strict=True), 1)]
    kept = [pair for pair in pairs if sum(pair.sizes) <= max_len]
    if not kept:
        raise ValueError(f"no prompt with its answer fits into {max_len} tokens; raise --data.max-len")
    return kept


def collate_readings(readings: Sequence[Reading], *, tokenizer: Tokenizer, config: Any, task: str) -> Batch:
    frames = [reading.frames[side] for side in range(len(readings[0].frames)) for reading in readings]
    targets = [reading.target for reading in readings]
    tensor = pad(targets, IGNORE) if task == "tag" else torch.tensor(targets)
    return Batch(read(frames, tokenizer, config), tensor, tuple(reading.number for reading in readings))


def collate_instructions(pairs: Sequence[IdPair], *, tokenizer: Tokenizer, config: Any, task: str) -> Batch:
    """The loss is on the answer and its end alone."""
    eos = tokenizer.eos
    assert eos is not None
    rows = [[*pair.source, *pair.target] for pair in pairs]
    targets = [[*[IGNORE] * (len(pair.source) - 1), *pair.target, eos] for pair in pairs]
    return Batch({"ids": pad(rows, 0)}, pad(targets, IGNORE), tuple(pair.number for pair in pairs))


PROMPT_END = "\n"
"""What stands between a prompt and its answer."""

ENCODERS: dict[str, Any] = {
    "classify": encode_texts, "tag": encode_tags, "answer": encode_questions, "embed": encode_similar,
    "instruct": encode_instructions,
}  # fmt: skip
