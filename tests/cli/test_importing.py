"""Imports of commands: the garbage collector is off while they last, and on behind them."""

import gc
import subprocess
import sys

import pytest

from regard.cli.base import importing


@pytest.fixture(autouse=True)
def unfrozen():
    yield
    gc.unfreeze()


def test_the_collector_is_off_inside_and_on_behind(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_behind_an_import_that_fails(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(ModuleNotFoundError), importing():
        import no_such_module_of_anybody  # noqa: F401
    assert gc.isenabled()


def test_a_process_with_garbage_of_its_own_does_not_keep_it():
    before = gc.get_freeze_count()
    with importing():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before


def test_one_process_loads_nothing_of_many():
    code = "import sys, regard.train.loop, regard.tasks; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "regard.train.parallel" in loaded
    assert not {"torch.distributed.fsdp", "torch.distributed.tensor", "sympy", "regard.train.distributed"} & {*loaded}
