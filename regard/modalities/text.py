"""Texts: read by a tokenizer, which is saved as `tokenizer.json`."""

from pathlib import Path
from typing import Any

from regard.hub.llama2c import load_llama2c_tokenizer
from regard.modalities.base import Modality
from regard.registry import register_modality
from regard.tokens import Tokenizer


def load(path: Path, config: Any) -> Tokenizer:
    """The tokenizer beside a model; a llama2.c file has its own format."""
    return load_llama2c_tokenizer(path) if path.is_file() else Tokenizer.load(path)


def read(item: Any) -> str:
    """The text itself; an error for anything else."""
    if not isinstance(item, str):
        raise ValueError(f"a text is expected, got {type(item).__name__}; put it in quotes")
    return item


EXAMPLES = ("The cat sat on the mat.", "The bank raised its rates.", "They walked along the bank of the river.")
"""Texts for models that have no examples of their own."""


TEXT = register_modality("text")(
    Modality(
        name="text", suffixes=(".txt", ".csv", ".tsv", ".jsonl"), file="tokenizer.json", load=load,
        save=lambda tokenizer, path: tokenizer.save(path / "tokenizer.json"), read=read, unit="tokens",
        field="text", widget="text", describe=lambda tokenizer: f"vocabulary {len(tokenizer):,}",
        examples=lambda path, config: [("", text) for text in EXAMPLES],
    )
)  # fmt: skip
