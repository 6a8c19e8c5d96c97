"""Every test starts from the same seed; `slow` ones run with --slow; a warning is an error."""

import os

# The models of the tests are tiny: a second thread would only wait for the first. Subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402

KNOWN_WARNINGS = [
    "ignore:.*is deprecated:DeprecationWarning:(transformers|huggingface_hub|torch|numpy|jaxtyping|beartype).*",
    "ignore:.*:FutureWarning:(transformers|huggingface_hub|torch).*",
    "ignore:.*:UserWarning:(transformers|huggingface_hub).*",
]


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long, or tries a full product; runs with --slow")
    for line in ["error", *KNOWN_WARNINGS]:
        config.addinivalue_line("filterwarnings", line)


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow; use --slow"))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)
