"""One server of all models for a file of tests; it must have had nothing to complain of in the end."""

import pytest

from tests.serve.made import make_models
from tests.serve.running import serving


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def server(made):
    with serving(made) as one:
        yield one


@pytest.fixture
def client(server):
    with server.client() as one:
        yield one
