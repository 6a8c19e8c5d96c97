"""Tokens of proteins and of DNA as ESM's checkpoints list them: the longest entry that comes next."""

import re
from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers


def build_residues(entries: Sequence[str], names: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Return a tokenizer of entries in the order of their ids, of which `names` are special tokens; white space is left
    out."""
    words = [entry for entry in entries if entry not in names.values()]
    inner = tokenizers.Tokenizer(models.WordLevel({entry: id for id, entry in enumerate(entries)}, names["unk"]))
    split = pre_tokenizers.Split(tokenizers.Regex(longest_first(words)), behavior="isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), split])
    inner.decoder = decoders.Fuse()
    return inner


def longest_first(words: Sequence[str]) -> str:
    """Return a pattern for the longest of some words that a text goes on with; what several words begin with is
    compared once."""
    after: dict[str, list[str]] = {}
    for word in words:
        if word:
            after.setdefault(word[0], []).append(word[1:])
    rest = "|".join(re.escape(first) + longest_first(ends) for first, ends in after.items())
    return f"(?:{rest}){'?' if '' in words else ''}" if rest else ""
