"""Frozen dataclasses as configuration: override any field by its dotted name, from the command line or TOML.

Every field of a config is followed by a string literal: its one-line documentation, shown by `--help`.
"""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import json
import math
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any


def nearest(name: str, known: Iterable[str]) -> str:
    """The clause of an error message that names the closest known word, or lists them all."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


@cache
def at_least(least: int, **settings: int | float | None) -> None:
    """Raise an error for a setting that is too small; None is allowed."""
    for name, value in settings.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value} must be at least {least}")


def check_positive(config: Any, *names: str) -> None:
    """Raise an error for a field of a config that is below 1; None is allowed."""
    at_least(1, **{name: getattr(config, name) for name in names})


def check_fractions(config: Any, *names: str) -> None:
    """Raise an error for a field of a config, such as a dropout, that is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} is not in [0, 1)")


def field_docs(cls: type) -> dict[str, str]:
    """The string literal below each field, by field name (inherited ones included)."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for node, below in zip(body, body[1:], strict=False):
            if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
                    docs[node.target.id] = " ".join(below.value.value.split())  # type: ignore[union-attr]
    return docs


RENAMED = {"data.things": "data.objects"}
"""Fields that had another name, which stored recipes may hold; a config that has the old name keeps it."""


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a nested config by its dotted name."""
    leaves: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            leaves |= flatten(value, f"{prefix}{field.name}.")
        else:
            leaves[prefix + field.name] = value
    return leaves


def override(config: Any, changes: Mapping[str, Any], *, under: str = "") -> Any:
    """A copy of `config` with dotted fields replaced; strings are read as the field's type.

    All changes to one dataclass are made at once, so that checks in `__post_init__` see the final state.
    `under` is the dotted name of `config` itself, for errors.
    """
    names = {field.name for field in dataclasses.fields(config)}
    nested: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {}
    for key, value in changes.items():
        name, _, rest = key.replace("-", "_").partition(".")
        if name not in names and RENAMED.get(under + name, "").removeprefix(under) in names:
            name = RENAMED[under + name].removeprefix(under)
        if name not in names:
            deeper = [n for n in flatten(config) if n.rpartition(".")[2] == name] if not under else []
            cure = f"did you mean {deeper[0]!r}?" if deeper else nearest(under + name, [under + n for n in names])
            raise ValueError(f"unknown key {under + key!r}; {cure}")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            flat[name] = value
    hints = typing.get_type_hints(type(config))
    replaced = {name: parse(value, hints[name], under + name) for name, value in flat.items()}
    for name, inner in nested.items():
        part = replaced.get(name, getattr(config, name))
        if not dataclasses.is_dataclass(part):
            raise ValueError(f"{under + name!r} has no fields of its own, got {under}{name}.{next(iter(inner))}")
        replaced[name] = override(part, inner, under=f"{under}{name}.")
    return dataclasses.replace(config, **replaced)


def parse(value: Any, kind: Any, name: str) -> Any:
    """Return `value` parsed as the annotated type `kind`; a value that is not a string is only checked."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
        if type(None) in options:
            return None
    for option in options:
        parsed = _parse_one(value, option)
        if parsed is not _FAILED:
            return parsed
    raise ValueError(f"{name} takes {describe(kind)}, got {value!r}")


_FAILED = object()
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse_one(value: Any, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return value if value in typing.get_args(kind) else _FAILED
    if origin is tuple:
        item = typing.get_args(kind)[0]
        if not isinstance(value, (str, list, tuple)):
            return _FAILED
        items = [part for part in value.split(",") if part] if isinstance(value, str) else list(value)
        parsed = [_parse_one(part, item) for part in items]
        return _FAILED if _FAILED in parsed else tuple(parsed)
    if kind is bool:
        return value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower(), _FAILED)
    if kind in (int, float):
        if isinstance(value, bool):
            return _FAILED
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # of int(inf), int(nan)
            if kind is int and isinstance(value, (int, str)) and "e" not in str(value).lower():
                return int(value)
            number = float(value)
            if kind is float or number == int(number):
                return kind(number)
        return _FAILED
    if kind is str:
        return value if isinstance(value, str) else _FAILED
    return value if kind is Any or (isinstance(kind, type) and isinstance(value, kind)) else _FAILED


def describe(kind: Any) -> str:
    """A type annotation as a user reads it: `int or none`, `pre|post`."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(describe(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(str(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"{describe(typing.get_args(kind)[0])},…"
    return {type(None): "none", bool: "true|false"}.get(kind, getattr(kind, "__name__", str(kind)))


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a nested dictionary; a syntax error names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary with its keys joined by dots."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return out


def dump_toml(tree: Mapping[str, Any], *, under: str = "") -> str:
    """Nested dictionaries of scalars and lists as TOML; None, which TOML lacks, is written as "none"."""

    def scalar(value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(scalar(item) for item in value) + "]"
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return json.dumps("none" if value is None else value, ensure_ascii=False)

    lines = [f"{key} = {scalar(value)}" for key, value in tree.items() if not isinstance(value, Mapping)]
    for key, value in tree.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{under}{key}]", dump_toml(value, under=f"{under}{key}.").rstrip()]
    return "\n".join(lines).strip() + "\n"
