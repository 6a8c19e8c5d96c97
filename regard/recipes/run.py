"""From a recipe to a trained run on disk."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.data.batches import Batch, Ids, PairStream
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
    out = Path(out)
    if not resume and (out / "checkpoints").exists():
        raise ValueError(f"{out} holds a run already; go on with --resume or choose another --out")
    line = Line(quiet)
    pairs, held_out = recipe.data.split()
    tokenizer = get_tokenizer(recipe.data, pairs, out, resume)
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=len(tokenizer)))
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.family, recipe.model)
    stream, valid = streams(recipe, tokenizer, pairs, held_out, line)

    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(out / "tokenizer.json")
    recipe.save(out / "recipe.toml")
    assert tokenizer.bos is not None and tokenizer.eos is not None and tokenizer.pad is not None
    save_generation(out, bos=tokenizer.bos, eos=tokenizer.eos, pad=tokenizer.pad)
    count = sum(p.numel() for p in model.parameters())
    line.say(f"{recipe.family}: {count:,} parameters, vocabulary {len(tokenizer):,}, {len(pairs):,} pairs an epoch")
    return train(
        model, stream, valid, next_token, recipe.train, out,
        publish=lambda: save_model(model, out), resume=resume, quiet=quiet,
    )  # fmt: skip


def get_tokenizer(data: PairsConfig, pairs: Pairs, out: Path, resume: bool) -> Tokenizer:
    """The run's own on resuming, the given one, or one trained on the pairs."""
    if resume and (out / "tokenizer.json").exists():
        return Tokenizer.load(out)
    if data.tokenizer is not None:
        return Tokenizer.load(data.tokenizer)
    texts = (side for pair in pairs for side in pair)
    return Tokenizer.train(texts=texts, kind=data.kind, vocab_size=data.vocab_size, lowercase=data.lowercase)


@dataclass(frozen=True)
class Encoded:
    """Pairs as ids, without the ones that are too long."""

    sources: Sequence[Ids]
    targets: Sequence[Ids]

    @classmethod
    def of(cls, pairs: Pairs, tokenizer: Tokenizer, max_len: int) -> "Encoded":
        sources = tokenizer.encode_batch([source for source, _ in pairs])
        targets = tokenizer.encode_batch([target for _, target in pairs])
        kept = [i for i in range(len(pairs)) if max(len(sources[i]), len(targets[i])) < max_len]
        return cls([sources[i] for i in kept], [targets[i] for i in kept])


def streams(
    recipe: Recipe, tokenizer: Tokenizer, pairs: Pairs, held_out: Pairs, line: Line
) -> tuple[PairStream, Callable[[], Iterable[Batch]]]:
    """Endless training batches, and the validation batches. Embedded phrases are fresh in every epoch."""
    data = recipe.data
    first, valid = (Encoded.of(some, tokenizer, data.max_len) for some in (pairs, held_out))
    if not first.sources or not valid.sources:
        raise ValueError(f"no pair is shorter than max_len={data.max_len} tokens; raise --data.max-len")
    if dropped := len(pairs) - len(first.sources):
        line.say(f"left out {dropped:,} of {len(pairs):,} pairs: longer than max_len={data.max_len} tokens")

    def epoch(number: int) -> tuple[Sequence[Ids], Sequence[Ids]]:
        if not data.embedded or number == 0:
            return first.sources, first.targets
        fresh = Encoded.of(embedded("train", data.epoch_size, start=number * data.epoch_size), tokenizer, data.max_len)
        return fresh.sources, fresh.targets

    assert tokenizer.bos is not None and tokenizer.eos is not None and tokenizer.pad is not None
    stream = PairStream(
        epoch, recipe.train.batch_tokens, tokenizer.bos, tokenizer.eos, tokenizer.pad, seed=recipe.train.seed
    )
    return stream, lambda: stream.once(valid.sources, valid.targets)
