"""Configs: dotted overrides, types read from text, errors that name the nearest key, TOML there and back."""

import dataclasses
import importlib
import importlib.util
import json
import pkgutil
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

import regard
from regard.config import (
    describe,
    dotted,
    dump_toml,
    field_docs,
    flatten,
    nearest,
    override,
    parse,
    read_toml,
    reading,
    to_dict,
)
from regard.models import preset
from regard.registry import Registry, models


@dataclass(frozen=True, kw_only=True, slots=True)
class Optim:
    """The innermost."""

    rate: float = 0.001
    """Of learning."""
    betas: tuple[float, ...] = (0.9, 0.98)
    """Two means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Train:
    """In the middle."""

    steps: int = 100
    """How many."""
    seed: int | None = None
    """Of everything."""
    compile: bool = False
    """Faster, later."""
    mode: Literal["pre", "post", "none"] = "pre"
    """One of three,
    over two lines."""
    label: str = "a"
    """Any text."""
    optim: Optim = field(default_factory=Optim)
    """Nested."""

    def __post_init__(self):
        if self.steps % 10:
            raise ValueError(f"steps={self.steps} is no multiple of 10")


@dataclass(frozen=True, kw_only=True, slots=True)
class Everything:
    """The outermost."""

    low: int = 1
    """Less than high."""
    high: int = 2
    """More than low."""
    anything: Any = 0
    """Of no particular type."""
    train: Train = field(default_factory=Train)
    """Nested twice."""

    def __post_init__(self):
        if self.low >= self.high:
            raise ValueError(f"low={self.low} is not below high={self.high}")


def all_configs():
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        found = importlib.import_module(module.name)
        for name, value in vars(found).items():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.name:
                if name.endswith("Config") or name == "Recipe":
                    yield value
    yield from (models[family].config_class for family in models)


@pytest.mark.parametrize("cls", sorted(set(all_configs()), key=str), ids=lambda cls: cls.__name__)
def test_every_config_is_frozen_and_documents_every_field(cls):
    docs = field_docs(cls)
    missing = [f.name for f in dataclasses.fields(cls) if not docs.get(f.name)]
    assert not missing, f"{cls.__name__}: no line below {missing}"
    parameters = cls.__dataclass_params__
    assert parameters.frozen and "__slots__" in vars(cls) and all(f.kw_only for f in dataclasses.fields(cls))
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")


def test_field_docs_join_lines_and_include_inherited_fields():
    assert field_docs(Train)["mode"] == "One of three, over two lines."
    transformer = field_docs(models["transformer"].config_class)
    assert transformer["dim"] == "Width of the token vectors." and "tie" in transformer

    class Plain(Train):
        pass

    assert field_docs(Plain)["steps"] == "How many."


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Everything().low = 0
    with pytest.raises((AttributeError, TypeError)):
        Everything().new = 0
    with pytest.raises(TypeError):
        Everything(1)


def test_override_by_dotted_name():
    base = Everything()
    changed = override(base, {"train.optim.rate": "3e-4", "train.steps": "1e3", "high": 9, "train.seed": "7"})
    assert changed.train.optim.rate == 3e-4 and changed.train.steps == 1000
    assert changed.high == 9 and changed.train.seed == 7 and changed.train.label == "a"
    assert base == Everything()
    assert override(base, {}) == base
    assert override(base, {"train": Train(steps=50), "train.label": "b"}).train == Train(steps=50, label="b")
    assert override(base, {"anything": [1, 2]}).anything == [1, 2]


def test_dashes_are_underscores():
    assert preset("transformer", "tiny", **{"ffn-dim": "64"}).ffn_dim == 64


def test_changes_to_one_config_are_made_at_once():
    assert override(Everything(), {"low": 5, "high": 6}).low == 5
    with pytest.raises(ValueError, match="low=5 is not below high=2"):
        override(Everything(), {"low": 5})
    with pytest.raises(ValueError, match="steps=7 is no multiple of 10"):
        override(Everything(), {"train.steps": 7})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("hgih", "unknown key 'hgih'; did you mean 'high'?"),
        ("train.stepz", "unknown key 'train.stepz'; did you mean 'train.steps'?"),
        ("train.optim.rats", "unknown key 'train.optim.rats'; did you mean 'train.optim.rate'?"),
        ("stpes", "unknown key 'stpes'; did you mean 'train.steps'?"),
        ("trian.steps", "unknown key 'trian.steps'; did you mean 'train'?"),
        ("zzz", "unknown key 'zzz'; known: anything, high, low, train"),
        ("high.inner", "'high' has no fields of its own, got high.inner"),
        ("train.steps.x", "'train.steps' has no fields of its own, got train.steps.x"),
    ],
)
def test_unknown_keys_name_their_neighbour(key, message):
    # further keys, good ones, must not be taken for the bad one
    changes = {"train.optim.betas": "0.1", "train.label": "x", key: "1"}
    with pytest.raises(ValueError) as caught:
        override(Everything(), changes)
    assert str(caught.value) == message


def test_errors_of_nested_values_carry_the_whole_name():
    with pytest.raises(ValueError, match=r"train.optim.rate takes a number, got 'fast'"):
        override(Everything(), {"train.optim.rate": "fast"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "12", 12),
        (int, "1e6", 1_000_000),
        (int, "-3", -3),
        (int, 4.0, 4),
        (int, str(2**53 + 1), 2**53 + 1),
        (int, 2**63 - 1, 2**63 - 1),
        (float, "3", 3.0),
        (float, 3, 3.0),
        (float, "1e-9", 1e-9),
        (bool, "true", True),
        (bool, "No", False),
        (bool, "1", True),
        (bool, False, False),
        (str, "none", "none"),
        (str, "3", "3"),
        (int | None, "none", None),
        (int | None, None, None),
        (int | None, "3", 3),
        (str | None, "none", None),
        (Literal["pre", "post", "none"], "none", "none"),
        (Literal[2, 4], "4", 4),
        (tuple[int, ...], "1,2,3", (1, 2, 3)),
        (tuple[float, ...], [1, 0.5], (1.0, 0.5)),
        (tuple[str, ...], "a,b", ("a", "b")),
        (tuple[int, ...], "", ()),
        (Any, "x", "x"),
    ],
)
def test_text_is_read_as_the_field_says(kind, text, value):
    got = parse(text, kind, "field")
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (int, "1.5", "field takes a whole number, got '1.5'"),
        (int, "inf", "field takes a whole number, got 'inf'"),
        (int, "nan", "field takes a whole number, got 'nan'"),
        (int, True, "field takes a whole number, got True"),
        (int, "none", "field takes a whole number, got 'none'"),
        (int, None, "field takes a whole number, got None"),
        (float, "x", "field takes a number, got 'x'"),
        (float, [1], r"field takes a number, got \[1\]"),
        (bool, "maybe", r"field takes true\|false, got 'maybe'"),
        (bool, 2, r"field takes true\|false, got 2"),
        (str, 3, "field takes a text, got 3"),
        (int | None, "x", "field takes a whole number or none, got 'x'"),
        (Literal["pre", "post"], "mid", r"field takes pre\|post, got 'mid'"),
        (tuple[int, ...], "1,x", "field takes a whole number,…, got '1,x'"),
        (tuple[int, ...], 3, "field takes a whole number,…, got 3"),
    ],
)
def test_what_does_not_fit_says_what_would(kind, text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        parse(text, kind, "field")


def test_types_as_a_user_reads_them():
    assert describe(int | None) == "int or none"
    assert describe(Literal["a", "b"]) == "a|b"
    assert describe(tuple[int, ...]) == "int,…"


def test_flatten_and_dotted_agree():
    config = Everything()
    assert flatten(config) == dotted(to_dict(config))
    assert list(flatten(config))[-2:] == ["train.optim.rate", "train.optim.betas"]


def test_toml_there_and_back(tmp_path):
    config = override(
        Everything(),
        {"train.label": 'quote " backslash \\ ü ✓ = #', "train.mode": "none", "train.optim.rate": 1e-7, "high": 3},
    )
    path = tmp_path / "config.toml"
    path.write_text(dump_toml(to_dict(config)), encoding="utf-8")
    assert "[train.optim]" in path.read_text(encoding="utf-8")
    assert override(Everything(), dotted(read_toml(path))) == config


def test_toml_of_what_json_cannot_say(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(dump_toml({"a": float("inf"), "b": None, "c": {"d": {"e": [1, 2]}}, "f": True}), encoding="utf-8")
    assert read_toml(path) == {"a": float("inf"), "b": "none", "c": {"d": {"e": [1, 2]}}, "f": True}


@pytest.mark.parametrize("family", list(models))
def test_every_preset_survives_toml(family, tmp_path):
    for name in models[family].presets:
        config = preset(family, name)
        path = tmp_path / f"{name.replace('/', '-')}.toml"
        path.write_text(dump_toml(to_dict(config)), encoding="utf-8")
        assert override(models[family].config_class(), dotted(read_toml(path))) == config


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such file: .*missing.toml"):
        read_toml(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("steps = = 3\n")
    with pytest.raises(ValueError, match=r"bad.toml is not valid TOML: .*line 1"):
        read_toml(tmp_path / "bad.toml")


def test_presets():
    assert preset("transformer", "base").dim == 512 and preset("transformer", "big", heads=8).heads == 8
    with pytest.raises(ValueError, match="transformer has no preset 'bsae'; did you mean 'base'?"):
        preset("transformer", "bsae")
    with pytest.raises(ValueError, match="unknown model 'transfomer'; did you mean 'transformer'?"):
        preset("transfomer", "base")
    with pytest.raises(ValueError, match="unknown key 'head'; did you mean 'heads'?"):
        preset("transformer", "base", head=8)


def test_registry():
    words = Registry("word")
    assert words.register("b")(len) is len
    words.register("a")(max)
    assert list(words) == ["a", "b"] and "a" in words and "c" not in words
    assert words["b"] is len and words.name_of(max) == "a"
    with pytest.raises(ValueError, match="word 'a' is registered already; choose another name"):
        words.register("a")(min)
    with pytest.raises(ValueError, match="unknown word 'zzz'; known: a, b"):
        words["zzz"]


def test_nearest():
    assert nearest("stpes", ["steps", "seed"]) == "did you mean 'steps'?"
    assert nearest("q", ["steps", "seed"]) == "known: seed, steps"
    fields = ["model.dropout", "model.cell", "model.lr"]
    assert nearest("model.dropuot", fields) == "did you mean 'model.dropout'?"
    assert nearest("model.lt", fields) == "did you mean 'model.lr'?"
    assert nearest("model.position", fields).startswith("known: "), "what they share is no likeness"


def test_an_error_in_the_code_of_a_plugin_names_its_line(tmp_path):
    source = (
        "from regard.config import nearest\n\nclass Model:\n    def __init__(self):\n        self.heads = self.missing"
    )
    (tmp_path / "mine.py").write_text(source)
    spec = importlib.util.spec_from_file_location("mine", tmp_path / "mine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(
        ValueError, match=r"mine.py, line 5 failed for the values in .*c.json .AttributeError: .*missing"
    ):
        with reading(tmp_path / "c.json"):
            module.Model()
    with pytest.raises(ValueError, match=r"c.json: not complete or damaged .no 'a'.; copy it again"):
        with reading(tmp_path / "c.json"):
            json.loads("{}")["a"]
