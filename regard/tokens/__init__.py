"""Tokenizers: texts to ids and back, pixels to ids, and the special tokens around a text."""

from regard.tokens.corpus import read_chunks
from regard.tokens.frame import Framed
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.trace import Step, Trace, trace

__all__ = ["Framed", "Step", "Tokenizer", "Trace", "read_chunks", "trace"]
