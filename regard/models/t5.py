"""T5: text to text (Raffel et al., 2020).

Unlike transformer.py: relative positions as a bias on the scores, which are not scaled; RMSNorm without biases;
an output that is either tied and scaled down (the first T5) or a matrix of its own (T5 1.1, with gated layers).
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.attention import Attention
from regard.nn.block import Norm
from regard.nn.cache import Cache
from regard.nn.stack import Parts
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class T5Config(TransformerConfig):
    """Sizes of a T5; the defaults are `t5-small`."""

    vocab_size: int = 32_128
    norm: Norm = "rms"
    norm_eps: float = 1e-6
    bias: bool = False
    kernel: str = "dot"
    position: str = "relative"
    max_len: int = 512
    embedding_scale: bool = False
    head_scale: bool = True
    """Multiply the logits by 1/√dim, as with a tied output."""


SMALL: dict[str, Any] = dict(dim=512, depth=6, heads=8, head_dim=64, ffn_dim=2048)
BASE: dict[str, Any] = dict(dim=768, depth=12, heads=12, ffn_dim=3072)
GATED: dict[str, Any] = dict(activation="geglu-tanh", tie="inputs", head_scale=False)


@register_model("t5")
class T5(Transformer):
    """An encoder and a decoder for any task that can be written as text to text."""

    config_class = T5Config
    task = "text-to-text"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(GATED, dim=128, depth=4, heads=4, ffn_dim=256, kernel="full"),
        "t5-small": SMALL,
        "t5-base": BASE,
        "t5-1.1-small": dict(SMALL, **GATED, depth=8, heads=6, ffn_dim=1024),
        "t5-1.1-base": dict(BASE, **GATED, ffn_dim=2048),
    }

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.scale = config.dim**-0.5 if config.head_scale else 1.0
        with torch.no_grad():
            if config.head_scale:  # vectors of unit variance: scaled down, the logits have it too
                self.target_embedding.weight.mul_(config.dim**0.5)
            if config.kernel == "dot":  # the factor by which other families scale the attention scores
                for module in self.modules():
                    if isinstance(module, Attention):
                        module.query.weight.mul_(config.head_size**-0.5)

    def features(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        return self.scaled(super().features(source, lengths, target))

    def next_features(
        self, ids: Int[Tensor, "B T"], cache: Cache, memory: Float[Tensor, "M S D"] | None = None
    ) -> Float[Tensor, "B T D"]:
        return self.scaled(super().next_features(ids, cache, memory))

    def parts(self) -> Parts:
        return replace(super().parts(), scale=self.scale)

    def scaled(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return x * self.scale if self.scale != 1 else x
