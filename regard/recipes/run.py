"""From a recipe to a trained run on disk."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch

from regard.data.batches import Batch, IdPairs, PairStream
from regard.data.pairs import Pairs, PairsConfig, embedded
from regard.hub.checkpoint import save_generation, save_model
from regard.models import build
from regard.objectives.next_token import next_token
from regard.recipes.base import Recipe
from regard.tokens import Tokenizer
from regard.train.loop import Fitted
from regard.train.loop import fit as train
from regard.train.progress import Line


def fit(recipe: Recipe, out: str | Path, *, resume: bool = False, quiet: bool = False) -> Fitted:
    """Trains what the recipe says and leaves a run in `out` that `regard.load` opens."""
    out, line = Path(out), Line(quiet)
    pairs, held_out = recipe.data.split()
    tokenizer = get_tokenizer(recipe.data, pairs, out, resume)
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=len(tokenizer)))
    check_place(recipe, out, resume)
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.family, recipe.model)
    stream, valid = streams(recipe, tokenizer, pairs, held_out, line)

    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(out / "tokenizer.json")
    recipe.save(out / "recipe.toml")
    save_generation(out, bos=stream.bos, eos=stream.eos, pad=stream.pad_id)
    if recipe.train.minutes is None and recipe.train.steps <= recipe.train.warmup:
        line.say(f"{recipe.train.steps} steps end within the warm-up of {recipe.train.warmup}; lower --train.warmup")
    count = sum(p.numel() for p in model.parameters())
    line.say(f"{recipe.family}: {count:,} parameters, vocabulary {len(tokenizer):,}, {len(pairs):,} pairs an epoch")
    return train(
        model, stream, valid, next_token, recipe.train, out,
        publish=lambda: save_model(model, out), resume=resume, quiet=quiet,
    )  # fmt: skip


def check_place(recipe: Recipe, out: Path, resume: bool) -> None:
    """A run is never overwritten, and never resumed as something else."""
    stored = out / "recipe.toml"
    if not resume and (stored.exists() or (out / "checkpoints").exists()):
        raise ValueError(f"{out} holds a run already; go on with --resume or choose another --out")
    if resume and stored.exists():
        before = Recipe.load(stored)
        same = [(r.family, r.model, r.data, r.train.optimizer, r.train.seed) for r in (before, recipe)]
        if same[0] != same[1]:
            raise ValueError(
                f"{out} was trained with another model, data, optimizer or seed; to resume it, change only other "
                "--train fields, or start anew with another --out"
            )


def get_tokenizer(data: PairsConfig, pairs: Pairs, out: Path, resume: bool) -> Tokenizer:
    """The run's own on resuming, the given one, or one trained on the pairs."""
    if resume and (out / "tokenizer.json").exists():
        return Tokenizer.load(out)
    if data.tokenizer is not None:
        return Tokenizer.load(data.tokenizer)
    texts = (side for pair in pairs for side in pair)
    return Tokenizer.train(texts=texts, kind=data.kind, vocab_size=data.vocab_size, lowercase=data.lowercase)


def encode(pairs: Pairs, tokenizer: Tokenizer, max_len: int) -> IdPairs:
    """Pairs as ids, numbered from 1, without those that have an empty side or are too long."""
    sources = tokenizer.encode_batch([source for source, _ in pairs])
    targets = tokenizer.encode_batch([target for _, target in pairs])
    full = [i for i, (source, target) in enumerate(pairs) if source.strip() and target.strip()]
    kept = [i for i in full if max(len(sources[i]), len(targets[i])) < max_len]
    return IdPairs([sources[i] for i in kept], [targets[i] for i in kept], [i + 1 for i in kept])


def streams(
    recipe: Recipe, tokenizer: Tokenizer, pairs: Pairs, held_out: Pairs, line: Line
) -> tuple[PairStream, Callable[[], Iterable[Batch]]]:
    """Endless training batches, and the validation batches. Embedded phrases are fresh in every epoch."""
    data = recipe.data
    first, valid = (encode(some, tokenizer, data.max_len) for some in (pairs, held_out))
    if not first.numbers or not valid.numbers:
        raise ValueError(f"no pair is shorter than max_len={data.max_len} tokens; raise --data.max-len")
    if dropped := len(pairs) - len(first.numbers):
        line.say(f"left out {dropped:,} of {len(pairs):,} pairs: empty, or longer than max_len={data.max_len} tokens")

    def epoch(number: int) -> IdPairs:
        if not data.embedded or number == 0:
            return first
        fresh = embedded("train", data.epoch_size, start=number * data.epoch_size)
        return encode(fresh, tokenizer, data.max_len)

    marks = {"<bos>": tokenizer.bos, "<eos>": tokenizer.eos, "<pad>": tokenizer.pad}
    if missing := [name for name, mark in marks.items() if mark is None]:
        raise ValueError(f"the tokenizer has no {missing[0]} token; use one trained by `regard tokenizer train`")
    bos, eos, pad = (mark for mark in marks.values() if mark is not None)
    stream = PairStream(epoch, recipe.train.batch_tokens, bos, eos, pad, seed=recipe.train.seed)
    return stream, lambda: stream.once(valid)
