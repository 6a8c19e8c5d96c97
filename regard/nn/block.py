"""One layer: attention, perhaps cross-attention, feed-forward, each with a residual and a norm."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from regard.config import check_fractions, check_positive
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import KeyValues
from regard.nn.dropout import Dropout
from regard.nn.feedforward import FeedForward
from regard.nn.kernels import Need
from regard.nn.masks import Mask
from regard.nn.norm import build_norm
from regard.nn.positions import Bias, Position
from regard.nn.reversible import Streams
from regard.nn.shared_projections import SHARING

Activation = Literal["relu", "gelu", "gelu-tanh", "quick-gelu", "silu", "relu2", "swiglu", "geglu", "geglu-tanh"]
Norm = Literal["layer", "rms", "none"]
NormPlace = Literal["pre", "post"]
Matrices = Literal["three", "two", "one"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """Settings that every stack of blocks has; families add their own."""

    dim: int = 512
    """Width of the token vectors."""
    heads: int = 8
    """Attention heads."""
    kv_heads: int | None = None
    """Key/value heads; fewer than `heads` are shared (none: as many)."""
    head_dim: int | None = None
    """Size of a head (none: dim / heads)."""
    ffn_dim: int = 2048
    """Hidden width of the feed-forward layer."""
    activation: Activation = "relu"
    """Activation of the feed-forward layer; the last three are gated, `-tanh` is GPT-2's approximation."""
    norm: Norm = "layer"
    """LayerNorm, RMSNorm, or none at all."""
    norm_place: NormPlace = "pre"
    """Norm before each part, or after its residual as in the 2017 paper."""
    norm_eps: float = 1e-5
    """Epsilon of the norms, added to the variance."""
    bias: bool = True
    """Biases in the projections and the feed-forward layer."""
    dropout: float = 0.1
    """Dropout on the embeddings and on the output of each part."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights; above 0, training leaves PyTorch's fused CPU kernel."""
    ffn_dropout: float = 0.0
    """Dropout on the feed-forward layer's hidden units."""
    kernel: str = "full"
    """Attention kernel: full, window:radius=64, sparse, topk, linear, performer, linformer, reformer, …"""
    cross_kernel: str | None = None
    """Kernel of cross-attention (none: `kernel`)."""
    qkv: Matrices = "three"
    """Matrices of queries, keys and values: one each; two, the first for queries and keys; or one for all of them."""
    residual: bool = True
    """Residual connections: the input of each part is added to its output."""
    position: str = "sinusoidal"
    """Position scheme: sinusoidal, learned, rotary (or rotary:base=500000), alibi, relative, …, none."""
    max_len: int = 1024
    """Longest sequence expected; a hard limit only for learned positions."""
    reversible: bool = False
    """Reversible residual streams: each layer's input is recomputed, so training memory does not grow with depth."""

    def __post_init__(self) -> None:
        check_fractions(self, "dropout", "attention_dropout", "ffn_dropout")
        check_positive(self, "ffn_dim", "max_len")
        AttentionConfig(dim=self.dim, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        if self.reversible and self.norm_place != "pre":
            raise ValueError(
                f"reversible layers need norms before each part, got norm_place={self.norm_place}; use norm_place=pre"
            )
        if self.reversible and not self.residual:
            raise ValueError("reversible layers are residual connections, got residual=False; use reversible=False")
        if self.qkv != "three" and self.kv_heads not in (None, self.heads):
            raise ValueError(
                f"qkv={self.qkv} has a key for each query head, got kv_heads={self.kv_heads}; leave kv_heads unset"
            )

    @property
    def head_size(self) -> int:
        return self.head_dim or self.dim // self.heads


def own_needs(*, causal: bool, biased: bool) -> frozenset[Need]:
    """Return the features that self-attention needs of its kernel; a causal stack also decodes from a cache."""
    return frozenset({*(("causal", "cached") if causal else ()), *(("biased",) if biased else ())})


class Block(nn.Module):
    """Self-attention and feed-forward; with `cross`, attention over a context between the two."""

    layer: ClassVar[type[Attention]] = Attention
    """Class of the attention layers."""

    def __init__(self, config: BlockConfig, position: Position, *, causal: bool, cross: bool) -> None:
        super().__init__()
        self.pre, self.residual = config.norm_place == "pre", config.residual
        if config.qkv != "three" and self.layer is not Attention:
            raise ValueError(
                f"qkv={config.qkv} is for plain attention, this block has {self.layer.__name__}; use three"
            )
        layer = self.layer if config.qkv == "three" else SHARING[config.qkv]
        sizes: dict[str, Any] = dict(
            dim=config.dim, heads=config.heads, kv_heads=config.kv_heads, head_dim=config.head_dim,
            bias=config.bias, dropout=config.attention_dropout, max_len=config.max_len,
        )  # fmt: skip
        self.attention = layer(
            AttentionConfig(
                **sizes, kernel=config.kernel, needs=own_needs(causal=causal, biased=position.bias() is not None)
            ),
            position,
        )
        across = AttentionConfig(**sizes, kernel=config.cross_kernel or config.kernel, needs=frozenset({"crosses"}))
        self.cross = layer(across) if cross else None
        self.feedforward = FeedForward(
            config.dim, config.ffn_dim, activation=config.activation, bias=config.bias, dropout=config.ffn_dropout
        )
        parts = ["attention", "cross", "feedforward"] if cross else ["attention", "feedforward"]
        self.norms = nn.ModuleDict({part: build_norm(config.norm, config.dim, config.norm_eps) for part in parts})
        self.drops = nn.ModuleDict({part: Dropout(config.dropout) for part in parts})

    def forward(
        self,
        x: Float[Tensor, "B T D"] | Streams,
        context: Float[Tensor, "M S D"] | None = None,
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
        context_mask: Mask | None = None,
        cache: KeyValues | None = None,
        context_cache: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"] | Streams:
        x = self.add(x, "attention", lambda y: self.attention(y, mask=mask, bias=bias, cache=cache))
        if self.cross is not None:
            x = self.add(x, "cross", lambda y: self.cross_attend(y, context, context_mask, context_cache))
        return self.add(x, "feedforward", self.feedforward)

    def add(
        self, x: Float[Tensor, "B T D"] | Streams, part: str, layer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B T D"] | Streams:
        """Apply one part with its residual connection, if there is one, and the norm before or after it."""
        norm, drop = self.norms[part], self.drops[part]
        if isinstance(x, Streams):
            return x.add(lambda y: drop(layer(norm(y))), norm, self.get_submodule(part))
        y = drop(layer(norm(x) if self.pre else x))
        if self.residual:
            y = x + y
        return y if self.pre else norm(y)

    def cross_attend(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "M S D"] | None,
        mask: Mask | None,
        cache: KeyValues | None,
    ) -> Float[Tensor, "B T D"]:
        """Apply cross-attention. The beams of a sentence (B = M · beams) are further queries to its one context."""
        assert self.cross is not None and (mask is None or mask.is_keywise), "regrouped queries need a mask on keys"
        sources = x.shape[0] if cache is None or not cache.length else cache.batch  # len() is none of an exported graph
        folded = x.reshape(sources, -1, x.shape[-1])
        return self.cross(folded, context, mask=mask, cache=cache).view_as(x)
