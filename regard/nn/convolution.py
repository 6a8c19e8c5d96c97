"""Layers that combine attention and convolution: attention inside a CNN, or in place of a convolution.

Images are B C H W as everywhere in PyTorch; here H and W are rows and columns, not heads and width.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.config import at_least
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.dropout import Dropout, DropPath
from regard.nn.feedforward import ACTIVATIONS, FeedForward
from regard.nn.kernels import attend
from regard.nn.norm import build_norm


class Pointwise(nn.Module):
    """A feed-forward layer as two convolutions of size 1 on B D T or B D H W, each position by itself.

    Its weights are a copy of the layer's with axes of length 1 appended; outputs and gradients are equal.
    """

    def __init__(self, layer: FeedForward) -> None:
        super().__init__()
        self.gated, self.activation, self.dropout = layer.gated, layer.activation, layer.dropout
        self.up, self.down = as_convolution(layer.up), as_convolution(layer.down)

    def forward(self, x: Float[Tensor, "B D *places"]) -> Float[Tensor, "B D *places"]:
        hidden = self.up(x.flatten(2))
        if self.gated:
            gate, value = hidden.chunk(2, dim=1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        return self.down(self.dropout(hidden)).view_as(x)


def as_convolution(linear: nn.Linear) -> nn.Conv1d:
    """Return a convolution of size 1 with the layer's weight and bias: it computes x Wᵀ + b at each position."""
    convolution = nn.Conv1d(linear.in_features, linear.out_features, 1, bias=linear.bias is not None).to(linear.weight)
    with torch.no_grad():
        convolution.weight.copy_(linear.weight.unsqueeze(-1))
        if linear.bias is not None and convolution.bias is not None:
            convolution.bias.copy_(linear.bias)
    return convolution


class ImageAttention(nn.Module):
    """x + attention(norm(x)) over all cells of a feature map: a block to insert between those of a CNN.

    Its output matrix is initialised to zero, so that a trained CNN keeps its answers when the block is inserted.
    Positions come from the convolutions alone; `dim` is the number of channels.
    """

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.norm = build_norm("layer", config.dim, 1e-5)
        self.attention = Attention(config)
        for parameter in self.attention.out.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Float[Tensor, "B D H W"]) -> Float[Tensor, "B D H W"]:
        tokens = x.flatten(2).transpose(1, 2)  # B H·W D
        return x + self.attention(self.norm(tokens)).transpose(1, 2).view_as(x)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each cell of a feature map, independently of the others."""

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class ResidualBlock(nn.Module):
    """x + two 3 × 3 convolutions, each after a norm and an activation (He et al., 2016); a stride shrinks the map.

    Norms are over the channels of each cell, so that the receptive field is the convolutions' alone.
    """

    def __init__(
        self, channels: int, out_channels: int, *, stride: int = 1, activation: str = "relu", eps: float = 1e-5,
        dropout: float = 0.0, path_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.activation, self.dropout, self.path = ACTIVATIONS[activation], Dropout(dropout), DropPath(path_dropout)
        widths = (channels, out_channels)
        self.norms = nn.ModuleList(ChannelNorm(width, eps=eps) for width in widths)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, out_channels, 3, stride=step, padding=1, bias=False)
            for width, step in zip(widths, (stride, 1), strict=True)
        )
        same = stride == 1 and channels == out_channels
        self.skip = None if same else nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N I J"]:
        y = x
        for norm, convolve in zip(self.norms, self.convolutions, strict=True):
            y = convolve(self.activation(norm(y)))
        y = self.path(self.dropout(y))
        return y + (x if self.skip is None else self.skip(x))


class ConvStem(nn.Module):
    """Convolutions from pixels to a grid of features: one that halves the sides for each of `widths`, then one of 1 ×
    1.

    Those that halve are 4 × 4, so that a cell is centred on the pixels that it is drawn over.
    """

    part = "convolutions"
    """Its name in a table of costs."""

    def __init__(self, channels: int, widths: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.channels, self.side = channels, 2 ** len(widths)
        layers: list[nn.Module] = []
        for i, width in enumerate(widths):
            if i:
                layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(channels, width, 4, stride=2, padding=1), ChannelNorm(width), nn.ReLU()]
            channels = width
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, dim, 1))
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):  # an activation, which halves the variance, follows all but the last
                last = layer is self.layers[-1]
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if last else "relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, pixels: Float[Tensor, "B C Y X"]) -> Float[Tensor, "B D N M"]:
        if pixels.shape[1] != self.channels:
            raise ValueError(f"images have {pixels.shape[1]} channels, the model reads {self.channels}")
        rows, columns = pixels.shape[2:]
        pixels = F.pad(pixels, (0, -columns % self.side, 0, -rows % self.side))
        return self.layers(pixels.contiguous(memory_format=torch.channels_last))  # a tenth faster on a CPU


class LocalRelation(nn.Module):
    """Local relation layer (Hu et al., 2019) in place of a k × k convolution, with its arguments and shapes.

    Each output attends to its k × k neighbourhood: softmax(q · k + prior) over the cells inside the image, q from the
    centre, k from each cell, the prior from its offset. q and k are one number for every `share` channels, which share
    their weights; values are the input itself, and a 1 × 1 convolution follows.
    """

    prior_dim = 16
    """Hidden units of the small network from an offset to its prior; the paper leaves their number open."""

    def __init__(
        self, channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, share: int = 8, bias: bool = True
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size} must be odd; use {kernel_size + 1}")
        at_least(1, channels=channels, kernel_size=kernel_size, stride=stride, share=share)
        self.kernel_size, self.stride, self.share = kernel_size, stride, share
        self.groups = -(-channels // share)  # the last group is smaller where `share` does not divide `channels`
        self.query = nn.Conv2d(channels, self.groups, 1, stride=stride, bias=False)
        self.key = nn.Conv2d(channels, self.groups, 1, bias=False)
        self.prior = nn.Sequential(nn.Linear(2, self.prior_dim), nn.ReLU(), nn.Linear(self.prior_dim, self.groups))
        self.out = nn.Conv2d(channels, out_channels, 1, bias=bias)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B N I J"]:
        return self.out(self.relate(x)[0])

    def relate(self, x: Float[Tensor, "B C H W"]) -> tuple[Float[Tensor, "B C I J"], Float[Tensor, "B G I J k k"]]:
        """Return the mixed neighbourhoods and their weights: attention of one query and G heads for each cell I J."""
        q = self.query(x)  # B G I J
        B, G, places, k = x.shape[0], self.groups, q.shape[2:], self.kernel_size
        queries = q.flatten(2).transpose(1, 2).reshape(-1, G, 1, 1)  # B·I·J G 1 1
        keys = self.neighbours(self.key(x)).unsqueeze(2)  # B·I·J G 1 k²
        values = F.pad(self.neighbours(x), (0, 0, 0, G * self.share - x.shape[1]))
        values = values.unflatten(1, (G, self.share)).transpose(2, 3)  # B·I·J G k² share
        scores = queries * keys + self.prior(self.offsets()).T.unsqueeze(1)
        mixed, weights = attend(scores, values, mask=self.inside(x).repeat(B, 1, 1, 1))
        mixed = mixed.flatten(1)[:, : x.shape[1]].unflatten(0, (B, -1)).transpose(1, 2)  # B C I·J
        weights = weights.view(B, -1, G, k * k).transpose(1, 2)
        return mixed.unflatten(2, places), weights.reshape(B, G, *places, k, k)

    def neighbours(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "N C S"]:
        """Return the k² values around each cell of the output, zeros outside of the image: B·I·J C k²."""
        k = self.kernel_size
        around = F.unfold(x, k, padding=k // 2, stride=self.stride)  # B C·k² I·J
        return around.transpose(1, 2).reshape(-1, x.shape[1], k * k)

    def inside(self, x: Float[Tensor, "B C H W"]) -> Bool[Tensor, "N 1 1 S"]:
        """Return which neighbours lie inside the image: padding is never attended to."""
        return self.neighbours(x.new_ones(1, 1, *x.shape[2:])).bool().unsqueeze(1)

    def offsets(self) -> Float[Tensor, "S 2"]:
        """Return row and column of each neighbour, from −1 to 1."""
        like = self.out.weight
        steps = torch.linspace(-1, 1, self.kernel_size, dtype=like.dtype, device=like.device)
        return torch.cartesian_prod(steps, steps)
