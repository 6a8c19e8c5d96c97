"""Lists of recipes, of their fields, and of named configs."""

import sys
import textwrap
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.config import describe, dotted, field_docs, flatten, nearest, override, read_toml
from regard.cost import CONVNETS
from regard.data.terminal import to_json
from regard.hub.checkpoint import peek_model
from regard.hub.files import CONFIG
from regard.hub.remote import HUB, find
from regard.models import preset
from regard.recipes.pixel import PixelConfig
from regard.registry import models, recipes
from regard.runs.recipe import Recipe, recipe


def list_recipes(as_json: bool) -> str:
    """Return the description of each recipe: command, minutes and score."""
    docs = {name: sys.modules[recipes[name].__module__].__doc__ or "" for name in recipes}
    if as_json:
        return to_json(docs)
    names = {text: ", ".join(name for name in docs if docs[name] == text) for text in docs.values()}  # several a file
    return "\n\n".join(f"{names[text]}\n" + textwrap.indent(text.strip(), "  ") for text in names)


def show_fields(plan: Recipe) -> str:
    """Every field of a recipe with its value, its type and its line of documentation."""
    lines = [f"Fields of {plan.name} (--model {plan.family}; presets: {', '.join(models[plan.family].presets)}):"]
    own = " or ".join(f"--data.{name}" for name in plan.data.own)
    data = f"the embedded data; with {own} --help shows those for your own"
    lines.append(f"Values are those for {data if plan.data.embedded else 'data of your own'}.")
    for section in ("model", "data", "train"):
        config = getattr(plan, section)
        kind: Any = type(config)
        docs, hints = field_docs(kind), typing.get_type_hints(kind)
        for name, value in flatten(config).items():
            option = f"--{section}.{name.replace('_', '-')}"
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            lines.append(f"  {option:28} {docs[name]} [{describe(hints[name])}; {shown}]")
    return "\n".join(lines)


def find_config(what: str, changes: Mapping[str, Any]) -> Any:
    """A model's config from a preset (`base`, `seq2seq:base`), a run, a checkpoint or a TOML file."""
    path = Path(what)
    if (path / "recipe.toml").exists():
        return override(Recipe.load(path / "recipe.toml").model, changes)
    if path.suffix == ".toml":
        tree = dotted(read_toml(path))
        return override(recipe(tree.pop("name", "translate"), stored=tree).model, changes)
    if what == "pixel":
        return override(PixelConfig(), changes)
    if what in CONVNETS:
        return override(CONVNETS[what], changes)
    family, _, size = what.rpartition(":")
    family = family or "transformer"
    if (path / CONFIG).exists() or what.startswith(HUB) or ("/" in what and ":" not in what):
        return override(peek_model(find(what)).config, changes)
    if size in models[family].presets:
        return preset(family, size, **changes)
    families = [f"{name}:{size}" for name in models for size in models[name].presets]
    known = [*models[family].presets, *families, *CONVNETS, "pixel"]
    raise ValueError(f"{what!r} is no preset, run, checkpoint or .toml file; {nearest(what, known)}")
