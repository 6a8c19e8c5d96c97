"""Whisper (Radford et al., 2022): an encoder of log-mel frames, and a decoder that writes what was said.

Unlike transformer.py: the source is sound. Two convolutions halve its frames and widen them to the model; sinusoids in
the encoder, learned positions in the decoder, norms first. Special tokens before the text say language and task.
frames B N M → convolutions B S D + sinusoids → encoder B S D; target B T → decoder (causal, cross) B T D → logits B T V
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, BlockConfig
from regard.nn.cache import Cache, KeyValues
from regard.nn.dropout import Dropout
from regard.nn.embeddings import Embedding, Head
from regard.nn.frames import FrameStem
from regard.nn.masks import Mask, causal, padding
from regard.nn.positions import Position
from regard.nn.stack import Encoder, Parts, Stack, build_position, glorot
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class WhisperConfig(BlockConfig):
    """Sizes of a Whisper model; the defaults are `base`."""

    vocab_size: int = 51_865
    """Entries of the vocabulary, timestamps included."""
    mels: int = 80
    """Mel bands of a frame."""
    frames: int = 3000
    """Most frames of a window; the encoder has a position for every second one."""
    depth: int = 6
    """Blocks of the encoder."""
    decoder_depth: int | None = None
    """Blocks of the decoder (none: as many as the encoder)."""
    activation: Activation = "gelu"
    dropout: float = 0.0
    position: str = "learned"
    max_len: int = 448
    """Longest transcript, with the tokens before it; a hard limit only for learned positions."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "mels", "frames", "depth", "decoder_depth")

    @property
    def decoder_blocks(self) -> int:
        return self.decoder_depth or self.depth


def sizes(dim: int, depth: int, **more: Any) -> dict[str, Any]:
    """The fields of a published size, whose heads are 64 wide."""
    return dict(dim=dim, depth=depth, heads=dim // 64, ffn_dim=4 * dim) | more


@register_model("whisper")
class Whisper(nn.Module):
    """An encoder of frames, a decoder, and logits over the next token."""

    reads: ClassVar[tuple[str, ...]] = ("frames",)
    config_class = WhisperConfig
    task = "transcribe"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "toy": dict(dim=64, depth=2, heads=4, ffn_dim=128, frames=300, max_len=64, vocab_size=512),
        "tiny": sizes(384, 4),
        "base": sizes(512, 6),
        "small": sizes(768, 12),
        "medium": sizes(1024, 24),
        "large-v3": sizes(1280, 32, mels=128, vocab_size=51_866),
        "large-v3-turbo": sizes(1280, 32, decoder_depth=4, mels=128, vocab_size=51_866),
    }

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = Dropout(config.dropout)
        none = Position(dim=config.dim, heads=config.heads, head_dim=config.head_size, max_len=config.max_len)
        position = build_position(config)
        self.stem = FrameStem(config.mels, config.dim, -(-config.frames // 2))
        self.encoder = Stack(config, none, depth=config.depth, causal=False, cross=False, final_norm=True)
        self.decoder = Stack(config, position, depth=config.decoder_blocks, causal=True, cross=True, final_norm=True)
        glorot(self)
        self.embedding = Embedding(config.vocab_size, config.dim, position, dropout=config.dropout, scaled=False)
        self.head = Head(config.vocab_size, config.dim, tied=self.embedding)

    def example(self, rows: int) -> dict[str, Tensor]:
        """Inputs of `forward` to try the model with."""
        config = self.config
        lengths = torch.tensor([14, 9, 4, 11, 13, 7, 5])[:rows].clamp(max=config.frames)
        frames = torch.randn(rows, int(lengths.max()), config.mels)
        return dict(frames=frames, lengths=lengths, target=torch.randint(config.vocab_size, (rows, 5)))

    def encode(
        self, frames: Float[Tensor, "B N M"], lengths: Int[Tensor, "B"] | None = None
    ) -> tuple[Float[Tensor, "B S D"], Mask | None]:
        """Return the encoded frames, and the mask of those that are not padding; without `lengths` none is."""
        if frames.shape[1] > self.config.frames:
            raise ValueError(
                f"{frames.shape[1]} frames are more than the model's {self.config.frames}; cut the recording"
            )
        x = self.dropout(self.stem(frames, lengths))
        mask = padding((lengths + 1) // 2) if lengths is not None else None
        return self.encoder(x, mask=mask), mask

    def features(
        self, frames: Float[Tensor, "B N M"], lengths: Int[Tensor, "B"] | None, target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Return the input of the head. Targets are padded on the right, where the causal mask hides the padding."""
        memory, mask = self.encode(frames, lengths)
        return self.decoder(self.embedding(target), memory, mask=causal(), context_mask=mask)

    def forward(
        self, frames: Float[Tensor, "B N M"], lengths: Int[Tensor, "B"] | None, target: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        return self.head(self.features(frames, lengths, target))

    def parts(self) -> Parts:
        def length(inputs: Mapping[str, Tensor]) -> int:
            return -(-len(inputs["frames"]) // 2)

        encoder = Encoder(lambda frames: self.encode(frames)[0], length, longest=len(self.stem.waves))
        return Parts(self.embedding, self.decoder, self.head, encoder=encoder)

    def new_cache(self, room: int) -> Cache:
        return self.decoder.new_cache(room)

    def prefill(
        self,
        prefix: Int[Tensor, "B T"],
        cache: Cache,
        *,
        frames: Float[Tensor, "B N M"],
        lengths: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B V"]:
        memory, cache.mask = self.encode(frames, lengths)
        cache.source = [KeyValues(memory.shape[1], fixed=True) for _ in cache.own]
        return self.head(self.next_features(prefix, cache, memory)[:, -1])

    def step(self, ids: Int[Tensor, "B"], cache: Cache) -> Float[Tensor, "B V"]:
        return self.head(self.next_features(ids[:, None], cache)[:, -1])

    def next_features(
        self, ids: Int[Tensor, "B T"], cache: Cache, memory: Float[Tensor, "M S D"] | None = None
    ) -> Float[Tensor, "B T D"]:
        x = self.embedding(ids, start=cache.length)
        return self.decoder(x, memory, mask=causal(), context_mask=cache.mask, cache=cache)
