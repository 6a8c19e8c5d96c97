"""Tokenizers for other projects: files that put the special tokens around every text, and name them."""

import json
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers.processors import TemplateProcessing

from regard.files import write_text
from regard.tokens.tokenizer import Tokenizer

Frame = Literal["both", "end", "none"]


def export_tokenizer(tokenizer: Tokenizer, directory: Path, *, frame: Frame, max_len: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    `frame` is used where the tokenizer has none of its own: <bos> and <eos> (encoders), only
    <eos> (the source of an encoder–decoder), or nothing.
    """
    inner = tokenizers.Tokenizer.from_str(tokenizer.inner.to_str())
    bos, eos = tokenizer.names.get("bos"), tokenizer.names.get("eos")
    if inner.post_processor is None and frame != "none" and bos and eos:
        single = f"{bos} $A {eos}" if frame == "both" else f"$A {eos}"
        inner.post_processor = TemplateProcessing(
            single=single,
            pair=f"{single} $B:1 {eos}:1",
            special_tokens=[(name, inner.token_to_id(name)) for name in (bos, eos)],
        )
    named = {f"{role}_token": name for role, name in tokenizer.names.items() if name}
    if frame == "both" and bos and eos:
        named |= {"cls_token": bos, "sep_token": eos}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_len} | named
    write_text(directory / "tokenizer.json", inner.to_str(pretty=True))
    write_text(directory / "tokenizer_config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
