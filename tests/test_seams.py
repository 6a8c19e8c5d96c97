"""The seams above the core: nobody outside asks what kind of model this is, and no module imports in a circle."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard.models
from regard.registry import models, tasks
from tests.test_layers import FILES, ORDER, ROOT, imports, layer_of, module_name

ROOMS = ("models", "tasks", "modalities", "hub/maps")
"""Folders that may ask about families and tasks."""
MOST_QUESTIONS = 8


def outside() -> list[tuple[str, ast.Module]]:
    """The files outside the rooms, parsed."""
    named = [(str(path.relative_to(ROOT)), path) for path in FILES]
    return [(name, ast.parse(path.read_text(encoding="utf-8"))) for name, path in named if not name.startswith(ROOMS)]


def classes_of_families_and_tasks() -> set[str]:
    folders = [path for path in FILES if path.relative_to(ROOT).parts[0] in ("models", "tasks")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folders]
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def questions(tree: ast.Module, kinds: set[str]) -> Iterator[ast.Call]:
    """Calls of isinstance and issubclass on families or tasks, and every hasattr."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id == "hasattr" and isinstance(node.args[0], ast.Name) and node.args[0].id in SUBJECTS:
            yield node
        if node.func.id in ("isinstance", "issubclass") and len(node.args) == 2:
            names = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            if names & kinds:
                yield node


SUBJECTS = ("model", "task", "loaded", "config", "module", "inputs", "tower")
"""Names of variables that hold a model, its task, its config or its inputs."""


def test_nobody_else_asks_what_kind_of_model_this_is():
    kinds = classes_of_families_and_tasks()
    found = [f"{name}:{node.lineno} {ast.unparse(node)}" for name, tree in outside() for node in questions(tree, kinds)]
    assert len(found) <= MOST_QUESTIONS, "\n".join(found)


def test_the_count_of_questions_can_fail():
    tree = ast.parse('if isinstance(task, Translator) or hasattr(model, "encoder"):\n    pass')
    assert len(list(questions(tree, {"Translator"}))) == 2


def test_no_family_is_named_outside_its_file_map_and_recipe():
    """Families and their configs by class; the benchmarks and the command line may choose one by its name."""
    own = {cls.__name__ for name in models if (cls := models[name]).__module__.startswith("regard.")}
    own |= {f"{name}Config" for name in own}
    found = []
    for name, tree in outside():
        if name.startswith("recipes"):
            continue
        for node in ast.walk(tree):
            used = {node.id} if isinstance(node, ast.Name) else set()
            used |= {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            found += [f"{name}:{node.lineno} {one}" for one in used & own]
    assert not found, "\n".join(found)


def graph() -> dict[str, set[str]]:
    """The modules that each module imports, at the top or inside a function, but not for type checkers alone."""
    names = {module_name(path).removesuffix(".__init__"): path for path in FILES}
    edges: dict[str, set[str]] = {}
    for name, path in names.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
                node.body = [ast.Pass()]
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {one if one in names else node.module for one in whole}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        edges[name] = {one for one in found if one in names and one != name}
    return edges


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by Kosaraju's two walks."""
    order: list[str] = []
    seen: set[str] = set()

    def walk(name: str, along: dict[str, set[str]], out: list[str]) -> None:
        seen.add(name)
        for other in along[name] - seen:
            if other not in seen:
                walk(other, along, out)
        out.append(name)

    for name in edges:
        if name not in seen:
            walk(name, edges, order)
    back: dict[str, set[str]] = {name: set() for name in edges}
    for name, others in edges.items():
        for other in others:
            back[other].add(name)
    seen.clear()
    groups = []
    for name in reversed(order):
        if name not in seen:
            group: list[str] = []
            walk(name, back, group)
            groups.append(group)
    return [sorted(group) for group in groups if len(group) > 1]


def test_no_modules_import_each_other():
    assert not circles(graph())


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_every_folder_has_a_place():
    assert {layer_of(module_name(path)) for path in FILES} <= set(ORDER)
    assert imports and regard.models


def test_every_family_names_a_registered_task():
    for name in models:
        assert models[name].task is not None, f"{name} names no task"
        declared = models[name].task
        assert isinstance(declared, property) or declared in tasks, name


@pytest.mark.parametrize("name", sorted(tasks))
def test_a_task_declares_itself(name):
    task = tasks[name]
    assert task.inputs and task.verbs and task.name == name
    for verb in task.verbs:
        assert callable(getattr(task, verb.name)) and verb.does


def test_plugins_stay_small():
    for path in (Path(__file__).parent / "plugins").glob("[a-su-z]*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 120, path.name


RIDDLE = re.compile(r"(What|How|The same|Who|Whose|As)\b|.*\b(pictures?|likeness|chances?|told)\b", re.DOTALL)
"""Beginnings that need their context, and words that the field does not use."""


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Texts that stand as statements: docstrings of modules, classes, functions and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def test_a_docstring_stands_alone():
    trees = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in FILES]
    riddles = [
        f"{path}:{doc.lineno} {doc.value}"
        for path, tree in trees
        for doc in docstrings(tree)
        if RIDDLE.match(doc.value)
    ]
    assert not riddles, "\n".join(riddles)


def test_a_riddle_is_found():
    tree = ast.parse(
        'def f():\n    """The same, sorted."""\n\nx = 1\n"""A list of\n pictures."""\ny = 2\n"""As-is rows."""'
    )
    assert [bool(RIDDLE.match(doc.value)) for doc in docstrings(tree)] == [True, True, True]
