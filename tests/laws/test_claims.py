"""What kernels declare beyond their formula holds: the laws that a user's own kernel meets in `regard doctor`."""

import pytest

from regard.doctor.kernels import LAWS, missing
from regard.doctor.verdicts import judge
from regard.nn.kernels import build_kernel
from regard.registry import kernels
from tests.laws.cases import KERNELS

ELSEWHERE = ("future", "padding", "single", "cached")
"""Of laws that `test_kernels` holds them to, at more lengths."""


@pytest.mark.parametrize("name", [KERNELS.get(name, [name])[0] for name in kernels])
@pytest.mark.parametrize(
    "law", [law for law in LAWS if not any(word in law.name for word in ELSEWHERE)], ids=lambda law: law.name
)
def test_a_kernel_keeps_what_it_claims(law, name):
    def build(**sizes):
        return build_kernel(name, **sizes)

    outcome = judge(law, build, missing)
    assert outcome.verdict in ("ok", "not claimed"), outcome.found
