"""One family a file; importing this package registers them all."""

from regard.models.base import Generator, build, preset
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig

__all__ = ["Generator", "Seq2Seq", "Seq2SeqConfig", "Transformer", "TransformerConfig", "build", "preset"]
