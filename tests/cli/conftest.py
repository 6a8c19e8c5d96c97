import pytest

from tests.recipes.tiny import shared


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return shared(tmp_path_factory)
