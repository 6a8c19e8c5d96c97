"""A tiny Whisper with random weights, its tokenizer and its settings, as a directory or as a task."""

from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from regard.hub import export_model
from regard.hub.feature_extractor import save_features
from regard.hub.transcription import load_transcription, save_transcription
from regard.models import Whisper, WhisperConfig
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel

NAMES = (
    "endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startoflm", "startofprev", "nospeech",
    "notimestamps",
)  # fmt: skip
SECONDS = 4
"""The length of a window."""
TIMES = SECONDS * 50 + 1


def tokenizer() -> Tokenizer:
    """Bytes, and the special tokens that Whisper has."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({letter: id for id, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([f"<|{name}|>" for name in NAMES])
    return Tokenizer(inner, names={"bos": "<|endoftext|>", "eos": "<|endoftext|>", "pad": "<|endoftext|>"})


def make_whisper(directory: Path, seed: int = 1) -> Path:
    """A checkpoint in the Hugging Face layout."""
    torch.manual_seed(seed)
    letters = tokenizer()
    size = letters.vocab_size + TIMES
    sizes = dict(dim=32, depth=1, heads=2, ffn_dim=48, mels=16, frames=SECONDS * 100, max_len=48)
    model = Whisper(WhisperConfig(vocab_size=size, **sizes)).eval()
    export_model(model, directory, bos=257, eos=256, pad=256)
    letters.save(directory)
    save_features(directory, LogMel(bands=16, length=SECONDS * 100))
    save_transcription(directory, load_transcription(directory, letters, size), 48)
    return directory
