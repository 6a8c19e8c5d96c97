"""Tasks about texts: labels, tags, answers, likeness, instructions; from nothing, or from trained weights.

regard train classify       which of 13 languages, from names: 400 steps, two minutes of one core, 97.3 % right
regard train tag            dates, places, amounts, names in sentences: 1,000 steps, five minutes, F1 97.9
regard train answer         questions about a passage: 1,800 steps, 14 minutes, 99.6 % exactly right
regard train embed          paraphrases: 600 steps
regard train instruct       answers to prompts, here dates: 1,000 steps
regard finetune CHECKPOINT --task classify --data.train train.tsv --data.valid dev.tsv
    SST-2 with MiniLM: see benchmarks/sst2.py
"""

from dataclasses import replace
from typing import Any

from regard.data.sets.labelled_texts import ExamplesConfig
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import preset
from regard.registry import models, register_recipe
from regard.runs.recipe import Recipe
from regard.train.config import TrainConfig

HEADS = {"classify": "classify", "tag": "tag", "answer": "answer", "embed": "none"}
"""The head that each task needs."""


def task_recipe(task: Any, *, embedded: bool, base: str | None) -> Recipe:
    """From nothing a small encoder and Muon; from trained weights their own config, and small steps of AdamW."""
    if base is not None:
        family, config = start_config(base, task)
        train = TrainConfig(
            epochs=3.0, batch_tokens=1024, schedule="linear", warmup=100, smoothing=0.0, beta2=0.999,
            eval_every=100, save_every=500,
        )  # fmt: skip
        return Recipe(name=task, family=family, model=config, data=ExamplesConfig(task=task, base=base), train=train)
    model, fields, pace = FROM_NOTHING[task]
    family = "gpt" if task == "instruct" else "bert"
    config = preset(family, "tiny", dropout=0.0 if embedded else 0.1, max_len=256, **model)
    train = TrainConfig(
        **dict(batch_tokens=2048, lr=2e-3) | pace, optimizer="muon", schedule="trapezoid", warmup=100, smoothing=0.0,
        eval_every=200, save_every=200,
    )  # fmt: skip
    return Recipe(name=task, family=family, model=config, data=ExamplesConfig(task=task, **fields), train=train)


FROM_NOTHING: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "classify": (dict(task="classify"), dict(vocab_size=2000), dict(steps=400)),
    # Names that training never showed are found by what stands around them, so some words are hidden in training.
    "tag": (dict(task="tag", pooler=False), dict(vocab_size=800, hidden=0.25), dict(steps=1000)),
    # The end of an answer depends on where it starts: distances matter more than places.
    "answer": (
        dict(task="answer", pooler=False, position="rotary", norm_place="pre"), dict(vocab_size=1000),
        dict(steps=1800, batch_tokens=3072, lr=4e-3),
    ),
    "embed": (dict(task="none", pooler=False), dict(vocab_size=1000), dict(steps=600)),
    "instruct": ({}, dict(vocab_size=1000), dict(steps=1000)),
}  # fmt: skip
"""What differs for each task that starts from nothing: model, data, training."""


def start_config(base: str, task: str) -> tuple[str, Any]:
    """The family and config of a model that starts from a checkpoint, with the head that the task needs."""
    model: Any = load_model(find(base))
    family = models.name_of(type(model))
    if task == "instruct":
        if family != "gpt":
            raise ValueError(f"{base} is a {family}; instructions are for models that continue texts, such as gpt")
        return family, model.config
    if family != "bert":
        raise ValueError(
            f"{base} is a {family}; {task} needs an encoder such as bert (a model that writes can be "
            "tuned with --task instruct, or prompted with `regard eval --few-shot`)"
        )
    return family, replace(model.config, task=HEADS[task], labels=(), pooler=model.config.pooler or task == "classify")


@register_recipe("classify")
def classify(*, embedded: bool = True, base: str | None = None) -> Recipe:
    return task_recipe("classify", embedded=embedded, base=base)


@register_recipe("tag")
def tag(*, embedded: bool = True, base: str | None = None) -> Recipe:
    return task_recipe("tag", embedded=embedded, base=base)


@register_recipe("answer")
def answer(*, embedded: bool = True, base: str | None = None) -> Recipe:
    return task_recipe("answer", embedded=embedded, base=base)


@register_recipe("embed")
def embed(*, embedded: bool = True, base: str | None = None) -> Recipe:
    return task_recipe("embed", embedded=embedded, base=base)


@register_recipe("instruct")
def instruct(*, embedded: bool = True, base: str | None = None) -> Recipe:
    return task_recipe("instruct", embedded=embedded, base=base)
