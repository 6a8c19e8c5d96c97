"""Seconds to a validation loss: the lm recipe beside a plain GPT-2-style one, on the same text in one run.

    python benchmarks/time_to_loss.py input.txt [--target 1.88] [--rounds 1] [--json]

nanoGPT's CPU setting for tiny Shakespeare: characters, 4 layers, 4 heads, 128 wide, no dropout, the first nine tenths
to learn from and the last one to be judged by. "plain" is GPT-2's architecture (learned positions, LayerNorm, GELU,
tied) with AdamW and a cosine over 2,000 steps; "recipe" is what `regard train lm` takes, over fewer steps (--recipe
tries other settings). Both have a context of 64 and 12 rows, and train in turns of a few seconds, so that a noisy
machine disturbs both alike. Seconds are of training only; at the end of each turn a sample of the held-out text says
whether to judge on all of it.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.sets.batches import TextStream, text_batches
from regard.models import build
from regard.objectives.next_token import next_token
from regard.recipes import recipe
from regard.runs.recipe import Recipe
from regard.train.loop import evaluate
from regard.train.optim import build_optimizers
from regard.train.schedule import SCHEDULES

PLAIN = {
    "model.position": "learned", "model.norm": "layer", "model.activation": "gelu-tanh", "model.kernel": "full",
    "model.bias": "true", "model.zero_init": "false", "model.tie": "true", "model.max_len": "64",
    "train.optimizer": "adamw", "train.batch_tokens": "768", "train.steps": "2000", "train.lr": "1e-3",
    "train.schedule": "cosine", "train.warmup": "100", "train.beta2": "0.99", "train.weight_decay": "0.1",
}  # fmt: skip
RECIPE = {"model.max_len": "64", "train.batch_tokens": "768", "train.steps": "370"}
SAMPLE = 1 << 14


@dataclass
class Contestant:
    """A model in training, and how far it came."""

    recipe: Recipe
    ids: np.ndarray
    held_out: np.ndarray
    step: int = 0
    seconds: float = 0.0
    losses: list[tuple[int, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        config, context = self.recipe.train, self.recipe.model.max_len
        torch.manual_seed(config.seed)
        self.model: Any = build(self.recipe.family, self.recipe.model).train()
        self.parameters = list(self.model.parameters())
        self.optimizers = build_optimizers(
            self.model, name=config.optimizer, lr=config.lr, betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )  # fmt: skip
        self.batches = TextStream(self.ids, context, config.batch_tokens // context, seed=config.seed).batches()

    def train(self, seconds: float) -> None:
        """Steps as the training loop does them, for about so many seconds."""
        config, started = self.recipe.train, time.perf_counter()
        self.model.train()
        while self.step < config.steps and time.perf_counter() - started < seconds:
            factor = SCHEDULES[config.schedule](self.step + 1, config.warmup, self.step / config.steps)
            for group in [group for optimizer in self.optimizers for group in optimizer.param_groups]:
                group["lr"] = config.lr * factor
            summed, count = next_token(self.model, next(self.batches)[2])
            (summed / count).backward()
            nn.utils.clip_grad_norm_(self.parameters, config.clip)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            self.step += 1
        self.seconds += time.perf_counter() - started

    def judge(self, target: float) -> float:
        """Validation loss: of a sample where that is far from the target, otherwise of everything."""
        context = self.recipe.model.max_len
        for ids, near in ((self.held_out[:SAMPLE], 0.08), (self.held_out, 0.0)):
            loss = evaluate(self.model, text_batches(ids, context, 8192 // context), next_token)
            if loss > target + near and self.step < self.recipe.train.steps:
                break
        self.losses.append((self.step, self.seconds, loss))
        return loss


def race(contestants: dict[str, Contestant], target: float, turn: float) -> None:
    """Turns until each has reached the target or the end of its schedule."""
    running = dict(contestants)
    while running:
        for name, contestant in list(running.items()):
            contestant.train(turn)
            loss = contestant.judge(target)
            say(f"{name:8} step {contestant.step:>5}  {contestant.seconds:6.1f} s  validation loss {loss:.4f}")
            if loss <= target or contestant.step >= contestant.recipe.train.steps:
                del running[name]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--target", type=float, default=1.88)
    parser.add_argument("--rounds", type=int, default=1, help="each with another seed")
    parser.add_argument("--turn", type=float, default=4.0, help="seconds of training before the other's turn")
    parser.add_argument("--recipe", nargs="*", default=[], metavar="FIELD=VALUE", help="changes to the recipe")
    parser.add_argument("--only", choices=["plain", "recipe"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    text = options.text.read_text(encoding="utf-8")
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    ids = np.array([letters[letter] for letter in text], dtype=np.int64)
    learned, held_out = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
    shape = {"model.vocab_size": str(len(letters)), "model.dropout": "0.0"}
    settings = {"plain": PLAIN, "recipe": RECIPE | dict(change.split("=", 1) for change in options.recipe)}
    rows = []
    for seed in range(options.rounds):
        contestants = {
            name: Contestant(recipe("lm", changes | {"train.seed": str(seed)}, stored=shape), learned, held_out)
            for name, changes in settings.items() if options.only in (None, name)
        }  # fmt: skip
        race(contestants, options.target, options.turn)
        row: dict[str, Any] = {name: dict(zip(("step", "seconds", "loss"), c.losses[-1], strict=True))
                               for name, c in contestants.items()}  # fmt: skip
        if len(row) == 2:
            row["ratio"] = row["recipe"]["seconds"] / row["plain"]["seconds"]
            say(f"seed {seed}: the recipe takes {row['ratio']:.2f} of the plain one's time to {options.target}")
        rows.append(row)
    if options.only is None:
        say(f"median of {len(rows)}: {statistics.median(row['ratio'] for row in rows):.2f}")
    if options.json:
        print(json.dumps({"target": options.target, "threads": torch.get_num_threads(), "rounds": rows}))


if __name__ == "__main__":
    main()
