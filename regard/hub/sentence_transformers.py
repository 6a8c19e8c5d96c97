"""Files that sentence-transformers writes beside a text encoder."""

from pathlib import Path

from regard.hub.files import read_json

POOLING = "1_Pooling/config.json"
"""The file that says how the vectors of tokens become one; its entries are read as those of `config.json` are."""
LENGTHS = "sentence_bert_config.json"


def longest_text(directory: Path) -> int | None:
    """The most tokens of a text that an encoder is meant for; None where no file says it."""
    path = directory / LENGTHS
    longest = read_json(path).get("max_seq_length") if path.is_file() else None
    return longest if isinstance(longest, int) and longest > 2 else None
