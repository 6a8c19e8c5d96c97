"""Vocabulary files of checkpoints without tokenizer.json, such as vocab.txt; the first byte chooses."""

import json

from fuzz.scratch import FOLDER, put
from regard.tokens import Tokenizer

READS = ("regard.tokens.published",)
FILES = ("vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json")
BYTES = {chr(code): code - 33 for code in range(33, 127)}
GOOD = {
    "vocab.txt": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\n##d\n",
    "vocab.json": json.dumps(BYTES | {"re": 94, "\u0120": 95, "<|endoftext|>": 96, "<s>": 97, "</s>": 98,
    "<unk>": 99, "<pad>": 100, "<mask>": 101}).encode(),
    "merges.txt": b"#version: 0.2\nr e\n",
    "tokenizer_config.json": json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False},
    "added_tokens_decoder": {"97": {"content": "<s>"}}}).encode(),
    "special_tokens_map.json": b'{"unk_token": "<unk>"}',
}  # fmt: skip
KINDS = ("bert", "gpt2", "roberta")


def seeds() -> list[bytes]:
    """Return every file with a byte before it that says which file and which family."""
    families = [bytes([16 * kind + 5]) + json.dumps({"model_type": name}).encode() for kind, name in enumerate(KINDS)]
    chosen = [
        (0, "vocab.txt"),
        (1, "vocab.json"),
        (1, "merges.txt"),
        (2, "vocab.json"),
        (2, "tokenizer_config.json"),
        (2, "special_tokens_map.json"),
    ]
    return families + [bytes([16 * kind + FILES.index(name)]) + GOOD[name] for kind, name in chosen]


def run(data: bytes) -> None:
    """Put one mutated file beside sound ones, load and encode."""
    choice = data[0] if data else 0
    kind = KINDS[choice // 16 % len(KINDS)]
    files = GOOD | {"config.json": json.dumps({"model_type": kind}).encode()}
    if kind == "bert":
        files |= {"tokenizer_config.json": b"{}", "special_tokens_map.json": b"{}"}
    for name, content in (files | {FILES[choice % 16 % len(FILES)]: data[1:]}).items():
        put(f"vocabulary/{name}", content)
    Tokenizer.load(FOLDER / "vocabulary").encode("a red bird, naïve 日本 😀")
