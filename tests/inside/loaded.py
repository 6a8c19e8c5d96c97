"""Tiny random models with tokenizers, as `regard.load` would hand them over."""

import tokenizers
import torch

from regard.models import GPT, LSTM, T5, Bert, BertConfig, GPTConfig, T5Config
from regard.models.recurrent import LSTMConfig
from regard.tasks.language_model import LanguageModel
from regard.tasks.text_encoder import TextEncoder
from regard.tasks.translator import Translator
from regard.tokens import Tokenizer

TEXTS = [
    "She sat on the bank of the river.",
    "The bank, he said, is open.",
    "Banks are rivers; a bank is a bank.",
    "Grüße vom Ufer an der Bank!",
]
SIZES = dict(dim=24, heads=3, ffn_dim=29, depth=2, max_len=64, dropout=0.0)
GENERATION = dict(
    bos=1, eos=2, pad=0, forbidden=[0], decoder_start=1, prompt_end="", num_beams=3, length_penalty=1.0, max_length=30,
    force_end=False,
)  # fmt: skip


def word_pieces() -> Tokenizer:
    """BERT's own kind: lower case, [CLS] … [SEP], pieces that go on with ##."""
    trained = tokenizers.BertWordPieceTokenizer(strip_accents=False)
    trained.train_from_iterator(TEXTS * 2, vocab_size=75, show_progress=False)
    inner = tokenizers.Tokenizer.from_str(trained.to_str())
    ends = [(name, inner.token_to_id(name)) for name in ("[SEP]", "[CLS]")]
    inner.post_processor = tokenizers.processors.BertProcessing(*ends)
    return Tokenizer(inner)


def encoder(**changes) -> TextEncoder:
    tokenizer = word_pieces()
    sizes = SIZES | dict(vocab_size=len(tokenizer), task="mask", pooler=False) | changes
    return TextEncoder(spread_out(Bert(BertConfig(**sizes))), tokenizer)


def writer(**changes) -> LanguageModel:
    tokenizer = Tokenizer.train(texts=TEXTS * 2, vocab_size=290)
    return LanguageModel(
        spread_out(GPT(GPTConfig(**SIZES | changes, vocab_size=len(tokenizer)))), tokenizer, GENERATION
    )


def recurrent() -> LanguageModel:
    tokenizer = Tokenizer.train(texts=TEXTS * 2, vocab_size=290)
    return LanguageModel(LSTM(LSTMConfig(vocab_size=len(tokenizer), dim=8)), tokenizer, GENERATION)


def translator() -> Translator:
    tokenizer = Tokenizer.train(texts=TEXTS * 2, vocab_size=290)
    return Translator(T5(T5Config(**SIZES, vocab_size=len(tokenizer))), tokenizer, GENERATION)


def spread_out(model):
    """Weights large enough that tokens differ in what they see."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model
