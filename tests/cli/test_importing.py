"""Imports of commands: the garbage collector is off while they last, and on behind them."""

import gc

import pytest

from regard.cli.base import importing


def test_the_collector_is_off_inside_and_on_behind():
    with importing():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_behind_an_import_that_fails():
    with pytest.raises(ModuleNotFoundError), importing():
        import no_such_module_of_anybody  # noqa: F401
    assert gc.isenabled()
