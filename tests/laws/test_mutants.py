"""A law that cannot fail proves nothing: a causal kernel, made to leak by one position, breaks both on the future."""

from dataclasses import dataclass

import pytest

from regard.doctor import kernel_laws
from regard.doctor import kernels as doctor
from regard.nn.kernels import build_kernel
from regard.nn.masks import Mask
from regard.registry import kernels
from tests.laws.cases import KERNEL_CASES

CAUSAL = [case for case in KERNEL_CASES if kernels[case].causal]
LENGTHS = (2, 7, 13)


@dataclass(frozen=True)
class one_too_many(Mask):  # noqa: N801
    """Keys up to the next position."""

    def allowed(self, i, j):
        return j <= i + 1


def looks_ahead(name):
    """The kernel under a mask that allows one key too many."""

    def build(**sizes):
        kernel = build_kernel(name, **sizes)
        kernel.register_forward_pre_hook(
            lambda kernel, args, how: (args, how | {"mask": one_too_many()}), with_kwargs=True
        )
        return kernel

    return build


def rolled(name):
    """The kernel on keys and values that stand one place too early; where keys are the queries, only the values."""

    def build(**sizes):
        kernel = build_kernel(name, **sizes)
        kernel.register_forward_pre_hook(roll)
        return kernel

    def roll(kernel, args):
        q, k, v = args
        return q, k if kernel.shares else k.roll(-1, 2), v.roll(-1, 2)

    return build


MUTANTS = [(rolled, name) for name in CAUSAL] + [(looks_ahead, name) for name in CAUSAL if kernels[name].any_mask]


@pytest.mark.parametrize(("mutate", "name"), MUTANTS, ids=[f"{mutate.__name__}-{name}" for mutate, name in MUTANTS])
def test_a_leak_of_one_position_breaks_both_laws(mutate, name):
    with pytest.raises(AssertionError, match=r"those after \d+ were changed, and the output at \d+ moved by"):
        kernel_laws.hides_the_future(mutate(name), LENGTHS)
    with pytest.raises(AssertionError, match=r"the output at \d+ has a gradient of .* from [qkv] at "):
        kernel_laws.future_has_no_gradient(mutate(name), LENGTHS)
    kernel_laws.hides_the_future(lambda **sizes: build_kernel(name, **sizes), LENGTHS)


def test_every_causal_kernel_has_a_mutant():
    mutated = {name.partition(":")[0] for _, name in MUTANTS}
    assert mutated == {name for name in kernels if kernels[name].causal} >= {"full", "window", "linear", "reformer"}


@pytest.mark.parametrize("name", ["full", "linear"])
def test_the_doctor_names_the_leak(name):
    found = {each.law: each for each in doctor.examine(rolled(name), name, speed=False).outcomes}
    for law in ("hides the future: outputs", "hides the future: gradients"):
        assert found[law].verdict == "broken" and "it leaks" in found[law].found
    assert found["nothing to see gives zeros"].verdict == "ok"
