"""BERT: an encoder that sees both sides (Devlin et al., 2019), with what is read off its vectors.

Unlike transformer.py: only the encoder; segments and a norm on the embedding; a head for a task instead of a decoder.
RoBERTa, DistilBERT, ALBERT (one block for all layers, narrow token vectors) and ESM (norms first, rotary positions) are
the same with other settings.
ids B T → embed + positions + segments B T E → norm → blocks B T D → head
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import check_positive
from regard.nn.block import Activation, BlockConfig, NormPlace
from regard.nn.embeddings import Embedding
from regard.nn.heads import LabelHead, MaskHead, Pooler, mean_pool
from regard.nn.masks import padding
from regard.nn.norm import build_norm
from regard.nn.stack import Stack, build_position, glorot, init_keys_as_queries
from regard.registry import register_model

TASKS = {"none": "embed", "mask": "fill", "pretrain": "fill", "classify": "classify", "tag": "tag", "answer": "answer"}
MASKED = 0.15 * 0.8
"""The share of masks in the training of ESM."""
POOLED = ("pretrain", "classify")
"""Tasks that read the pooled vector of the first token; without a pooler, `classify` reads the one of `embed`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BertConfig(BlockConfig):
    """Sizes of an encoder and its task; the defaults are `bert-base`."""

    vocab_size: int = 30_522
    """Entries of the vocabulary."""
    depth: int = 12
    """Blocks."""
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    activation: Activation = "gelu"
    """Activation of the feed-forward layer and the head."""
    norm_place: NormPlace = "post"
    norm_eps: float = 1e-12
    position: str = "learned"
    max_len: int = 512
    embedding_dim: int | None = None
    """Width of the embedding, if it is projected to `dim` (none: dim)."""
    types: int = 2
    """Token types: first and second text; 0 for none."""
    embedding_norm: bool = True
    """A norm on the embedding."""
    mask_id: int | None = None
    """The mask, where its vector is zeros and the others grow with its share (ESM); none: a token as others are."""
    shared: bool = False
    """One block's weights at every depth (ALBERT)."""
    pooler: bool = True
    """A layer on the first token's vector, for tasks about the whole text."""
    pooler_activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the pooler."""
    task: Literal["none", "mask", "pretrain", "classify", "tag", "answer"] = "pretrain"
    """Head: none, masked tokens, those and the next sentence, labels of a text or of its tokens, or an answer span."""
    labels: tuple[str, ...] = ()
    """Names of the labels, for `classify` and `tag`."""
    pooling: Literal["mean", "first"] = "mean"
    """The vector of a whole text: the mean of its tokens' vectors, or the first one."""

    def __post_init__(self) -> None:
        BlockConfig.__post_init__(self)
        check_positive(self, "vocab_size", "depth", "embedding_dim")
        if self.task == "pretrain" and not self.pooler:
            raise ValueError("task 'pretrain' reads the pooled vector; set pooler=true")


@register_model("bert")
class Bert(nn.Module):
    """An encoder and the head of its task."""

    config_class = BertConfig
    task_names, optional_names = ("head.", "pair_head."), ("pooler.",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "tiny": dict(dim=128, depth=4, heads=4, ffn_dim=512),
        "mini": dict(dim=256, depth=4, heads=4, ffn_dim=1024),
        "minilm-l6": dict(dim=384, depth=6, heads=12, ffn_dim=1536),
        "bert-base": dict(),
        "bert-large": dict(dim=1024, depth=24, heads=16, ffn_dim=4096),
        "distilbert-base": dict(depth=6, types=0, task="mask", pooler=False),
        "roberta-base": dict(vocab_size=50_265, types=1, norm_eps=1e-5, task="mask", pooler=False),
        "albert-base": dict(vocab_size=30_000, embedding_dim=128, shared=True, activation="gelu-tanh"),
    }
    small: ClassVar[dict[str, Any]] = dict(dim=20, depth=2, heads=2, ffn_dim=29, max_len=37, task="mask", pooler=False)

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        if config.task in ("classify", "tag") and not config.labels:
            raise ValueError(f"task {config.task!r} needs the names of its labels")
        self.config = config
        width = config.embedding_dim or config.dim
        position = build_position(config, width)
        final = config.norm_place == "pre"
        self.encoder = Stack(config, position, depth=config.depth, causal=False, final_norm=final, shared=config.shared)
        self.widen = nn.Linear(width, config.dim) if config.embedding_dim is not None else None
        self.pooler = Pooler(config.dim, activation=config.pooler_activation) if config.pooler else None
        glorot(self)
        init_keys_as_queries(self.encoder)
        norm = build_norm(config.norm, width, config.norm_eps) if config.embedding_norm else None
        looks: dict[str, Any] = dict(dropout=config.dropout, scaled=False, types=config.types, norm=norm)
        self.embedding = Embedding(config.vocab_size, width, position, **looks)
        self.head = self.new_head()
        self.pair_head = LabelHead(config.dim, 2, dropout=0.0) if config.task == "pretrain" else None

    @property
    def task(self) -> str:
        return TASKS[self.config.task]

    def new_head(self) -> nn.Module | None:
        config = self.config
        if config.task == "none":
            return None
        if config.task in ("mask", "pretrain"):
            options: dict[str, Any] = dict(activation=config.activation, norm=config.norm, eps=config.norm_eps)
            return MaskHead(config.dim, self.embedding, **options)
        return LabelHead(config.dim, len(config.labels) or 2, dropout=config.dropout)

    def head_names(self) -> tuple[str, ...]:
        """The beginnings of the names of the head's parameters; the pooler is one of them where the head reads it."""
        return ("head.", "pooler.") if self.config.task in POOLED else ("head.",)

    def features(
        self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], types: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return a vector for each token."""
        x = self.embedding(ids, types=types, factor=self.factor(ids, lengths))
        if self.widen is not None:
            x = self.widen(x)
        return self.encoder(x, mask=padding(lengths))

    def factor(self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B T"] | None:
        """Return what token vectors are multiplied by where masks are zeros: as many as in training change nothing."""
        if self.config.mask_id is None:
            return None
        hidden = ids == self.config.mask_id
        grown = (1 - MASKED) * lengths / (lengths - hidden.sum(1)).clamp(min=1)
        return grown[:, None] * ~hidden

    def forward(
        self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], types: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B *N"]:
        """Return the head's logits: over the vocabulary, labels, or (start, end) of tokens; without a head, vectors."""
        x = self.features(ids, lengths, types)
        if self.head is None:
            return x
        if self.config.task == "classify":
            x = self.pooled(x, lengths) if self.pooler is None else self.pooler(x)
        return self.head(x)

    def outputs(self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B *N"] | tuple[Tensor, ...]:
        """Outputs of every head that a training step uses; `pretrain` has two."""
        if self.config.task != "pretrain":
            return self(ids, lengths)
        assert self.head is not None
        x = self.features(ids, lengths)
        return self.head(x), self.follows(x)

    def follows(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B 2"]:
        """Return logits for "the second text follows the first" and "it does not"."""
        assert self.pooler is not None and self.pair_head is not None
        return self.pair_head(self.pooler(x))

    def embed(
        self, ids: Int[Tensor, "B T"], lengths: Int[Tensor, "B"], types: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B D"]:
        """Return one vector for each text."""
        return self.pooled(self.features(ids, lengths, types), lengths)

    def pooled(self, x: Float[Tensor, "B T D"], lengths: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        """Return the vector of each text from those of its tokens."""
        return mean_pool(x, lengths) if self.config.pooling == "mean" else x[:, 0]
