import importlib
import sys

import pytest

from regard.registry import kernels


@pytest.fixture
def own():
    """The kernels of `own.py`, for one test."""
    before = dict(kernels._entries)
    importlib.import_module("tests.bench.own")
    yield
    kernels._entries = before
    del sys.modules["tests.bench.own"]
