"""GPT: a decoder-only language model (Radford et al., 2019), and with other settings Llama (Touvron et al., 2023).

Unlike transformer.py: one stack, a causal mask, no source.
ids B T → embed B T D → blocks → norm → logits B T V
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, BlockConfig
from regard.nn.cache import Cache
from regard.nn.embeddings import Embedding, Head
from regard.nn.masks import causal
from regard.nn.stack import Parts, Stack, build_position, glorot, zero_output_init
from regard.registry import register_model


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTConfig(BlockConfig):
    """Sizes of a decoder-only Transformer; the defaults are GPT-2's, with rotary positions."""

    vocab_size: int = 50_257
    """Entries of the vocabulary."""
    depth: int = 12
    """Blocks."""
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    activation: Activation = "gelu-tanh"
    position: str = "rotary"
    tie: bool = True
    """The output layer shares the embedding's matrix."""
    final_norm: bool = True
    """A norm after the last block."""
    zero_init: bool = False
    """Initialise the output of every block to zero."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "depth")


GPT2: dict[str, Any] = dict(position="learned", max_len=1024)
LLAMA: dict[str, Any] = dict(
    position="rotary", norm="rms", activation="swiglu", bias=False, dropout=0.0, tie=False, vocab_size=32_000
)


@register_model("gpt")
class GPT(nn.Module):
    """A causal stack, and logits over the next token."""

    reads: ClassVar[tuple[str, ...]] = ()
    config_class = GPTConfig
    task = "generate"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128, depth=4, heads=4, ffn_dim=512),
        "small": dict(dim=384, depth=6, heads=6, ffn_dim=1536),
        "gpt2": dict(GPT2),
        "gpt2-medium": dict(GPT2, dim=1024, depth=24, heads=16, ffn_dim=4096),
        "gpt2-large": dict(GPT2, dim=1280, depth=36, heads=20, ffn_dim=5120),
        "gpt2-xl": dict(GPT2, dim=1600, depth=48, heads=25, ffn_dim=6400),
        "llama-2-7b": dict(LLAMA, dim=4096, depth=32, heads=32, ffn_dim=11_008, max_len=4096),
        "llama-3-8b": dict(
            LLAMA, dim=4096, depth=32, heads=32, kv_heads=8, ffn_dim=14_336, max_len=8192,
            vocab_size=128_256, position="rotary:base=500000",
        ),
    }  # fmt: skip

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        position = build_position(config)
        self.decoder = Stack(config, position, depth=config.depth, causal=True, final_norm=config.final_norm)
        glorot(self)
        if config.zero_init:
            zero_output_init(self.decoder)
        self.embedding = Embedding(config.vocab_size, config.dim, position, dropout=config.dropout, scaled=False)
        self.head = Head(config.vocab_size, config.dim, tied=self.embedding if config.tie else None)

    def features(self, ids: Int[Tensor, "B T"], *, cache: Cache | None = None) -> Float[Tensor, "B T D"]:
        """Return the input of the head. Rows are padded on the right, where the causal mask hides the padding."""
        x = self.embedding(ids, start=cache.length if cache else 0)
        return self.decoder(x, mask=causal(), cache=cache)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        return self.head(self.features(ids))

    def parts(self) -> Parts:
        return Parts(self.embedding, self.decoder, self.head)

    def new_cache(self, room: int) -> Cache:
        return self.decoder.new_cache(room)

    def prefill(self, prefix: Int[Tensor, "B T"], cache: Cache) -> Float[Tensor, "B V"]:
        return self.head(self.features(prefix, cache=cache)[:, -1])

    def step(self, ids: Int[Tensor, "B"], cache: Cache) -> Float[Tensor, "B V"]:
        return self.prefill(ids[:, None], cache)
