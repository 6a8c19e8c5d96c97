"""Recipes, families and their fields for answers that must not wait for PyTorch, whose import takes seconds.

A typing error, a list of recipes or a completion in the shell reads a table in the cache folder. The table is made by
importing the package once, and anew after a file of the package has changed.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import takewhile
from operator import or_
from pathlib import Path
from typing import Any, Literal

from regard.config import describe, field_docs, nearest, nearest_field, parse
from regard.data.cache import cache_folder
from regard.files import write_text
from regard.registry import OWN, kernels, models, positions, recipes, starts

PACKAGE = Path(__file__).parents[1]
SECTIONS = ("model", "data", "train")
REGISTRIES = {"model": models, "kernel": kernels, "position": positions, "recipe": recipes}
TYPES: dict[str, Any] = {
    "int": int, "float": float, "str": str, "true|false": bool, "none": type(None),
}  # fmt: skip
"""Types by their description."""


@dataclass(frozen=True)
class Field:
    """A field of a config: its name, its line of documentation, and its type as `describe` writes it."""

    name: str
    doc: str
    type: str

    @property
    def kind(self) -> Any:
        """The type itself; `Any` where its description does not say enough."""
        return kind_of(self.type)

    @property
    def choices(self) -> list[str]:
        """The values of a field that has a few; [] for any other."""
        options = [kind_of(option) for option in self.type.split(" or ")]
        named = [value for kind in options if typing.get_origin(kind) is Literal for value in typing.get_args(kind)]
        return [str(value) for value in named] or (["true", "false"] if bool in options else [])


def kind_of(description: str) -> Any:
    """Return the type whose description `describe` wrote."""
    if description in TYPES:
        return TYPES[description]
    if " or " in description:
        return reduce(or_, map(kind_of, description.split(" or ")))
    if description.endswith(",…"):
        return tuple[kind_of(description[:-2]), ...]  # type: ignore[misc]
    if "|" not in description:
        return Any
    return Literal[tuple(int(value) if value.isdecimal() else value for value in description.split("|"))]


# ---- the table --------------------------------------------------------------------------------------------------


@cache
def table() -> dict[str, Any]:
    """All registered names with fields and descriptions; from the cache folder unless PyTorch is imported already."""
    if "torch" in sys.modules:
        return build()
    state = state_of_package()
    path = cache_folder() / f"outline-{hashed(PACKAGE)}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["state"] == state:
            return stored["table"]
    fresh = build()
    entries = [entry for registry in REGISTRIES.values() for entry in registry.entries().values()]
    if all(entry.__module__.startswith("regard.") for entry in entries):  # no plugin's
        with contextlib.suppress(OSError):  # such as a folder that is read-only
            write_text(path, json.dumps({"state": state, "table": fresh}))
    return fresh


def state_of_package() -> str:
    """Return a hash that changes when a source file of the package is added, removed or changed."""
    stats = [(path, path.stat()) for path in sorted(PACKAGE.rglob("*.py"))]
    return hashed([(str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats])


def hashed(value: Any) -> str:
    """A short hash of a value's text."""
    return hashlib.sha256(str(value).encode()).hexdigest()[:16]


def build() -> dict[str, Any]:
    """The table of what is registered now."""
    plans = {name: recipes[name]({}) for name in recipes}
    return {
        "model": {
            name: {
                "presets": list(getattr(models[name], "presets", ())),
                "fields": describe_fields(getattr(models[name], "config_class", None)),
            }
            for name in models
        },
        "kernel": dict.fromkeys(kernels),
        "position": dict.fromkeys(positions),
        "recipe": {
            name: {
                "family": plan.family,
                "word": starts.get(name, {}).get("verb") or name,
                "data": describe_fields(type(plan.data)),
                "train": describe_fields(type(plan.train)),
                "about": summarize(name, sys.modules[recipes[name].__module__].__doc__ or ""),
            }
            for name, plan in plans.items()
        },
    }


def describe_fields(config: Any) -> list[tuple[str, str, str]]:
    """The name, documentation and type of each field of a config class; [] for None."""
    if config is None:
        return []
    docs, hints = field_docs(config), typing.get_type_hints(config)
    return [(field.name, docs.get(field.name, ""), describe(hints[field.name])) for field in dataclasses.fields(config)]


def summarize(name: str, docstring: str) -> tuple[str, str]:
    """The subject of a recipe and the minutes that it takes ('' where none are stated), from its file's docstring."""
    lines = docstring.splitlines() or [""]
    command = re.compile(rf"regard train {re.escape(name)}(\s|$)")
    first = next((i for i, line in enumerate(lines) if command.match(line)), 0)
    aside = re.search(r"\s{2,}(.+)", lines[first])
    below = takewhile(
        lambda line: line.startswith(" ") or re.match(r"regard train [\w-]+\s{2,}", line), lines[first + 1 :]
    )
    subject = re.split(r": [\d,]+ steps", aside[1])[0] if aside else lines[0].split(". ")[0].rstrip(".")
    text = " ".join([aside[1] if aside else "", *map(str.strip, below)])
    minutes = re.search(r"[^,;:(]*\bminutes?\b[^,;:).]*", text)
    return subject, minutes[0].strip() if minutes else ""


# ---- questions to it --------------------------------------------------------------------------------------------


def registered(what: str) -> list[str]:
    """The names of all models, kernels, positions or recipes."""
    return list(table()[what])


def presets(family: str) -> list[str]:
    """The names of a family's presets."""
    return table()["model"][family]["presets"]


def fields(recipe: str, section: str, families: tuple[str, ...] | None = None) -> dict[str, Field]:
    """The fields of a recipe's model, data or training by name; of its model those of the given families together."""
    plan = table()["recipe"][recipe]
    if section == "model":
        return {name: field for family in families or (plan["family"],) for name, field in model_fields(family).items()}
    return {row[0]: Field(*row) for row in plan[section]}


def model_fields(family: str) -> dict[str, Field]:
    """The fields of a family's config by name."""
    return {row[0]: Field(*row) for row in table()["model"][family]["fields"]}


def description(recipe: str) -> tuple[str, str]:
    """The subject of a recipe, and the minutes that it takes ('' where none are stated)."""
    subject, minutes = table()["recipe"][recipe]["about"]
    return subject, minutes


def render_fields(recipe: str, sections: tuple[str, ...] = SECTIONS) -> str:
    """A line for each field of a recipe, with its documentation and the type of its value."""
    return "\n".join(
        f"  {option_of(section, field.name):28} {field.doc} [{field.type}]"
        for section in sections
        for field in fields(recipe, section).values()
    )


def option_of(section: str, field: str) -> str:
    """A field as it is set at the command line."""
    return f"--{section}.{field.replace('_', '-')}"


def render_recipes() -> str:
    """A line for each recipe with its name, its subject, and its minutes."""
    lines = []
    for name in registered("recipe"):
        subject, minutes = description(name)
        lines.append(f"  {name:14} {subject}" + (f" ({minutes})" if minutes else ""))
    return "\n".join(lines)


# ---- checks -----------------------------------------------------------------------------------------------------


def tasks() -> dict[str, str]:
    """The words after --task, each with the first recipe of it: the `verb` that it is registered with, or its name."""
    words: dict[str, str] = {}
    for name, plan in table()["recipe"].items():
        words[plan["word"]] = name if plan["word"] == name else words.get(plan["word"], name)
    return words


def check_task(word: str | None, changes: Mapping[str, Any]) -> None:
    """Raise an error for a word after --task that no recipe has, or for fields of data and training that none has."""
    if word is not None and word not in tasks():
        raise ValueError(f"--task {word!r} is not one of {', '.join(map(repr, tasks()))}; {nearest(word, tasks())}")
    known = {part: {field for name in registered("recipe") for field in fields(name, part)} for part in SECTIONS[1:]}
    for key in (key.replace("-", "_") for key in changes):
        section, _, field = key.partition(".")
        if section in known and field.partition(".")[0] not in known[section]:
            own = known[section] if word is None else fields(tasks()[word], section)
            raise ValueError(f"unknown key {key!r}; {nearest(key, [f'{section}.{name}' for name in own])}")


def check_entry(what: str, value: Any) -> str:
    """Return the name of a registered model, kernel, position or recipe without its settings; raise an error for
    another."""
    name = str(value).partition(":")[0]
    if name not in table()[what]:
        raise ValueError(f"unknown {what} {name!r}; {nearest(name, table()[what])}{OWN}")
    return name


def check_fields(name: str, changes: Mapping[str, Any], *, any_family: bool = False) -> None:
    """Raise an error for a recipe, a field or a value of a field that the package does not have.

    With `any_family`, or data that may decide the family, fields of every family are taken for known. What depends on
    files is left to the recipe itself.
    """
    check_entry("recipe", name)
    changes = {key.replace("-", "_"): value for key, value in changes.items()}
    families: tuple[str, ...] = (table()["recipe"][name]["family"],)
    if named := changes.get("model") or changes.get("family"):
        families = (check_entry("model", named),)
        check_preset(families, str(named).partition(":")[2])
    elif any_family or any(key.startswith("data.") for key in changes):
        families = tuple(registered("model"))
    check_preset(families, changes.get("model.preset"))
    for key, value in changes.items():
        section, _, rest = key.partition(".")
        if key in ("model", "family", "model.preset", "name"):
            continue
        if section not in SECTIONS or not rest:
            every = [f"{part}.{field}" for part in SECTIONS for field in fields(name, part, families)]
            cure = nearest_field(rest or key, every) or nearest(key, ("family", *SECTIONS, "name"))
            raise ValueError(f"unknown key {key!r}; {cure}")
        known = fields(name, section, families)
        field, _, deeper_field = rest.partition(".")
        if field not in known:
            options = [f"{section}.{name}" for name in known]
            raise ValueError(f"unknown key {key!r}; {nearest(f'{section}.{field}', options)}")
        if section == "model" and field in ("kernel", "position") and isinstance(value, str):
            check_entry(field, value)
        elif not deeper_field and (section != "model" or len(families) == 1):  # families have other types for one name
            parse(value, known[field].kind, key)


def check_size(what: str, changes: Mapping[str, Any]) -> None:
    """Raise an error for FAMILY:PRESET whose family is unknown, or for a field that its config lacks."""
    family, colon, size = what.rpartition(":")
    named = colon and not Path(what).exists() and not what.startswith("hf:")
    family = check_entry("model", family) if named else "transformer"
    if size in presets(family):
        for key, value in changes.items():
            if (name := key.replace("-", "_")) not in model_fields(family):
                raise ValueError(f"unknown key {name!r}; {nearest(name, model_fields(family))}")
            if name in ("kernel", "position"):
                check_entry(name, value)


def check_preset(families: tuple[str, ...], name: Any) -> None:
    """Raise an error for a preset that none of the families has."""
    known = [size for family in families for size in presets(family)]
    if name and known and name not in known:
        who = "no family" if len(families) > 3 else " or ".join(families)
        raise ValueError(f"{who} has {'a' if len(families) > 3 else 'no'} preset {name!r}; {nearest(str(name), known)}")
