"""Translate: an encoder–decoder Transformer on sentence pairs, the embedded English → German phrases or yours.

regard train translate
    embedded phrases: 1,000 steps, four to five minutes on two CPU cores; 98 % of held-out phrases exactly right
regard train translate --data.source train.en --data.target train.de
    6,000 steps; on Multi30k en → de 2,400 of them (--train.steps 2400 --train.average 10 --train.save-every 100) took
    about 45 minutes of one core and reached BLEU 38.9 on test 2016 (tokenized, lower-cased; 38.5 raw)
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.readers.pairs import Pairs
from regard.data.sets.batches import IdPair, Stream, pair_collate
from regard.data.sets.text_pairs import PairsConfig
from regard.hub.checkpoint import load_generation
from regard.hub.remote import find
from regard.models import preset
from regard.objectives.next_token import next_token
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, special_ids, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.tasks.language_model import front_of
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_pairs
from regard.train.progress import Line

ROLES = ("bos", "eos", "pad")
"""The special tokens of a translator."""


@register_recipe("translate", bases=("translate",))
def translate(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small translator: without dropout for the embedded phrases, with dropout for a small
    corpus."""
    if override(PairsConfig(), data, under="data.").embedded:
        return Recipe(
            name="translate",
            model=preset("transformer", "tiny", dropout=0.0, position="rotary"),
            data=PairsConfig(vocab_size=400),
            train=from_scratch(steps=1000, batch_tokens=2048, lr=3e-3, every=200),
        )
    return Recipe(
        name="translate",
        model=preset("transformer", "tiny", dropout=0.2),
        data=PairsConfig(vocab_size=6000),
        train=from_scratch(steps=6000, lr=3e-3, warmup=200, smoothing=0.1, average=5, every=500, save_every=200),
    )


@prepare.register
def prepare_pairs(data: PairsConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Pairs of texts as ids; embedded phrases are fresh in every epoch."""
    pairs, held_out = data.split()
    tokenizer = get_tokenizer(data, lambda: (side for pair in pairs for side in pair), out, resume)
    if data.base is None:
        generation: dict[str, Any] = dict(zip(ROLES, special_ids(tokenizer, *ROLES), strict=True))
    else:
        generation = generation_of(data.base)
    bos, eos, pad = (generation[role] for role in ROLES)
    epochs, valid = pair_epochs(data, pairs, held_out, tokenizer, line, generation.get("forced_bos"))
    collate = pair_collate(bos=bos, eos=eos, pad_id=pad)
    stream = Stream(epochs, collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    return Job(
        recipe=with_vocabulary(recipe, tokenizer), readers={"text": tokenizer}, stream=stream,
        valid=lambda: stream.once(valid), objective=next_token, about=f"{len(pairs):,} pairs an epoch",
        generation=generation,
    )  # fmt: skip


def generation_of(base: str) -> dict[str, Any]:
    """The decoding defaults of the translator that training starts from, as `save_generation` takes them."""
    stored = load_generation(find(base))
    if missing := [name for name in ("decoder_start", "eos", "pad") if stored[name] is None]:
        raise ValueError(f"{base} names no {missing[0]} token; add it to its generation_config.json")
    kept = {name: stored[name] for name in ("eos", "pad", "forbidden", "length_penalty", "force_end", "forced_bos")}
    return dict(bos=stored["decoder_start"], beams=stored["num_beams"], max_len=stored["max_length"] - 1, **kept)


def pair_epochs(
    data: PairsConfig, pairs: Pairs, held_out: Pairs, tokenizer: Tokenizer, line: Line, forced_bos: int | None = None
) -> tuple[Callable[[int], list[IdPair]], list[IdPair]]:
    """The training pairs of each epoch, and the validation pairs, as ids; pairs that are too long are left out.

    A published tokenizer frames the sources. `forced_bos` is a token that every target begins with.
    """
    lead = [] if forced_bos is None else [forced_bos]
    front = front_of(tokenizer)

    def encode(pairs: Pairs) -> list[IdPair]:
        plain = encode_pairs(pairs, tokenizer, data.max_len - len(front))
        if not front and not lead:
            return plain
        return [IdPair([*front, *pair.source], [*lead, *pair.target], pair.number) for pair in plain]

    first, valid = encode(pairs), encode(held_out)
    if not first or not valid:
        raise ValueError(f"no pair is shorter than max_len={data.max_len} tokens; raise --data.max-len")
    if dropped := len(pairs) - len(first):
        line.say(f"left out {dropped:,} of {len(pairs):,} pairs: empty, or longer than max_len={data.max_len} tokens")

    def epoch(number: int) -> list[IdPair]:
        if not data.embedded or number == 0:
            return first
        fresh = data.generated("train", data.epoch_size, number * data.epoch_size)
        return encode(fresh)

    return epoch, valid
