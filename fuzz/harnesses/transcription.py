"""The rules of Whisper's transcripts: generation_config.json, or CTranslate2's config.json; the first byte chooses."""

import json
from functools import cache

from fuzz.scratch import FOLDER, put
from regard.hub.transcription import load_transcription, save_transcription
from regard.tokens import Tokenizer

READS = ("regard.hub.transcription",)
NAMES = ("generation_config.json", "config.json")
SPECIALS = (
    "endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startofprev", "nospeech", "notimestamps",
)  # fmt: skip
SIZE = 400


@cache
def tokenizer() -> Tokenizer:
    """Return a tokenizer with the special tokens that Whisper has."""
    trained = Tokenizer.train(texts=["a red bird"], kind="char", vocab_size=300)
    trained.inner.add_special_tokens([f"<|{name}|>" for name in SPECIALS])
    return trained


def seeds() -> list[bytes]:
    """Return what we write, and settings as CTranslate2 names them."""
    folder = FOLDER / "rules"
    folder.mkdir(exist_ok=True)
    save_transcription(folder, load_transcription(folder, tokenizer(), SIZE), 48)
    theirs = {"suppress_ids": [1, 2], "suppress_ids_begin": [3], "alignment_heads": [[0, 0]], "lang_ids": [4]}
    return [b"\x00" + (folder / NAMES[0]).read_bytes(), b"\x01" + json.dumps(theirs).encode()]


def run(data: bytes) -> None:
    """Load the rules, and begin a transcript by them."""
    choice = data[0] % len(NAMES) if data else 0
    for number, name in enumerate(NAMES):
        put(f"rules/{name}", data[1:] if number == choice else b"{}")
    load_transcription(FOLDER / "rules", tokenizer(), SIZE).prompt("de", "translate")
