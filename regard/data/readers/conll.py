"""Texts with tags: a word a line with its tag (CoNLL, IOB, IOBES, BILOU), or lists of words and of tags."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".txt", ".tsv")
"""Files with a word a line; .conll and .bio are named in errors."""
PREFIXES = tuple("OBIESLU")


def is_tag(tag: str) -> bool:
    """Whether a text is O, or a prefix, a hyphen and a label."""
    prefix, _, label = tag.partition("-")
    return prefix in PREFIXES and (prefix == "O") != bool(label)


def read_words(lines: Sequence[str], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The sentences of a file: the word first and the tag last in a line; a blank line ends a sentence."""
    words: list[str] = []
    tags: list[str] = []
    begin, numbers = 1, numbers_words(lines)
    for number, line in enumerate([*lines, ""], 1):
        cells = (line.split("\t") if "\t" in line else line.split())[numbers:]
        if not line.strip():
            if words:
                yield begin, joined(words, tags)
            words, tags, begin = [], [], number + 1
        elif line.startswith("#") and not words and not is_tag(line.split()[-1]):
            begin = number + 1  # where the sentence is from
        elif cells[0] != "-DOCSTART-":
            if len(cells) < 2 or not cells[0].strip():
                raise ValueError(f"{path}, line {number}: got one column; give a word, a tab or a space, and its tag")
            if not is_tag(cells[-1]):
                raise ValueError(f"{path}, line {number}: the tag {cells[-1]!r} is neither O nor like B-NAME or I-NAME")
            words.append(cells[0])
            tags.append(cells[-1])


def numbers_words(lines: Sequence[str]) -> bool:
    """Whether the first column numbers the words of a sentence, as in GermEval and CoNLL-U."""
    first = [line.split() for line in lines if line.strip() and not line.startswith("#")][:3]
    return [cells[0] for cells in first] == ["1", "2", "3"] and all(len(cells) > 2 for cells in first)


def holds_words(lines: Sequence[str]) -> bool:
    """Whether a table has a word and its tag in each row, rather than a text in each."""
    rows = [line.split("\t") for line in lines[:200] if line.strip() and not line.startswith("#\t")]
    return bool(rows) and all(len(cells) > 1 and is_tag(cells[-1].strip()) for cells in rows)


def joined(words: Sequence[str], tags: Sequence[str]) -> dict[str, Any]:
    """Words and tags as a text with entities, read as conlleval does."""
    position, is_open = 0, False
    entities: list[dict[str, Any]] = []
    for word, tag in zip(words, tags, strict=True):
        prefix, _, label = tag.partition("-")
        if is_open and prefix in "IEL" and entities[-1]["label"] == label:
            entities[-1]["end"] = position + len(word)
        elif prefix != "O":
            entities.append({"start": position, "end": position + len(word), "label": label})
        is_open = prefix in "BI"
        position += len(word) + 1
    return {"text": " ".join(words), "entities": entities}


def from_lists(words: Any, tags: Any, names: Sequence[str]) -> dict[str, Any]:
    """The lists `tokens` and `ner_tags` of a row, tags as texts or as numbers of `names`."""
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"'tokens' is no list of texts: {str(words)[:40]}; save the table as .jsonl or .parquet")
    if not isinstance(tags, list) or len(tags) != len(words):
        got = f"{len(tags)} tags" if isinstance(tags, list) else str(tags)[:40]
        raise ValueError(f"got {len(words)} tokens and {got}; give one tag for each token")
    if not words:
        raise ValueError("'tokens' is empty; fill it, or leave out the line")
    spelled = []
    for tag in tags:
        if isinstance(tag, int) and not isinstance(tag, bool):
            if not names:
                raise ValueError(
                    f"the tags are numbers ({tag}) without names; name them in their order: --data.names O,B-PER,…"
                )
            if not 0 <= tag < len(names):
                raise ValueError(f"the tag {tag} is none of the {len(names)} names; correct it, or --data.names")
            tag = names[tag]
        if not isinstance(tag, str) or not is_tag(tag):
            raise ValueError(f"the tag {tag!r} is neither O nor like B-NAME or I-NAME")
        spelled.append(tag)
    return joined(words, spelled)
