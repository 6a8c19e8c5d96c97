"""Recipes, families and their fields as the package's own source states them, read without importing it.

Importing PyTorch takes seconds. A typing error, a list of recipes or a completion in the shell must not wait for it, so
this module only parses files: the names in `register_…("name")`, the docstring of each recipe, the fields of each
config. A test holds it to what the imported package registers.
"""

import ast
import contextlib
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from regard.config import describe, nearest, parse
from regard.registry import OWN

PACKAGE = Path(__file__).parents[1]
SECTIONS = ("model", "data", "train")
CONFIGS = ("data/sets/*.py", "train/config.py", "models/*.py", "nn/block.py", "recipes/*.py")
"""Files that define configs."""
PLACES = {"model": "models/*.py", "kernel": "nn/kernels/*.py", "position": "nn/positions.py"}
"""Files that register the entries of each registry."""
NAMES: dict[str, Any] = {
    "int": int, "float": float, "str": str, "bool": bool, "tuple": tuple, "Literal": Literal, "Any": Any,
}  # fmt: skip
"""Names that an annotation may use; the type of a field with others is not known here."""


@dataclass(frozen=True)
class Field:
    """A field of a config: its line of documentation, and its annotation as it is written."""

    name: str
    doc: str
    annotation: str

    @property
    def kind(self) -> Any:
        """The type that the annotation names; `Any` where it takes more than this module to tell."""
        try:
            return eval(self.annotation, {"__builtins__": {}}, NAMES | aliases())  # of our own source
        except (NameError, TypeError):
            return Any

    @property
    def choices(self) -> list[str]:
        """The values of a field that has a few; [] for any other."""
        options = [self.kind, *typing.get_args(self.kind)]
        named = [
            str(value) for kind in options if typing.get_origin(kind) is Literal for value in typing.get_args(kind)
        ]
        return named or (["true", "false"] if bool in options else [])


@dataclass(frozen=True)
class Outline:
    """A recipe as its file describes it."""

    name: str
    data: str
    """The class of its data's config."""
    families: tuple[str, ...]
    """The families that it may build by itself."""

    def fields(self, section: str, families: tuple[str, ...] | None = None) -> dict[str, Field]:
        """The fields of its model, data or training by name; of its model those of every family that is possible."""
        if section != "model":
            return fields_of(self.data if section == "data" else "TrainConfig")
        chosen = families or self.families
        return {name: field for family in chosen for name, field in config_of(family).items()}


@cache
def source(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(source(path))


def matches(pattern: str, *places: str) -> dict[str, Path]:
    """What a pattern matches in files of the package, with the file: quicker than parsing them all."""
    files = [path for place in places for path in sorted(PACKAGE.glob(place))]
    return {name: path for path in files for name in re.findall(pattern, source(path), re.MULTILINE)}


@cache
def aliases() -> dict[str, Any]:
    """The named types of files that define configs, such as Tune = Literal["all", "head", "lora"]."""
    found: dict[str, Any] = {}
    for path in (path for place in (*CONFIGS, "nn/*.py") for path in PACKAGE.glob(place)):
        for name, text in re.findall(
            r"^([A-Z]\w+) = ((?:Literal|int|str|float|tuple)\b.*)$", source(path), re.MULTILINE
        ):
            with contextlib.suppress(NameError, TypeError, SyntaxError):
                found[name] = eval(text, {"__builtins__": {}}, NAMES)
    return found


@cache
def homes() -> dict[str, Path]:
    """The file of each class in files that define configs."""
    return matches(r"^class (\w+)", *CONFIGS)


@cache
def class_node(name: str) -> ast.ClassDef:
    """The definition of a class."""
    return next(node for node in parsed(homes()[name]).body if isinstance(node, ast.ClassDef) and node.name == name)


def bases_of(node: ast.ClassDef) -> list[str]:
    """The bases of a class that are defined in files of configs, too."""
    return [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in homes()]


@cache
def fields_of(config: str) -> dict[str, Field]:
    """The fields of a config class, inherited ones first."""
    node = class_node(config)
    result: dict[str, Field] = {}
    for base in reversed(bases_of(node)):
        result |= fields_of(base)
    for statement, below in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        name, annotation = statement.target.id, ast.unparse(statement.annotation)
        if not annotation.startswith("ClassVar"):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            doc = " ".join(text.split()) if isinstance(text, str) else result[name].doc if name in result else ""
            result[name] = Field(name, doc, annotation)
    return result


@cache
def registered(what: str) -> dict[str, Path]:
    """The names of all models, kernels or positions, each with its file."""
    return dict(sorted(matches(rf'^@?register_{what}\("([^"]+)"\)', PLACES[what]).items()))


@cache
def family_node(family: str) -> ast.ClassDef:
    """The definition of a family's class."""
    for node in parsed(registered("model")[family]).body:
        if isinstance(node, ast.ClassDef) and family in registrations(node, "model"):
            return node
    raise AssertionError(family)


def registrations(node: Any, what: str) -> list[str]:
    """The constant names that decorators `register_WHAT("name")` give to a class or function."""
    return [
        str(call.args[0].value)
        for call in node.decorator_list
        if isinstance(call, ast.Call) and called(call) == f"register_{what}" and isinstance(call.args[0], ast.Constant)
    ]


def value_in(node: ast.ClassDef, name: str) -> ast.expr | None:
    """What the body of a class, or of its first base, assigns to a name."""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return statement.value  # type: ignore[attr-defined]
    return next((value_in(class_node(base), name) for base in bases_of(node)), None)


def config_of(family: str) -> dict[str, Field]:
    """The fields of a family's config."""
    value = value_in(family_node(family), "config_class")
    assert value is not None, f"{family} has no config_class"
    return fields_of(ast.unparse(value))


def presets(family: str) -> list[str]:
    """The names of a family's presets."""
    value = value_in(family_node(family), "presets")
    keys = value.keys if isinstance(value, ast.Dict) else []
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


# ---- recipes ----------------------------------------------------------------------------------------------------


@cache
def recipe_files() -> dict[str, Path]:
    """The names of all recipes, each with the file whose docstring shows its command."""
    names: dict[str, Path] = {}
    for path in sorted((PACKAGE / "recipes").glob("*.py")):
        for name in re.findall(r"^regard train ([\w-]+)", docstring(path), re.MULTILINE):
            names.setdefault(name, path)
    return dict(sorted(names.items()))


def docstring(path: Path) -> str:
    """The docstring at the head of a file."""
    return source(path).split('"""', 2)[1] if source(path).startswith('"""') else ""


@cache
def recipe(name: str) -> Outline:
    """The outline of a recipe of the package."""
    path = recipe_files()[name]
    functions = [node for node in parsed(path).body if isinstance(node, ast.FunctionDef)]
    # Without a function of its own it is registered by a loop over a table of the file.
    start: ast.AST = next((node for node in functions if name in registrations(node, "recipe")), parsed(path))
    nodes = [node for part in reachable(path, start) for node in ast.walk(part)]
    words = {node.value for node in nodes if isinstance(node, ast.Constant)}
    data = next(called(node) for node in nodes if isinstance(node, ast.Call) and is_data(called(node)))
    families = tuple(family for family in registered("model") if family in words) or ("transformer",)
    return Outline(name, data, families)


def called(node: ast.Call) -> str:
    """The name of the function that is called; '' for anything but a plain name."""
    return node.func.id if isinstance(node.func, ast.Name) else ""


def is_data(name: str) -> bool:
    """Whether a config is one of data: a class that derives from `Data`."""
    return name == "Data" or name in homes() and any(map(is_data, bases_of(class_node(name))))


def reachable(path: Path, start: ast.AST) -> list[ast.AST]:
    """A syntax node and the functions that it calls, of its own file or of another recipe's."""
    functions: dict[str, ast.AST] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("regard.recipes."):
            other = PACKAGE / "recipes" / f"{str(node.module).rpartition('.')[2]}.py"
            for each in parsed(other).body:
                if isinstance(each, ast.FunctionDef) and each.name in {alias.name for alias in node.names}:
                    functions[each.name] = each
    result, queue = [start], [start]
    while queue:
        calls = [node for node in ast.walk(queue.pop()) if isinstance(node, ast.Call)]
        new = [functions[name] for name in dict.fromkeys(map(called, calls)) if name in functions]
        new = [function for function in new if function not in result]
        result, queue = result + new, queue + new
    return result


def description(name: str) -> tuple[str, str]:
    """What a recipe learns, and the time that takes ('' where none is stated), from the docstring of its file."""
    lines = docstring(recipe_files()[name]).splitlines()
    first = next(i for i, line in enumerate(lines) if re.match(rf"regard train {re.escape(name)}(\s|$)", line))
    aside = re.search(r"\s{2,}(.+)", lines[first])
    below = takewhile(
        lambda line: line.startswith(" ") or re.match(r"regard train [\w-]+\s{2,}", line), lines[first + 1 :]
    )
    learns = re.split(r": [\d,]+ steps", aside[1])[0] if aside else lines[0].split(". ")[0].rstrip(".")
    text = " ".join([aside[1] if aside else "", *map(str.strip, below)])
    minutes = re.search(r"[^,;:(]*\bminutes?\b[^,;:).]*", text)
    return learns, minutes[0].strip() if minutes else ""


# ---- checks -----------------------------------------------------------------------------------------------------


def check_recipe(name: str) -> None:
    """Raise an error for a recipe that the package does not have."""
    if name not in recipe_files():
        raise ValueError(f"unknown recipe {name!r}; {nearest(name, recipe_files())}{OWN}")


def check_entry(what: str, value: Any) -> str:
    """Return the name of a registered model, kernel or position without its settings; raise an error for another."""
    name = str(value).partition(":")[0]
    if name not in registered(what):
        raise ValueError(f"unknown {what} {name!r}; {nearest(name, registered(what))}{OWN}")
    return name


def check_fields(name: str, changes: Mapping[str, Any], *, any_family: bool = False) -> None:
    """Raise an error for a recipe, a field or a value of a field that the package does not have.

    With `any_family`, fields of every family are taken for known. What depends on files is left to the recipe itself.
    """
    check_recipe(name)
    plan, changes = recipe(name), {key.replace("-", "_"): value for key, value in changes.items()}
    named = changes.get("model") or changes.get("family")
    families = plan.families if changes.get("data.base") is None and not any_family else tuple(registered("model"))
    if named:
        families = (check_entry("model", named),)
        check_preset(families, str(named).partition(":")[2])
    check_preset(families, changes.get("model.preset"))
    for key, value in changes.items():
        section, _, rest = key.partition(".")
        if key in ("model", "family", "model.preset", "name"):
            continue
        if section not in SECTIONS or not rest:
            deeper = [f"{part}.{key}" for part in SECTIONS if key in plan.fields(part, families)]
            cure = f"did you mean {deeper[0]!r}?" if deeper else nearest(key, ("family", *SECTIONS, "name"))
            raise ValueError(f"unknown key {key!r}; {cure}")
        known = plan.fields(section, families)
        field, deeper_field, _ = rest.partition(".")
        if field not in known:
            options = [f"{section}.{name}" for name in known]
            raise ValueError(f"unknown key {key!r}; {nearest(f'{section}.{field}', options)}")
        if section == "model" and field in ("kernel", "position") and isinstance(value, str):
            check_entry(field, value)
        elif not deeper_field:
            parse(value, known[field].kind, key)


def check_size(what: str, changes: Mapping[str, Any]) -> None:
    """Raise an error for FAMILY:PRESET whose family is unknown, or for a field that its config lacks."""
    family, colon, size = what.rpartition(":")
    family = check_entry("model", family) if colon and not Path(what).exists() else "transformer"
    if size in presets(family):
        for key, value in changes.items():
            if (name := key.replace("-", "_")) not in config_of(family):
                raise ValueError(f"unknown key {name!r}; {nearest(name, config_of(family))}")
            if name in ("kernel", "position"):
                check_entry(name, value)


def check_preset(families: tuple[str, ...], name: Any) -> None:
    """Raise an error for a preset that none of the families has."""
    known = [size for family in families for size in presets(family)]
    if name and known and name not in known:
        raise ValueError(f"{' or '.join(families)} has no preset {name!r}; {nearest(str(name), known)}")


def render_fields(name: str, sections: tuple[str, ...] = SECTIONS) -> str:
    """The fields of a recipe, each with its line of documentation and the type of its value."""
    return "\n".join(
        f"  {option_of(section, field.name):28} {field.doc} [{describe(field.kind)}]"
        for section in sections
        for field in recipe(name).fields(section).values()
    )


def option_of(section: str, field: str) -> str:
    """A field as it is set at the command line."""
    return f"--{section}.{field.replace('_', '-')}"


def render_recipes() -> str:
    """A line for each recipe: its name, what it learns, and its minutes."""
    lines = []
    for name in recipe_files():
        learns, minutes = description(name)
        lines.append(f"  {name:14} {learns}" + (f" ({minutes})" if minutes else ""))
    return "\n".join(lines)
