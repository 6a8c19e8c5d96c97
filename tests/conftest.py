"""Every test starts from the same seed; `slow` ones run with --slow; a warning is an error."""

import inspect
import os
import typing

# The models of the tests are tiny: a second thread would only wait for the first. Subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

import jaxtyping  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from beartype import BeartypeConf, beartype  # noqa: E402
from beartype.roar import BeartypeException  # noqa: E402

KNOWN_WARNINGS = [
    "ignore:.*is deprecated:DeprecationWarning:(transformers|huggingface_hub|torch|numpy|jaxtyping|beartype).*",
    "ignore:.*:FutureWarning:(transformers|huggingface_hub|torch).*",
    "ignore:.*:UserWarning:(transformers|huggingface_hub).*",
]

SHAPED = jaxtyping.jaxtyped
CHECKED = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))


def names_shapes(annotation):
    """Whether a jaxtyping annotation is somewhere in an annotation, or may be: a name as a string is not looked up."""
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(names_shapes(part) for part in typing.get_args(annotation))


def checked(function=None, *, typechecker):
    """Check the arguments and the result of a function at each call: by beartype alone where no shape is named, since
    jaxtyping then only binds the arguments, which took about 14 % of the suite's time."""
    if function is None:
        return lambda function: checked(function, typechecker=typechecker)
    plain = inspect.isfunction(function) and not inspect.isgeneratorfunction(function)
    if plain and not any(map(names_shapes, function.__annotations__.values())):
        try:
            return CHECKED(function)
        except BeartypeException:  # a name that is defined later
            pass
    return SHAPED(function, typechecker=typechecker)


jaxtyping.jaxtyped = checked  # what the plugin puts before every function of the package


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
