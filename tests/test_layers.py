"""The way that data goes is the way that folders are listed: nothing imports from below itself."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

import regard.models
from regard.nn.attention import Attention, AttentionConfig

ROOT = Path(regard.models.__file__).parents[1]
FILES = sorted(ROOT.rglob("*.py"))

# Each imports only from those before it. `regard/__init__.py` is the front door: it names what lives anywhere.
ORDER = [
    "files", "config", "registry",
    "data", "tokens", "nn", "native", "models", "objectives", "cost", "train", "doctor", "decode", "hub", "modalities",
    "tasks", "runs", "inside", "eval", "recipes", "bench", "why", "decide", "claims", "serve",
    "cli", "__main__", "__init__",
]  # fmt: skip


def layer_of(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def module_name(path: Path) -> str:
    parts = ["regard", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports(source: str, module: str, *, is_package: bool = False):
    """Every regard module that a source imports, at the top or inside a function, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base]).strip(".")
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "regard" else [base]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name.split(".")[0] == "regard")


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    own = layer_of(module)
    found = []
    for name, line in imports(source, module, is_package=is_package):
        other = layer_of(name)
        if other == "__init__" and own not in ("cli", "__main__", "__init__"):
            found.append(f"{module}:{line} imports the whole package")
        elif other in ORDER and own in ORDER and ORDER.index(other) > ORDER.index(own):
            found.append(f"{module}:{line} imports {name}, which stands after it")
        elif name.startswith("regard.hub.maps.") and own != "hub":
            found.append(f"{module}:{line} imports {name}: other projects' names are for the hub alone")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_come_from_above(path):
    module = module_name(path)
    assert layer_of(module) in ORDER, f"{module} has no place in the order of tests/test_layers.py"
    found = violations(path.read_text(encoding="utf-8"), module, is_package=path.name == "__init__.py")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "module", "allowed"),
    [
        ("from regard.nn.masks import causal", "regard.models.gpt", True),
        ("from regard.models.gpt import GPT", "regard.nn.masks", False),
        ("def f():\n    import regard.train.loop", "regard.decode.beam", True),
        ("def f():\n    import regard.train.loop", "regard.nn.stack", False),
        ("from regard import recipes", "regard.train.loop", False),
        ("from regard.hub.maps.bert import BERT", "regard.tasks.tagger", False),
        ("from regard.hub.maps.bert import BERT", "regard.hub.maps.roberta", True),
        ("from regard import config", "regard.train.loop", True),
        ("from ..train import loop", "regard.nn.stack", False),
        ("from . import masks", "regard.nn.stack", True),
        ("from .. import train", "regard.nn", False),
        ("import regard", "regard.nn.stack", False),
        ("import torch", "regard.nn.stack", True),
        ("from regard.registry import models", "regard.config", False),
    ],
)
def test_the_check_itself(source, module, allowed):
    assert (not violations(source, module, is_package=module == "regard.nn")) is allowed


def test_no_drawers_for_odds_and_ends():
    drawers = [path for path in FILES if path.stem in ("utils", "util", "common", "helpers", "helper", "misc")]
    assert not drawers


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_longer_than_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


FAMILIES = [path for path in FILES if path.parent.name == "models"]


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.name)
def test_a_family_is_shorter_than_200_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 200


def test_the_core_stays_small():
    assert len(fields(AttentionConfig)) <= 10
    assert len(inspect.getsource(Attention.forward).splitlines()) <= 40


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.name)
def test_a_family_says_only_what_differs(path):
    """No softmax, no loss, no generation, no download, no print in a family file."""
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    assert not called & {"softmax", "log_softmax", "cross_entropy", "masked_fill", "multinomial", "print", "urlopen"}


def test_the_front_door_is_counted_and_light():
    """At most 25 public names; `import regard` itself imports no torch (its names are looked up when used)."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    assert len(regard.__all__) <= 25
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert all(getattr(node, "module", None) in ("typing", "importlib", "importlib.metadata") for node in top)
