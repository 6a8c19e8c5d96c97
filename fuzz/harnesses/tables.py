"""Tables of examples: .csv, .tsv, .jsonl, .json (also SQuAD's), fastText's lines, CoNLL; the first byte chooses."""

import json

from fuzz.scratch import put
from regard.data.readers.examples import read_examples
from regard.data.readers.inputs import read_inputs
from regard.data.readers.pairs import read_pairs

READS = tuple(
    f"regard.data.readers.{name}"
    for name in (
        "tables",
        "cells",
        "columns",
        "objects",
        "examples",
        "conll",
        "inputs",
        "pairs",
        "scores",
        "text_files",
    )
)
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".txt", ".conll")
TASKS = ("classify", "tag", "answer", "embed", "instruct")
WORDS = [
    b"text",
    b"label",
    b"question",
    b"context",
    b"answers",
    b"score",
    b"tokens",
    b"ner_tags",
    b"__label__",
    b"B-PER",
    b"O",
    b"\t",
    b'","',
    b"-DOCSTART-",
]


def seeds() -> list[bytes]:
    """Return a table of each format with a byte before it that says which, and for which task."""
    squad = {
        "data": [
            {
                "title": "t",
                "paragraphs": [
                    {
                        "context": "a red bird",
                        "qas": [{"id": "1", "question": "who?", "answers": [{"text": "bird", "answer_start": 6}]}],
                    }
                ],
            }
        ]
    }
    rows = [{"text": "a red bird", "label": "good"}, {"text": "a horse", "label": "bad"}]
    scored = [{"a": "one", "b": "two", "score": 2.5}, {"a": "three", "b": "four", "score": 5}]
    tagged = [{"tokens": ["a", "bird"], "ner_tags": ["O", "B-X"]}]
    return [
        code(".csv", "classify") + b'text,label\n"a red, ""bird""",good\na horse,bad\n',
        code(".tsv", "classify") + b"text\tlabel\na red bird\tgood\na horse\tbad\n",
        code(".jsonl", "classify") + b"\n".join(json.dumps(row).encode() for row in rows),
        code(".json", "classify") + json.dumps(rows).encode(),
        code(".json", "answer") + json.dumps(squad).encode(),
        code(".json", "embed") + json.dumps(scored).encode(),
        code(".json", "tag") + json.dumps(tagged).encode(),
        code(".json", "instruct") + json.dumps([{"prompt": "a", "answer": "b"}]).encode(),
        code(".txt", "classify") + b"__label__good a red bird\n__label__bad a horse\n",
        code(".conll", "tag") + b"a O\nred B-X\nbird I-X\n\na O\nhorse B-Y\n",
    ]


def code(suffix: str, task: str) -> bytes:
    """Return the byte that stands for a format and a task."""
    return bytes([SUFFIXES.index(suffix) * 8 + TASKS.index(task)])


def run(data: bytes) -> None:
    """Read the table as examples, and as inputs or pairs."""
    choice = data[0] if data else 0
    suffix, task = SUFFIXES[choice // 8 % len(SUFFIXES)], TASKS[choice % 8 % len(TASKS)]
    path = put(f"table{suffix}", data[1:])
    refused = None
    reads = [lambda: read_examples(path, task)]
    if suffix not in (".txt", ".conll") and task == "classify":
        reads += [lambda: read_inputs(path)]
    if len(data) % 3 == 0 and suffix == ".tsv":
        reads += [lambda: read_pairs(None, None, str(path), ("source", "target"))]
    for read in reads:
        try:
            read()
        except ValueError as error:
            if type(error) is not ValueError and not type(error).__module__.startswith("regard"):
                raise
            refused = error
    if refused is not None:
        raise refused
