"""One family a file; importing this package registers them all."""

from regard.models.base import Generator, build, preset
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.recurrent import GRU, LSTM, RNN, RecurrentConfig
from regard.models.seq2seq import Seq2Seq, Seq2SeqConfig
from regard.models.t5 import T5, T5Config
from regard.models.transformer import Transformer, TransformerConfig

__all__ = [
    "GPT", "GRU", "LSTM", "RNN", "T5", "Bert", "BertConfig", "GPTConfig", "Generator", "RecurrentConfig", "Seq2Seq",
    "Seq2SeqConfig", "T5Config", "Transformer", "TransformerConfig", "build", "preset",
]  # fmt: skip
