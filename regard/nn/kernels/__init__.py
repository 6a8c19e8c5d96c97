"""How weights are computed: one file a kernel, all called the same way."""

from regard.nn.kernels.additive import Additive
from regard.nn.kernels.base import Kernel, Need, build_kernel
from regard.nn.kernels.full import Full, attend
from regard.nn.kernels.general import General
from regard.nn.kernels.scaled import Dot, Normalized

__all__ = ["Additive", "Dot", "Full", "General", "Kernel", "Need", "Normalized", "attend", "build_kernel"]
