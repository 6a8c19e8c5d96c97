"""Toy tasks: copy, sort, recall at a distance, addition, parity, by a GPT or a recurrent network.

regard train toy
    copies up to 8 letters: 600 steps, 1.0 minutes of one core; 99.8 % of the answers entirely right
regard train toy --data.task recall --data.distance 100
regard train toy --data.task parity --model lstm
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from regard.config import override
from regard.data.sets.batches import Stream
from regard.data.sets.toy_tasks import ToyConfig
from regard.models import preset
from regard.objectives.next_token import next_token
from regard.recipes.finetune import PROMPT_END, collate_instructions, encode_instructions
from regard.registry import register_recipe
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.runs.recipe import Recipe, from_scratch
from regard.train.progress import Line


@register_recipe("toy", asked=("generate",))
def toy(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a small GPT on a toy task."""
    own = override(ToyConfig(), data, under="data.")
    return Recipe(
        name="toy",
        family="gpt",
        model=preset("gpt", "tiny", dim=64, depth=2, ffn_dim=256, dropout=0.0, max_len=own.context),
        data=ToyConfig(),
        train=from_scratch(steps=600, batch_tokens=4096, lr=4e-3, warmup=30, every=100),
    )


@prepare.register
def prepare_toys(data: ToyConfig, recipe: Recipe, out: Path, resume: bool, line: Line) -> Job:
    """Prompts with their answers as ids; new ones in every epoch."""
    tokenizer = get_tokenizer(data, data.symbols, out, resume)
    recipe = with_vocabulary(recipe, tokenizer)
    config = recipe.model
    encode = partial(encode_instructions, tokenizer=tokenizer, config=config, max_len=min(data.context, config.max_len))
    collate = partial(collate_instructions, tokenizer=tokenizer, config=config, task="instruct")
    stream = Stream(
        lambda number: encode(data.epoch(number)), collate, recipe.train.batch_tokens, seed=recipe.train.seed
    )
    valid = encode(data.split()[1])
    ends = dict(bos=None, eos=tokenizer.eos, pad=tokenizer.pad, prompt_end=PROMPT_END)
    about = f"{data.task}, sequences of {data.shortest} to {data.length}, gaps of {data.nearest} to {data.distance}"
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=stream, valid=lambda: stream.once(valid),
        objective=next_token, about=about,
        generation=dict(beams=1, max_len=config.max_len, force_end=False, **ends),
    )  # fmt: skip
