"""Imports of commands: the garbage collector is off while they last, and on behind them."""

import gc
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
