"""A recipe is a frozen record of model, data and training; any field can be overridden by its dotted name.

A registered recipe is a function of the data fields that the user set, `{"text": ("book.txt",)}`, or {}; one with a
parameter `train` gets the training fields as well, so that the budget can decide, and one with a parameter `family` the
family that the user chose, or its default.
"""

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import dotted, dump_toml, override, read_toml, reading, to_dict
from regard.data.sets.base import check_tuning
from regard.files import write_text
from regard.hub.checkpoint import load_model
from regard.hub.remote import find
from regard.models import fitting, preset
from regard.models.parts import pretrained
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
    """The data's config, a `regard.data.sets.base.Data`."""
    train: TrainConfig
    """The training's config."""

    def with_data(self, **changes: Any) -> "Recipe":
        """A copy with fields of the data replaced."""
        return replace(self, data=replace(self.data, **changes))

    def save(self, path: Path) -> None:
        """Write the recipe as TOML."""
        write_text(path, dump_toml(to_dict(self)))

    @classmethod
    def load(cls, path: Path) -> "Recipe":
        """Read a recipe that `save` wrote: files and weights that it names need not exist any more."""
        tree = read_toml(path)
        if "name" not in tree:
            raise ValueError(f'{path}: no recipe is named; add a line like name = "translate"')
        with reading(path, "correct it"):
            base = planned(tree.pop("name"), {}, family=tree.get("family"))
            before = {f"data.{name}": value for name, value in base.data.absent.items()}
            before["train.noise"] = "generator"  # of a run that does not say so
            return configure(base, before | dotted(tree))


def columns_of(run: Path) -> dict[str, str]:
    """The columns that a run was trained on, by field, where its recipe names any: {"text": "subject+body"}."""
    stored = run / "recipe.toml"
    pairs = read_toml(stored).get("data", {}).get("columns", ()) if stored.is_file() else ()
    return dict(pair.split("=", 1) for pair in pairs)


def recipe(name: str, changes: Mapping[str, Any] | None = None, stored: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of that name with fields overridden: `recipe("translate", {"train.steps": 100})`.

    Defaults suit the data that `changes` name, or the embedded data. Fields of a `stored` recipe come first; they may
    hold what followed from its data, `changes` may not.
    """
    named = {key.replace("-", "_") for key in changes or {}}
    changes = {key.replace("-", "_"): value for key, value in {**(stored or {}), **(changes or {})}.items()}
    data, train = (
        {key.removeprefix(part): value for key, value in changes.items() if key.startswith(part)}
        for part in ("data.", "train.")
    )
    plan = planned(name, data, train=train, family=changes.get("model") or changes.get("family"))
    if "base" in data and getattr(plan.data, "base", "") is None:  # the recipe leaves it to us
        base = override(plan.data, {"base": data["base"]}, under="data.").base
        plan = plan if base is None else go_on_from(base, plan)
    chosen = configure(plan, changes)
    if hasattr(chosen.data, "tune"):
        check_tuning(chosen.data.base, chosen.data.tune, chosen.data.rank)
    check_effect(plan, chosen, named)
    return chosen


def planned(
    name: str, data: Mapping[str, Any], *, train: Mapping[str, Any] | None = None, family: Any = None
) -> Recipe:
    """The plan of a registered recipe, which is given what it has a parameter for."""
    parameters = inspect.signature(recipes[name]).parameters
    options: dict[str, Any] = {"train": train or {}} if "train" in parameters else {}
    if "family" in parameters and family is not None:
        options["family"] = str(family).partition(":")[0]
    return recipes[name](data, **options)


def check_effect(before: Recipe, after: Recipe, named: Collection[str]) -> None:
    """Raise an error if a field that the user set changes nothing: the data decide it, or another field."""
    idle = {f"model.{name}": f"model.{why}" for name, why in getattr(after.model, "idle", {}).items()}
    idle |= {f"data.{name}": f"data.{why}" for name, why in after.data.idle.items()}
    reasons = {key: f"has no effect with --{why}; leave it out" for key, why in idle.items()} | after.data.decides
    for key, why in reasons.items():
        part, _, name = key.partition(".")
        values = [getattr(getattr(plan, part), name, None) for plan in (before, after)]
        if key in named and values[0] != values[1]:
            raise ValueError(f"--{key.replace('_', '-')} {why}")


def from_scratch(*, every: int, steps: int, warmup: int = 100, **fields: Any) -> TrainConfig:
    """The training of a small model from scratch, validated and saved after every so many steps. Its warm-up is a
    share of the run: another number of steps, or of minutes, has another warm-up."""
    usual: dict[str, Any] = dict(optimizer="muon", schedule="trapezoid", smoothing=0.0)
    usual |= dict(steps=steps, warmup=warmup / steps, eval_every=every, save_every=every)
    return TrainConfig(**usual | fields)


def go_on_from(base: str, plan: Recipe) -> Recipe:
    """The recipe with the config of a trained model in place of its own, and the training of one that is fine-tuned."""
    model: Any = load_model(find(base))
    if type(model) is not models[plan.family]:
        model = pretrained(model)
    family, config = models.name_of(type(model)), model.config
    if inputs_of(family) != inputs_of(plan.family):
        raise ValueError(
            f"{base} is a {family}; {plan.name} goes on from a {plan.family}, or another that reads the same"
        )
    own, tokens = (getattr(one, "tokens", None) for one in (plan.model, config))
    batch = plan.train.batch_tokens // own * tokens if own and tokens else plan.train.batch_tokens
    return replace(plan, family=family, model=config, train=replace(fine_tuning(plan.train), batch_tokens=batch))


def fine_tuning(train: TrainConfig) -> TrainConfig:
    """The training of a model that starts from trained weights: few epochs, and a learning rate that follows from what
    is tuned (`regard.runs.fit.from_base`)."""
    return replace(
        train, epochs=3.0, min_steps=100, optimizer="adamw", lr=None, schedule="linear", warmup=0.06, beta2=0.999,
        eval_every=100, save_every=100, average=1,
    )  # fmt: skip


SIZES = {"dim", "depth", "decoder_depth", "heads", "kv_heads", "head_dim", "ffn_dim", "dropout"}
"""Fields of a preset that is only another size; a preset with other fields is another architecture."""
KEPT = ("vocab_size", "dropout", "position", "max_len", "image", "channels")
"""Fields of a model that a recipe chose for its data; another family or preset keeps them."""


def inputs_of(family: str) -> list[str]:
    """Return the argument names of a family's `features`."""
    return sorted(inspect.signature(models[family].features).parameters.keys() - {"self", "cache"})


def check_family(family: str) -> None:
    """Raise a ValueError if a family, such as a plugin's, lacks what training asks of every family."""
    for name in ("config_class", "features", "presets"):
        if not hasattr(models[family], name):
            raise ValueError(f"the family {family!r} declares no {name}; CONTRIBUTING.md lists what a family needs")


def configure(base: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with fields overridden; `model` (or `family`) and `model.preset` come first: the architecture."""
    changes, tokens = dict(changes), getattr(base.model, "tokens", None)
    images = None if tokens is None else base.train.batch_tokens // tokens  # of a batch, whatever the model's size
    family, _, named = (changes.pop("model", None) or changes.pop("family", None) or base.family).partition(":")
    check_family(family)
    if (own := inputs_of(family)) != (needed := inputs_of(base.family)):
        able = [name for name in models if hasattr(models[name], "features") and inputs_of(name) == needed]
        why = f"its features takes {', '.join(own)}, and these give {', '.join(needed)}"
        raise ValueError(f"{family} is no model for the data of {base.name}: {why}; use {' or '.join(able)}")
    size = changes.pop("model.preset", None) or named or None
    if "train.steps" in changes and "train.epochs" not in changes:
        changes["train.epochs"] = None  # steps that the user sets replace the recipe's epochs
    if changes.get("train.epochs") is not None:
        changes.setdefault("train.min_steps", 0)  # as many passes as the user asks for
    sizes = models[family].presets.get(size, {}) if family == base.family else {}
    if sizes and sizes.keys() <= SIZES:
        base = replace(base, model=replace(base.model, **{n: v for n, v in sizes.items() if n != "dropout"}))
    elif family != base.family or size is not None:
        old, new = (dataclasses.fields(cls) for cls in (type(base.model), models[family].config_class))
        fields = {field.name for field in old} & {field.name for field in new}
        fields -= models[family].presets.get(size, {}).keys() - {"vocab_size", "dropout"}
        kept = {name: getattr(base.model, name) for name in KEPT if name in fields}
        if size is None and "image" in kept:
            kept |= fitting(family, *sides(kept["image"]))
        base = replace(base, family=family, model=preset(family, size or "tiny", **kept))
    plan = override(base, changes)
    tokens = getattr(plan.model, "tokens", None)
    if images is not None and tokens is not None and "train.batch_tokens" not in changes:
        plan = replace(plan, train=replace(plan.train, batch_tokens=images * tokens))
    return plan
