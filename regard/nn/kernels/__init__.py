"""How weights are computed: one file a kernel, all called the same way."""

from regard.nn.kernels.additive import Additive
from regard.nn.kernels.base import Kernel, build_kernel
from regard.nn.kernels.full import Full, attend
from regard.nn.kernels.general import General

__all__ = ["Additive", "Full", "General", "Kernel", "attend", "build_kernel"]
