"""tokenizer.json, read and used on a text."""

import json

from fuzz.scratch import FOLDER, put
from regard.tokens import Tokenizer

READS = ("regard.tokens.tokenizer",)
TEXTS = ["a red bird sees the black horse", "naïve café for €5, 日本 😀"] * 3
WORDS = [
    json.dumps(word).encode() for word in (
        "BPE", "WordPiece", "Unigram", "WordLevel", "Replace", "Regex", "Split", "Sequence", "NFKC", "Prepend",
        "Precompiled", "ByteLevel",
        "Metaspace", "TemplateProcessing", "ByteFallback", "Strip", "(a+)+$", "(?:a?){40}a{40}", "",
    )
]  # fmt: skip


def seeds() -> list[bytes]:
    """Return a trained tokenizer, and small ones of other kinds."""
    Tokenizer.train(texts=TEXTS, vocab_size=270).save(FOLDER / "seed")
    trained = (FOLDER / "seed" / "tokenizer.json").read_bytes()
    frame = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None}
    pieces = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }
    words = frame | {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace",
        "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": pieces | {"vocab": {"[UNK]": 0, "a": 1, "##b": 2, "red": 3}},
    }  # fmt: skip
    unigram = frame | {
        "normalizer": {"type": "Prepend", "prepend": "▁"}, "pre_tokenizer": None, "decoder": {"type": "Metaspace",
        "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": [["<unk>", 0.0], ["▁a", -1.0],
        ["r", -2.0]]},
    }  # fmt: skip
    return [trained, json.dumps(words).encode(), json.dumps(unigram).encode()]


def run(data: bytes) -> None:
    """Load the tokenizer, encode and decode a text."""
    tokenizer = Tokenizer.load(put("tokenizer/tokenizer.json", data))
    ids = tokenizer.encode("a red bird, naïve 日本 😀  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")
    tokenizer.decode(ids)
    tokenizer.pieces(ids)
