"""Tokenizers for other projects: files that put the special tokens around every text, and name them."""

import json
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers.processors import TemplateProcessing

from regard.files import write_atomically
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
    text = inner.to_str(pretty=True)
    write_atomically(directory / "tokenizer.json", lambda draft: draft.write_text(text, encoding="utf-8"))
    content = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    write_atomically(directory / "tokenizer_config.json", lambda draft: draft.write_text(content, encoding="utf-8"))
