"""The encoder–decoder Transformer (Vaswani et al., 2017).

Two stacks of the same block: the encoder sees the whole source, the decoder its own past and, through
cross-attention, the encoder's output.
source B S → embed → encoder B S D;  target B T → embed → decoder (causal, cross) B T D → logits B T V
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import BlockConfig
from regard.nn.cache import Cache, KeyValues
from regard.nn.embeddings import Embedding, Head
from regard.nn.masks import Mask, causal, padding
from regard.nn.norm import build_norm
from regard.nn.stack import Parts, Stack, build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig(BlockConfig):
    """Sizes of an encoder–decoder Transformer; the defaults are `base`."""

    vocab_size: int = 32_000
    """Entries of the vocabulary, shared by source and target."""
    depth: int = 6
    """Blocks of the encoder."""
    decoder_depth: int | None = None
    """Blocks of the decoder (none: as many as the encoder)."""
    tie: Literal["all", "inputs", "output", "none"] = "all"
    """Which of source embedding, target embedding and output share a matrix: all, the first two, the last two, none."""
    embedding_scale: bool = True
    """Multiply token vectors by √dim."""
    head_bias: bool = False
    """A bias of the output layer."""
    final_norm: bool | None = None
    """A norm after each stack (none: only with norm_place=pre)."""
    embedding_norm: bool = False
    """A norm on the token vectors, before the first block."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "depth", "decoder_depth")

    @property
    def decoder_blocks(self) -> int:
        return self.decoder_depth or self.depth

    @property
    def ends_with_norm(self) -> bool:
        return self.norm_place == "pre" if self.final_norm is None else self.final_norm


@register_model("transformer")
class Transformer(nn.Module):
    """An encoder, a decoder, and logits over the next token."""

    reads: ClassVar[tuple[str, ...]] = ("source",)
    config_class = TransformerConfig
    task = "translate"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128, depth=4, heads=4, ffn_dim=256, dropout=0.1),
        "small": dict(dim=256, depth=4, heads=4, ffn_dim=1024),
        "base": dict(dim=512, depth=6, heads=8, ffn_dim=2048),
        "big": dict(dim=1024, depth=6, heads=16, ffn_dim=4096, dropout=0.3),
    }

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        # Each stack has its own positions: a learned bias differs where the future is hidden.
        read, written = build_position(config), build_position(config)
        ends: dict[str, Any] = dict(final_norm=config.ends_with_norm)
        self.encoder = Stack(config, read, depth=config.depth, causal=False, cross=False, **ends)
        self.decoder = Stack(config, written, depth=config.decoder_blocks, causal=True, cross=True, **ends)
        glorot(self)
        options: dict[str, Any] = dict(dropout=config.dropout, scaled=config.embedding_scale)
        norms = [build_norm(config.norm, config.dim, config.norm_eps) if config.embedding_norm else None for _ in "st"]
        self.target_embedding = Embedding(config.vocab_size, config.dim, written, norm=norms[1], **options)
        tied = self.target_embedding if config.tie in ("all", "inputs") else None
        self.source_embedding = Embedding(config.vocab_size, config.dim, read, tied=tied, norm=norms[0], **options)
        tied = self.target_embedding if config.tie in ("all", "output") else None
        self.head = Head(config.vocab_size, config.dim, tied=tied, bias=config.head_bias)

    def text_tower(self) -> Stack:
        """The encoder."""
        return self.encoder

    def encode(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> tuple[Float[Tensor, "B S D"], Mask]:
        mask = padding(lengths)
        return self.encoder(self.source_embedding(source), mask=mask), mask

    def features(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Return the input of the head. Targets are padded on the right, where the causal mask hides the padding."""
        memory, mask = self.encode(source, lengths)
        return self.decoder(self.target_embedding(target), memory, mask=causal(), context_mask=mask)

    def forward(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        return self.head(self.features(source, lengths, target))

    def parts(self) -> Parts:
        return Parts(self.target_embedding, self.decoder, self.head, (self.source_embedding, self.encoder))

    def new_cache(self, room: int) -> Cache:
        return self.decoder.new_cache(room)

    def prefill(
        self, prefix: Int[Tensor, "B T"], cache: Cache, *, source: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        memory, cache.mask = self.encode(source, lengths)
        cache.source = [KeyValues(source.shape[1], fixed=True) for _ in cache.own]
        return self.head(self.next_features(prefix, cache, memory)[:, -1])

    def step(self, ids: Int[Tensor, "B"], cache: Cache) -> Float[Tensor, "B V"]:
        return self.head(self.next_features(ids[:, None], cache)[:, -1])

    def next_features(
        self, ids: Int[Tensor, "B T"], cache: Cache, memory: Float[Tensor, "M S D"] | None = None
    ) -> Float[Tensor, "B T D"]:
        x = self.target_embedding(ids, start=cache.length)
        return self.decoder(x, memory, mask=causal(), context_mask=cache.mask, cache=cache)
