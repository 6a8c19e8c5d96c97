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
import os
import textwrap
import tomllib
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from regard.files import read_bytes

LISTED = 40
"""Names that an error lists at most."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The clause of an error message that names the closest known word, or lists them, as far as a line holds.

    The section that dotted names share says nothing: model.position is not close to model.dropout.
    """
    known = sorted(known)
    start = len(os.path.commonprefix([name, *known]).rpartition(".")[0])
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.6)
    close = [word for word in close if difflib.SequenceMatcher(None, name[start:], word[start:]).ratio() > 0.5]
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known[:LISTED])}{more}"


def nearest_field(name: str, fields: Iterable[str]) -> str:
    """The clause that names the dotted field with the last part closest to `name`, the later of equals, if any."""
    last = {field.rpartition(".")[2]: field for field in fields}
    close = difflib.get_close_matches(name[:100], last, n=1)
    return f"did you mean {last[close[0]]!r}?" if close else ""


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
            typo = "" if under else nearest_field(name, flatten(config))
            cure = typo or nearest(under + name, [under + n for n in names])
            raise ValueError(f"unknown key {under + key!r}; {cure}")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            flat[name] = value
    hints = typing.get_type_hints(type(config))
    for name, value in flat.items():
        part = getattr(config, name)
        if dataclasses.is_dataclass(part) and not dataclasses.is_dataclass(value):
            first = dataclasses.fields(part)[0].name
            raise ValueError(f"{under + name} has fields of its own, such as {first}; got {one_line(repr(value), 80)}")
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
    raise ValueError(f"{name} takes {describe(kind, IN_WORDS)}, got {one_line(repr(value), 80)}")


_FAILED = object()
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parse_one(value: Any, kind: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return next((choice for choice in typing.get_args(kind) if value in (choice, str(choice))), _FAILED)
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
                return _integer(int(value))
            number = float(value)
            if kind is float or number == int(number):
                return number if kind is float else _integer(int(number))
        return _FAILED
    if kind is str:
        return value if isinstance(value, str) else _FAILED
    return value if kind is Any or (isinstance(kind, type) and isinstance(value, kind)) else _FAILED


def _integer(value: int) -> Any:
    """A number of at most 64 bits, as TOML, safetensors and PyTorch have."""
    return value if abs(value) < 2**63 else _FAILED


IN_WORDS = {"int": "a whole number", "float": "a number", "str": "a text"}
"""Types as an error names them."""


def describe(kind: Any, words: Mapping[str, str] = types.MappingProxyType({})) -> str:
    """A type annotation as a user reads it: `int or none`, `pre|post`; `words` replace the names of types."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(describe(option, words) for option in typing.get_args(kind))
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(str(option) for option in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"{describe(typing.get_args(kind)[0], words)},…"
    name = {type(None): "none", bool: "true|false"}.get(kind, getattr(kind, "__name__", str(kind)))
    return words.get(name, name)


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a nested dictionary; an error names the file."""
    return _decode(path, "TOML", tomllib.loads)


def read_json(path: Path, cure: str = "write it again or restore it from a copy") -> dict[str, Any]:
    """The object in a JSON file; an error names the file, and `cure` what to do."""
    content = read_json_value(path, cure)
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {type(content).__name__}, not an object {{…}}; {cure}")
    return content


def read_json_value(path: Path, cure: str = "write it again or restore it from a copy") -> Any:
    """The value in a JSON file, of whatever type."""
    return _decode(path, "JSON", json.loads, cure)


MOST_BYTES = 1 << 26
"""Most bytes of a JSON or TOML file that is read."""
DEEPEST = 64
"""Most levels of lists and objects in one another."""


def _decode(path: Path, kind: str, decode: Callable[[str], Any], cure: str = "correct it") -> Any:
    """The content of a regular file of a limited size and depth."""
    try:
        content = decode(read_bytes(path, MOST_BYTES).decode("utf-8"))
        check_depth(content)
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}; check the path, or {cure}") from None
    except RecursionError:
        raise ValueError(f"{path} is not valid {kind}: more than {DEEPEST} levels of nesting; {cure}") from None
    except ValueError as error:  # of all decoders, and for a number with thousands of digits
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path} is not valid {kind}: {one_line(error)}; {cure}") from None
    return content


def check_depth(content: Any) -> None:
    """Raise a RecursionError for lists and dictionaries that are nested too deeply."""
    level = [content]
    for _ in range(DEEPEST):
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [
            inner for part in parts if isinstance(part, Iterable) for inner in part if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def one_line(error: object, most: int = 200) -> str:
    """A text without line breaks and cut to `most` characters, as for the error of a library or for a value."""
    text = " ".join(str(error).split())
    return text if len(text) <= most else text[: most - 1] + "…"


@contextlib.contextmanager
def reading(path: Path, cure: str = "copy it again") -> Iterator[None]:
    """Context manager around what interprets the content of a file: a value of a wrong type, a missing one or one that
    cannot be computed with is an error of one line that names the file, and the line of a plugin if it arose there."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if line := plugin_line(error):
            fact = f"{line} failed for the values in {path} ({type(error).__name__}: {one_line(error)})"
            raise ValueError(f"{fact}; correct that code, or the file") from error
        what = "no" if isinstance(error, LookupError) else "wrong value:"
        raise ValueError(f"{path}: not complete or damaged ({what} {one_line(error)}); {cure}") from None
    except ValueError as error:
        named = str(path) in str(error) or str(error).startswith(f"{path.parent}/")  # this file, or one beside it
        raise ValueError(str(error) if named else f"{path}: {one_line(error, 2000)}") from None


def plugin_line(error: BaseException) -> str:
    """The file and line of the last step to an error in code that uses this package and is none of it; "" if there is
    no such step. The first two steps are `reading` and whoever calls it."""

    def ours(name: str | None) -> bool:
        return (name or "").partition(".")[0] == "regard"

    kinds = type | types.FunctionType | types.ModuleType
    lines = [
        f"{frame.f_code.co_filename}, line {number}"
        for frame, number in list(traceback.walk_tb(error.__traceback__))[2:]
        if not ours(frame.f_globals.get("__name__"))
        and any(
            ours(value.__name__ if isinstance(value, types.ModuleType) else value.__module__)
            for value in frame.f_globals.values()
            if isinstance(value, kinds)
        )
    ]
    return lines[-1] if lines else ""


MOST_SIZE = 1 << 24
"""Most that a size of a model may be, unless its weights hold more values than this."""
MOST_ENTRIES = 4096
"""Most that a list of a model's config may hold, unless its weights hold more values than this."""


def check_sizes(fields: Mapping[str, Any], values: int = 0) -> None:
    """Raise an error for a field that is larger than any size of a model whose weights hold so many values can be."""
    most = max(MOST_SIZE, values)
    for name, value in fields.items():
        if values and isinstance(value, list | tuple | dict) and len(value) > max(MOST_ENTRIES, values):
            raise ValueError(
                f"{name} has {len(value):,} entries, the weights hold {values:,} values; save the checkpoint again"
            )
        for size in value if isinstance(value, list | tuple) else [value]:
            if isinstance(size, int | float) and not isinstance(size, bool) and abs(size) > most and size == size // 1:
                held = f"; the weights hold {values:,} values" if values else ""
                raise ValueError(f"{name}={one_line(size, 40)} is too large, at most {most:,} can be read{held}")


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
