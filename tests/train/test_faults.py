"""Every write, flush and rename fails once, in turn: the run goes on bit for bit, or the error is one clear line."""

import errno
import os
import pathlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import regard.recipes.translate as run
from regard.recipes import fit
from regard.tasks.bulk import Answers
from regard.tasks.loading import load
from regard.train.memory import OutOfMemory, memory_need
from tests.train.test_loop import losses, weights

EVERY = 17
"""In the suite, one point of so many is tried; all of them with --slow."""


class Faults:
    """Counts the calls that change the disk, and lets the one with the number `at` fail as `kind` says: by an error,
    or, "lost", by a power failure after which a renamed file is there and its content is not."""

    def __init__(self, patch, at=0, kind="error"):
        self.count, self.at, self.kind = 0, at, kind
        for module, name in ((os, "fsync"), (os, "replace"), (os, "rename"), (safetensors.torch, "save_file")):
            patch.setattr(module, name, self.around(getattr(module, name), renames=name in ("replace", "rename")))
        for name in ("write_text", "write_bytes"):
            patch.setattr(pathlib.Path, name, self.around(getattr(pathlib.Path, name)))
        opened = pathlib.Path.open

        def open_counted(path, mode="r", *rest, **options):
            file = opened(path, mode, *rest, **options)
            return Counted(file, self) if set("wa") & set(mode) and "b" not in mode else file

        patch.setattr(pathlib.Path, "open", open_counted)
        patch.setattr(run, "next_token", self.around(run.next_token, error=MemoryError))

    def around(self, function, renames=False, error=None):
        def call(*arguments, **options):
            if self.kind == "lost" and not renames:
                return function(*arguments, **options)
            self.count += 1
            if self.count != self.at:
                return function(*arguments, **options)
            if self.kind == "error":
                raise error() if error else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            function(*arguments, **options)
            final = Path(arguments[1])
            for path in final.iterdir() if final.is_dir() else [final]:
                os.truncate(path, path.stat().st_size // 2)
            raise RuntimeError("the power went out")

        return call


class Counted:
    """A file whose writes are counted."""

    def __init__(self, file, faults):
        self.file, self.write = file, faults.around(file.write)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


def points(action, kind="error"):
    """The numbers of the calls in an action: all with --slow, else some."""
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, kind=kind)
        action()
    assert faults.count > 5
    return range(1, faults.count + 1)


def one_line(error):
    text = str(error)
    assert text and "\n" not in text, text


@pytest.fixture
def plan(small):
    return small(
        train__steps=6, train__save_every=2, train__eval_every=3, train__warmup=2, model__dropout=0.1, train__average=2
    )


@pytest.fixture(params=[EVERY, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def every(request):
    return request.param


@pytest.mark.parametrize("kind", ["error", "lost"])
def test_training(plan, tmp_path, kind, every):
    whole, outcomes = tmp_path / "whole", {"bit-equal": 0, "one line": 0}
    wanted = points(lambda: fit(plan, whole, quiet=True), kind)
    expected = weights(whole)
    for at in wanted[:: every if kind == "error" else min(every, 3)]:
        out = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at, kind)
            with pytest.raises((OSError, MemoryError, RuntimeError)) as raised:
                fit(plan, out, quiet=True)
        one_line(raised.value)
        try:
            fit(plan, out, quiet=True, resume=(out / "recipe.toml").exists())
        except (ValueError, OSError) as error:
            one_line(error)
            assert kind == "lost", f"point {at}: {error}"
            outcomes["one line"] += 1
        else:
            assert losses(out) == losses(whole), f"point {at}"
            ours = weights(out)
            assert all(torch.equal(ours[name], expected[name]) for name in expected), f"point {at}"
            outcomes["bit-equal"] += 1
        shutil.rmtree(out)
    print(kind, len(wanted), "points:", outcomes)
    assert outcomes["bit-equal"] > outcomes["one line"]


class Allocations(TorchDispatchMode):
    """Counts the operations of PyTorch, any of which may need memory; the one with the number `at` gets none."""

    def __init__(self, at=0):
        super().__init__()
        self.count, self.at = 0, at

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.count += 1
        if self.count == self.at:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.")
        return function(*arguments, **(options or {}))


def test_allocations(plan, tmp_path, every):
    whole, outcomes = tmp_path / "whole", {"out of memory": 0}
    plan = replace(
        plan, model=replace(plan.model, depth=1), train=replace(plan.train, steps=2, save_every=1, eval_every=1)
    )
    with Allocations() as counted:
        fit(plan, whole, quiet=True)
    expected = weights(whole)
    for at in range(1, counted.count + 1, 40 if every == 1 else 700):
        out = tmp_path / str(at)
        with pytest.raises((MemoryError, RuntimeError, ValueError)) as raised, Allocations(at):
            fit(plan, out, quiet=True)
        one_line(raised.value)
        hidden = "safetensors cannot be read" in str(raised.value)  # that library says something else of what failed
        assert memory_need(raised.value) or isinstance(raised.value, OutOfMemory) or hidden, f"{at}: {raised.value}"
        fit(plan, out, quiet=True, resume=(out / "recipe.toml").exists())
        assert losses(out) == losses(whole), f"point {at}"
        ours = weights(out)
        assert all(torch.equal(ours[name], expected[name]) for name in expected), f"point {at}"
        outcomes["out of memory"] += 1
        shutil.rmtree(out)
    print("allocations", counted.count, "operations:", outcomes)
    assert counted.count > 500


@pytest.mark.parametrize("name", ["a.txt", "a.csv.gz"])
def test_bulk_answers(tmp_path, name):
    texts = [f"text {number}" for number in range(7)]

    def answer(out):
        answers = Answers(out, texts, {})
        try:
            for number in range(answers.done, len(texts)):
                answers.put(number, {"answer": texts[number].upper()}, texts[number].upper())
        finally:
            answers.close()

    whole = tmp_path / name
    wanted = points(lambda: answer(whole))
    print("answers", len(wanted), "points")
    for at in wanted:
        out = tmp_path / f"{at}{name}"
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at)
            with pytest.raises(OSError) as raised:
                answer(out)
        one_line(raised.value)
        assert not out.exists() or out.read_bytes() == whole.read_bytes(), f"point {at}"
        answer(out)
        assert out.read_bytes() == whole.read_bytes(), f"point {at}"


def test_export(small, tmp_path):
    fit(small(train__steps=2), tmp_path / "run", quiet=True)
    before, task, whole = weights(tmp_path / "run"), load(tmp_path / "run"), tmp_path / "whole"
    wanted = points(lambda: task.export(whole))
    print("export", len(wanted), "points")
    for at in wanted:
        out = tmp_path / str(at)
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, at)
            with pytest.raises(OSError) as raised:
                task.export(out)
        one_line(raised.value)
        for path in out.rglob("*"):
            assert path.read_bytes() == (whole / path.name).read_bytes(), f"point {at}: {path.name} is not whole"
        task.export(out)
        assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}
    after = weights(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)
