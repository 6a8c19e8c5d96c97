"""ResNet (He et al., 2016) without its classifier: an image becomes a small feature map of wide vectors."""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class FrozenNorm(nn.Module):
    """A batch norm with constant statistics and factors: four buffers for each channel, no parameters."""

    eps = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name, value in dict(weight=1.0, bias=0.0, running_mean=0.0, running_var=1.0).items():
            self.register_buffer(name, torch.full((channels,), value))

    def cost_note(self, training: bool) -> str:
        """Return a remark on this norm's cost, printed below the figures."""
        return "norms of the ResNet that are constants are no parameters"

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B C Y X"]:
        mean, variance, weight, bias = (cast(Tensor, getattr(self, name)) for name in STATISTICS)
        return F.batch_norm(x, mean, variance, weight, bias, eps=self.eps)


STATISTICS = ("running_mean", "running_var", "weight", "bias")


class LiveNorm(nn.BatchNorm2d):
    """A trainable batch norm; once trained it computes what a frozen one with its tensors does."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=FrozenNorm.eps)
        self.num_batches_tracked = None  # a frozen one has no batch counter


class Convolution(nn.Module):
    """A convolution without bias, followed by a norm."""

    def __init__(self, inputs: int, outputs: int, size: int, *, stride: int = 1, frozen: bool) -> None:
        super().__init__()
        # A strided convolution of size 1 skips pixels: slice them out first. PyTorch's own backward pass writes out of
        # bounds for some widths in the memory layout that `ResNet` uses.
        self.stride, stride = (stride, 1) if size == 1 else (1, stride)
        self.convolve = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)
        nn.init.kaiming_normal_(self.convolve.weight, mode="fan_out", nonlinearity="relu")
        self.norm = FrozenNorm(outputs) if frozen else LiveNorm(outputs)

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        return self.norm(self.convolve(x[:, :, :: self.stride, :: self.stride]))


def layers_of(inputs: int, outputs: int, *, bottleneck: bool) -> list[tuple[int, int, int]]:
    """Return inputs, outputs and size of a block's convolutions; the first of size 3 may have a stride."""
    inner = outputs // 4
    if bottleneck:
        return [(inputs, inner, 1), (inner, inner, 3), (inner, outputs, 1)]
    return [(inputs, outputs, 3), (outputs, outputs, 3)]


class Residual(nn.Module):
    """Two or three convolutions with a residual connection; `shortcut` projects the input where the shape changes."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, bottleneck: bool, frozen: bool) -> None:
        super().__init__()
        sizes = layers_of(inputs, outputs, bottleneck=bottleneck)
        strides = [stride if index == int(bottleneck) else 1 for index in range(len(sizes))]
        self.layers = nn.ModuleList(
            Convolution(*size, stride=step, frozen=frozen) for size, step in zip(sizes, strides, strict=True)
        )
        changes = inputs != outputs or stride != 1
        self.shortcut = Convolution(inputs, outputs, 1, stride=stride, frozen=frozen) if changes else None

    def forward(self, x: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        y = x
        for index, layer in enumerate(self.layers):
            y = layer(y if index == 0 else F.relu(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """7 × 7 convolution and pooling, each with stride 2, then stages; all but the first halve rows and columns."""

    def __init__(
        self, channels: int, stem: int, widths: tuple[int, ...], blocks: tuple[int, ...], *, bottleneck: bool,
        frozen: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self.channels = channels
        self.stem = Convolution(channels, stem, 7, stride=2, frozen=frozen)
        stages, inputs = [], stem
        for number, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            strides = [2 if number and not block else 1 for block in range(count)]
            ins = [inputs if not block else width for block in range(count)]
            stages.append(nn.Sequential(*(
                Residual(before, width, stride=stride, bottleneck=bottleneck, frozen=frozen)
                for before, stride in zip(ins, strides, strict=True)
            )))  # fmt: skip
            inputs = width
        self.stages = nn.ModuleList(stages)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        if pixels.shape[1] != self.channels:
            raise ValueError(f"images have {pixels.shape[1]} channels, the model reads {self.channels}")
        x = pixels.contiguous(memory_format=torch.channels_last)  # a third faster on a CPU
        x = F.max_pool2d(F.relu(self.stem(x)), 3, stride=2, padding=1)
        for stage in self.stages:
            x = stage(x)
        return x


def halved(side: int, times: int) -> int:
    """Return a side after so many halvings, each rounded up."""
    for _ in range(times):
        side = -(-side // 2)
    return side
