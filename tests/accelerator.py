"""An accelerator that is not there: a device of its own, "accel", whose tensors live in the CPU's memory.

What CUDA refuses is refused here: a tensor of the CPU next to one of the device, NumPy's view of one, an output on
another device. Everything else is computed, so that whole trainings, decodings and pages run on it.

It is no mode that code could leave: tensors of the device are tensors, in every thread and through autograd.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "accel"
aten = torch.ops.aten
MOVES = {
    aten.copy_.default, aten._to_copy.default, aten._foreach_copy_.default, aten._pack_padded_sequence.default,
    aten._pad_packed_sequence.default, aten.gru.data, aten.lstm.data, aten.rnn_tanh.data,
}  # fmt: skip
"""Operations that may have tensors on both sides: copies, and packed sequences, whose sizes are on the CPU."""


class Rules:
    """What the device refuses at present, and how often the host waited for it."""

    float64 = True
    """Whether it computes in float64; Apple's GPUs do not."""
    leaves = True
    """Whether tensors may go back to the CPU."""
    waits: Counter[str] = Counter()


@contextmanager
def device_rules(*, float64: bool = True, leaves: bool = True) -> Iterator[Counter[str]]:
    """Refuse float64, or copies back to the CPU; yields how often the host read a value, by operation."""
    before = Rules.float64, Rules.leaves, Rules.waits
    Rules.float64, Rules.leaves, Rules.waits = float64, leaves, Counter()
    try:
        yield Rules.waits
    finally:
        Rules.float64, Rules.leaves, Rules.waits = before


class Module:
    """`torch.accel`, as PyTorch expects it of a device."""

    @staticmethod
    def is_available() -> bool:
        return True

    is_initialized = is_available

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def _lazy_init() -> None: ...

    @staticmethod
    def manual_seed_all(seed: int) -> None: ...

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    @staticmethod
    def get_rng_state(device: Any = NAME) -> Tensor:
        return torch.arange(16, dtype=torch.uint8)

    @staticmethod
    def set_rng_state(state: Tensor, device: Any = NAME) -> None:
        assert state.device.type == "cpu"


class DeviceTensor(Tensor):
    """A tensor of the device; `values` are its numbers, on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> "DeviceTensor":
        if values.dtype in (torch.float64, torch.complex128) and not Rules.float64:
            raise TypeError("this device has no float64")
        own: Any = Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype,
            layout=values.layout, device=torch.device(NAME, 0),
        )  # fmt: skip
        own.values = values
        return own

    def __repr__(self, **_: Any) -> str:
        return f"{self.values!r} on {NAME}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copy = DeviceTensor(self.values.clone())
            memo[id(self)] = nn.Parameter(copy, self.requires_grad) if isinstance(self, nn.Parameter) else copy
        return memo[id(self)]

    def tolist(self) -> Any:
        Rules.waits["tolist"] += 1
        return self.values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {NAME} tensor to numpy; use Tensor.cpu() first")

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def untyped_storage(self) -> Any:
        return self.values.untyped_storage()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # where operations come as they are called, such as Tensor.cpu
            parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        flat, _ = tree_flatten((args, kwargs))
        strangers = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, cls)]
        if func not in MOVES and any(x.dim() or "index" in str(func) for x in strangers):
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME} and cpu")
        goes = func is aten._to_copy.default and kwargs.get("device") is not None and not ours(kwargs["device"])
        goes |= func is aten.copy_.default and not isinstance(args[0], cls)
        if func is aten._local_scalar_dense.default or goes:
            Rules.waits[str(func)] += 1
        if goes and not Rules.leaves:
            raise RuntimeError(f"{func}: a tensor goes back from {NAME} to the CPU")
        out = COMPUTED.get(func, func)(*tree_map(inner, args), **tree_map(inner, kwargs))
        if goes:
            return args[0] if func is aten.copy_.default else out
        if func is aten._pack_padded_sequence.default:
            return outer(out[0]), out[1]  # the batch sizes stay on the CPU
        # A view of a tensor with gradients is one itself, even if it was made in inference mode.
        views = [x for x in flat if isinstance(x, cls) and not x.is_inference()] if is_view(func) else []
        with torch.inference_mode(False) if views else nullcontext():
            return return_and_correct_aliasing(func, args, kwargs, tree_map(outer, out))


def is_view(func: Any) -> bool:
    """Whether an operation returns a view of its first argument."""
    alias = func._schema.arguments[0].alias_info if func._schema.arguments else None
    return alias is not None and not alias.is_write


def lstm_cell(x: Tensor, h: Tensor, cell: Tensor, x_bias: Any = None, h_bias: Any = None) -> tuple[Tensor, ...]:
    """The step of an LSTM that PyTorch has for GPUs alone; the last result is what the way back needs."""
    gates = x + h + (0 if x_bias is None else x_bias + h_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def lstm_back(
    out_grad: Any, cell_grad: Any, before: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Any, ...]:
    i, f, g, o = gates.chunk(4, 1)
    out_grad = torch.zeros_like(after) if out_grad is None else out_grad
    back = out_grad * o * (1 - after.tanh() ** 2) + (0 if cell_grad is None else cell_grad)
    grads = (
        back * g * i * (1 - i),
        back * before * f * (1 - f),
        back * i * (1 - g**2),
        out_grad * after.tanh() * o * (1 - o),
    )
    joined = torch.cat(grads, 1)
    return joined, back * f, joined.sum(0) if has_bias else None


def gru_cell(x: Tensor, h: Tensor, before: Tensor, x_bias: Any = None, h_bias: Any = None) -> tuple[Tensor, Tensor]:
    """The step of a GRU that PyTorch has for GPUs alone."""
    x, h = (x, h) if x_bias is None else (x + x_bias, h + h_bias)
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (before - n), torch.cat([r, z, n, before, hn], 1)


def gru_back(grad: Tensor, kept: Tensor, has_bias: bool) -> tuple[Any, ...]:
    r, z, n, before, hn = kept.chunk(5, 1)
    on_z, on_n = grad * (before - n) * z * (1 - z), grad * (1 - z) * (1 - n**2)
    on_r = on_n * hn * r * (1 - r)
    x, h = torch.cat([on_r, on_z, on_n], 1), torch.cat([on_r, on_z, on_n * r], 1)
    return x, h, grad * z, x.sum(0) if has_bias else None, h.sum(0) if has_bias else None


COMPUTED = {
    aten._thnn_fused_lstm_cell.default: lstm_cell, aten._thnn_fused_lstm_cell_backward_impl.default: lstm_back,
    aten._thnn_fused_gru_cell.default: gru_cell, aten._thnn_fused_gru_cell_backward.default: gru_back,
}  # fmt: skip
"""Operations that the CPU has not, by hand."""


def ours(device: Any) -> bool:
    return torch.device(device).type == NAME


def inner(x: Any) -> Any:
    """A value as the CPU takes it."""
    if isinstance(x, DeviceTensor):
        return x.values
    return torch.device("cpu") if isinstance(x, torch.device) and ours(x) else x


def outer(x: Any) -> Any:
    return DeviceTensor(x) if isinstance(x, Tensor) and not isinstance(x, DeviceTensor) else x


def factory(func: Any) -> Any:
    """A function that makes tensors on the device out of no tensors."""

    def create(*args: Any, **kwargs: Any) -> Tensor:
        return DeviceTensor(func(*args, **kwargs | {"device": "cpu", "pin_memory": False}))

    return create


def copy_from(source: Tensor, out: Any, non_blocking: bool = False) -> Tensor:
    """What `torch.tensor(…, device=…)` calls with a tensor of the CPU."""
    inner(out).copy_(inner(source))
    return out


LIBRARY = torch.library.Library("aten", "IMPL")


def register() -> torch.device:
    """Make the device known to PyTorch, once for the process."""
    if torch._C._get_privateuse1_backend_name() != NAME:
        _setup_privateuseone_for_python_backend(rename=NAME, backend_module=Module())
        for func in (
            aten.empty.memory_format, aten.empty_strided.default, aten.arange.start_step, aten.linspace.default,
            aten.eye.default, aten.eye.m, aten.randperm.default, aten.randperm.generator, aten.tril_indices.default,
            aten.triu_indices.default,
        ):  # fmt: skip
            LIBRARY.impl(func, factory(func), "PrivateUse1")
        LIBRARY.impl(aten._copy_from.default, copy_from, "PrivateUse1")
    return torch.device(NAME)
