"""Training speed of a GPT beside a plain PyTorch one and Hugging Face's GPT-2, in one interleaved run.

    python benchmarks/gpt_speed.py [small] [large] [--rounds 7] [--json]

All have the same shape (small: 4 layers, 128 wide, context 64, 12 rows; large: 6 layers, 384 wide, context 256, 16
rows; 65 characters), float32, no dropout, gradients clipped to 1, fused AdamW. "regard" is the same architecture;
"regard, lm recipe" is the one that `regard train lm` takes, with its own optimizer. Every contestant has its own
process and takes its turn in every round while the others
sleep, so a noisy machine disturbs all alike; what counts is the ratio, round by round.
"""

import argparse
import json
import logging
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.sets.batches import Batch, window_batch
from regard.models import build, preset
from regard.objectives.next_token import next_token
from regard.recipes.lm import MODERN
from regard.train.optim import build_optimizers

VOCAB = 65
SHAPES = {"small": (4, 4, 128, 64, 12), "large": (6, 6, 384, 256, 16)}  # depth, heads, dim, context, rows
STEPS = {"small": 20, "large": 1}  # a turn of each contestant in a round


class PlainBlock(nn.Module):
    """GPT-2's block as one writes it by hand: one product for q, k and v, fused attention, tanh GELU."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_hidden = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = (
            part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.qkv(self.before_attention(x)).split(D, 2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.gelu(self.up(self.before_hidden(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """A GPT in plain PyTorch."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        depth, heads, dim, context, _ = SHAPES[shape]
        self.tokens, self.places = nn.Embedding(VOCAB, dim), nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(PlainBlock(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def hugging_face(shape: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    depth, heads, dim, context, _ = SHAPES[shape]
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=context, n_embd=dim, n_layer=depth, n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="sdpa", use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def regard_gpt(shape: str, **changes: Any) -> nn.Module:
    depth, heads, dim, context, _ = SHAPES[shape]
    sizes = dict(depth=depth, heads=heads, dim=dim, ffn_dim=4 * dim, max_len=context, vocab_size=VOCAB, dropout=0.0)
    return build("gpt", preset("gpt", "gpt2", **sizes | changes))


def plain_loss(model: nn.Module, batch: Batch) -> Tensor:
    scores = model(batch.inputs["ids"])
    scores = scores if isinstance(scores, Tensor) else scores.logits
    return F.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())


def regard_loss(model: nn.Module, batch: Batch) -> Tensor:
    loss, count = next_token(model, batch)
    return loss / count


def trainer(
    model: nn.Module, loss_of: Callable[[nn.Module, Batch], Tensor], optimizers: list[torch.optim.Optimizer]
) -> Callable[[Batch], None]:
    """One step of training, the same for everybody."""
    parameters = list(model.train().parameters())

    def step(batch: Batch) -> None:
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def adamw(model: nn.Module) -> list[torch.optim.Optimizer]:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return [torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)]


def contestant(name: str, shape: str) -> Callable[[Batch], None]:
    settings: dict[str, Any] = dict(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    if name in ("regard", "regard, lm recipe"):
        same = name == "regard"
        model = regard_gpt(shape, **{} if same else MODERN)
        return trainer(model, regard_loss, build_optimizers(model, name="adamw" if same else "muon", **settings))
    model = PlainGPT(shape) if name == "plain PyTorch" else hugging_face(shape)
    return trainer(model, plain_loss, adamw(model))


NAMES = ("regard", "regard, lm recipe", "plain PyTorch", "Hugging Face GPT-2")


def work(name: str, shape: str, threads: int, pipe: Connection) -> None:
    """A contestant in its own process: at each request it returns its tokens per second."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    *_, context, rows = SHAPES[shape]
    rng = np.random.default_rng(0)
    ids = rng.integers(VOCAB, size=100_000)
    batches = cycle([window_batch(ids, rng.integers(len(ids) - context - 1, size=rows), context) for _ in range(64)])
    step = contestant(name, shape)
    pipe.send(None)
    while pipe.recv():
        started = time.perf_counter()
        for _ in range(STEPS[shape]):
            step(next(batches))
        pipe.send(STEPS[shape] * rows * context / (time.perf_counter() - started))


def measure(shape: str, rounds: int) -> dict[str, list[float]]:
    """Tokens a second of each contestant in each round; one round before that to warm up."""
    pipes, context = {}, multiprocessing.get_context("spawn")
    for name in NAMES:
        pipes[name], other = context.Pipe()
        context.Process(target=work, args=(name, shape, torch.get_num_threads(), other), daemon=True).start()
        pipes[name].recv()
    speeds: dict[str, list[float]] = {name: [] for name in NAMES}
    for round_ in range(rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(True)
            speed = pipe.recv()
            if round_:
                speeds[name].append(speed)
    for pipe in pipes.values():
        pipe.send(False)
    return speeds


def show(shape: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
    """A table of medians with their spread, and what both of ours are of each contestant, round by round."""
    depth, _, dim, context, rows = SHAPES[shape]
    rounds = len(speeds["regard"])
    print(
        f"\n{shape}: {depth} layers, {dim} wide, context {context}, {rows} rows; tokens/s on {torch.get_num_threads()} "
        f"threads, medians of {rounds} rounds",
        file=sys.stderr,
    )
    table: dict[str, Any] = {}
    for name, values in speeds.items():
        ratios = [own / other for own, other in zip(speeds["regard"], values, strict=True)]
        recipe = [own / other for own, other in zip(speeds["regard, lm recipe"], values, strict=True)]
        table[name] = {
            "median": statistics.median(values), "low": min(values), "high": max(values),
            "regard_is": statistics.median(ratios), "recipe_is": statistics.median(recipe),
        }  # fmt: skip
        print(
            f"  {name:20} {table[name]['median']:8,.0f}  ({min(values):,.0f}–{max(values):,.0f})"
            f"   regard is {table[name]['regard_is']:.2f}× ({min(ratios):.2f}–{max(ratios):.2f}),"
            f" the recipe {table[name]['recipe_is']:.2f}×",
            file=sys.stderr,
        )
    return {"shape": shape, "threads": torch.get_num_threads(), "rounds": rounds, "rows": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=[], help="small, large; both without")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tables = [show(shape, measure(shape, options.rounds)) for shape in options.shapes or SHAPES]
    if options.json:
        print(json.dumps(tables))


if __name__ == "__main__":
    main()
