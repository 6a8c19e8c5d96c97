"""A recipe is a frozen record of model, data and training; any field can be overridden by its dotted name."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import dotted, dump_toml, override, read_toml, to_dict
from regard.files import write_atomically
from regard.models import preset
from regard.nn.patches import sides
from regard.registry import models, recipes
from regard.train.config import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything that decides a run."""

    name: str
    """The recipe that this came from."""
    family: str = "transformer"
    """The model's family; `--model NAME` on the command line."""
    model: Any
    """The model's config."""
    data: Any
    """The data's config."""
    train: TrainConfig
    """The training's config."""

    def with_data(self, **changes: Any) -> "Recipe":
        return replace(self, data=replace(self.data, **changes))

    def save(self, path: Path) -> None:
        text = dump_toml(to_dict(self))
        write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        tree = read_toml(path)
        if "name" not in tree:
            raise ValueError(f'{path}: no recipe is named; add a line like name = "translate"')
        # A run's recipe is complete: what it started from need not be there any more.
        return configure(recipes[tree.pop("name")](), dotted(tree))


EMPTY: tuple[Any, ...] = (None, "none", (), [])
"""A field that a stored recipe holds, but that names nothing."""


def recipe(name: str, changes: Mapping[str, Any] | None = None, stored: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name with fields overridden: `recipe("translate", {"train.steps": 100})`.

    Defaults suit the embedded data, or data of one's own where `changes` name some. Fields of a `stored` recipe come
    first; they may say what followed from its data, `changes` may not.
    """
    asked = {key.replace("-", "_") for key in changes or {}}
    changes = {key.replace("-", "_"): value for key, value in {**(stored or {}), **(changes or {})}.items()}
    given = {key.removeprefix("data.") for key, value in changes.items() if value not in EMPTY}
    plan = recipes[name](embedded=True)
    how: dict[str, Any] = {"base": changes["data.base"]} if "base" in given and hasattr(plan.data, "base") else {}
    if hasattr(plan.data, "images"):  # the model's size follows from that of the pictures
        fields = {key: value for key, value in changes.items() if key.startswith("data.")}
        how |= {"given": {key.removeprefix("data."): value for key, value in fields.items()}}
    if any(how.values()) or given & set(plan.data.own):
        plan = recipes[name](embedded=not given & set(plan.data.own), **how)
    chosen = configure(plan, changes)
    check_effect(plan, chosen, asked)
    return chosen


IDLE: list[tuple[tuple[str, ...], str, Callable[[Any], bool]]] = [
    (("rank",), "tune", lambda tune: tune != "lora"),
    (("kind", "vocab_size"), "tokenizer", bool),
    (("kind", "vocab_size"), "base", bool),
    (("count", "most"), "images", bool),
    (("scenes", "things"), "coco", bool),
    (("scenes", "things"), "voc", bool),
]
"""Fields of data that have no effect when another is so."""


def check_effect(before: Recipe, after: Recipe, asked: Collection[str]) -> None:
    """An error if a field that is asked for would change nothing: the data decides it, or another field."""
    told = {f"model.{name}": f"model.{why}" for name, why in getattr(after.model, "idle", {}).items()}
    for names, other, idle in IDLE:
        if hasattr(after.data, other) and idle(value := getattr(after.data, other)):
            told |= {f"data.{name}": f"data.{other} {value}" for name in names}
    reasons = {key: f"has no effect with --{why}; leave it out" for key, why in told.items()}
    if hasattr(after.data, "vocab_size"):
        reasons["model.vocab_size"] = "follows from the texts; use --data.vocab-size"
    for key, why in (reasons | getattr(after.data, "decides", {})).items():
        part, _, name = key.partition(".")
        values = [getattr(getattr(one, part), name, None) for one in (before, after)]
        if key in asked and values[0] != values[1]:
            raise ValueError(f"--{key.replace('_', '-')} {why}")


def fields_of(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Rows, columns and channels of pictures as fields of the model that sees them."""
    rows, columns, channels = shape
    return dict(image=rows if rows == columns else (rows, columns), channels=channels)


def fitting(family: str, rows: int, columns: int) -> dict[str, Any]:
    """Sizes for such pictures. A ViT has about eight patches a side, and is deeper for larger pictures; the grid of the
    others is finer, and halves until two to seven rows are left, which is then the window."""
    side = min(rows, columns)
    if family == "vit":
        whole = [p for p in range(2, 17) if rows % p == 0 and columns % p == 0 and side // p >= 4]
        patch = min(whole, key=lambda p: abs(p - side / 8)) if whole else max(1, round(side / 8))
        return dict(patch=patch, depth=4 if side <= 16 else 6 if side <= 64 else 8)
    if family not in ("swin", "mvit", "cnn-attention"):
        return {}
    patch = 1 if side < (20 if family == "cnn-attention" else 8) else 2 if side < 48 else 4
    grid = -(-side // patch)
    stages = 1 if grid < 4 else next((n for n in (2, 3) if grid <= 7 * 2 ** (n - 1)), 4)
    sizes: dict[str, Any] = dict(patch=patch, depths=(1 if family == "cnn-attention" else 2,) * stages)
    if family == "swin":
        sizes |= dict(
            heads=tuple(3 * 2**stage for stage in range(stages)), window=min(8, -(-grid // 2 ** (stages - 1)))
        )
    return sizes | (dict(key_stride=2 ** (stages - 1)) if family == "mvit" else {})


SIZES = {"dim", "depth", "decoder_depth", "heads", "kv_heads", "head_dim", "ffn_dim", "dropout"}
"""A preset of only these is a size; others say more of a model."""


def reads(family: str) -> list[str]:
    """What a family is given in training."""
    return sorted(inspect.signature(models[family].features).parameters.keys() - {"self", "cache"})


def configure(base: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with fields overridden. `model` (or `family`) swaps the family, `model.preset` its size, first."""
    changes, tokens = dict(changes), getattr(base.model, "tokens", None)
    # Of a batch, whatever becomes of the model.
    pictures = None if tokens is None else base.train.batch_tokens // tokens
    family = changes.pop("model", None) or changes.pop("family", None) or base.family
    if reads(family) != reads(base.family):
        able = [name for name in models if reads(name) == reads(base.family)]
        raise ValueError(f"{family} is no model for the data of {base.name}; use {' or '.join(able)}")
    size = changes.pop("model.preset", None)
    if "train.steps" in changes and "train.epochs" not in changes:
        changes["train.epochs"] = None  # steps that are asked for count, not the recipe's passes over the data
    sizes = models[family].presets.get(size, {}) if family == base.family else {}
    if sizes and sizes.keys() <= SIZES:  # another size of the same
        base = replace(base, model=replace(base.model, **{n: v for n, v in sizes.items() if n != "dropout"}))
    elif family != base.family or size is not None:
        # What the recipe chose for its data stays, unless the preset says otherwise.
        old, new = (dataclasses.fields(cls) for cls in (type(base.model), models[family].config_class))
        fields = {field.name for field in old} & {field.name for field in new}
        said = models[family].presets.get(size, {}).keys() - {"vocab_size", "dropout"}
        chosen = [
            n for n in ("vocab_size", "dropout", "position", "max_len", "image", "channels") if n in fields - said
        ]
        kept = {name: getattr(base.model, name) for name in chosen}
        if size is None and "image" in kept:
            kept |= fitting(family, *sides(kept["image"]))
        base = replace(base, family=family, model=preset(family, size or "tiny", **kept))
    assert isinstance(base.model, models[family].config_class)
    plan = override(base, changes)
    tokens = getattr(plan.model, "tokens", None)
    if pictures is not None and tokens is not None and "train.batch_tokens" not in changes:
        plan = replace(plan, train=replace(plan.train, batch_tokens=pictures * tokens))
    return plan
