"""One server of all models for all tests; its log must have no complaint at the end."""

import pytest

import regard
from tests.serve.made import make_models
from tests.serve.running import serving


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def server(made):
    with serving(made) as process:
        yield process


@pytest.fixture(scope="session")
def loaded(made):
    return {name: regard.load(path) for name, path in made.items()}


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client
