"""The inputs that the page offers to try, kept beside the weights as the fields of its requests."""

import json
from pathlib import Path
from typing import Any

from regard.config import read_json_value
from regard.files import write_atomically
from regard.modalities import modality_of
from regard.registry import modalities
from regard.tasks.base import Example, Samples, Task, shortened

EXAMPLES = "examples.json"
"""The file beside the weights that the examples are saved in."""
MOST = 8
"""Examples that are kept, at most."""
SPECIAL = 4
"""Places of the context that an example leaves to special tokens."""
LABEL = 60
"""Characters of a label, at most."""


def request_of(kind: type[Task], example: Example) -> dict[str, Any]:
    """The fields of a request to look at an example, and a label for people."""
    item, *texts = example.inputs
    record = modality_of(item, kind.inputs)
    if record.files:
        fields = {record.field: record.send(item)} | ({"texts": texts} if texts else {})
    else:
        fields = {"input": item} | ({"second": texts[0]} if texts else {})
    label = example.label or (item if isinstance(item, str) and not record.files else record.field)
    return {"label": shortened(label, LABEL)} | fields


def save_examples(task: Task, samples: Samples, run: Path) -> None:
    """Write the examples of a run's own data into the run; nothing where there are none."""
    rows = [] if modalities[task.inputs[0]].files else [text for text, _ in samples.rows if text]
    examples = samples.examples or [Example(inputs=(text,)) for text in rows]
    data = [request_of(type(task), example) for example in examples if readable(task, example)][:MOST]
    if data:
        text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
        write_atomically(run / EXAMPLES, lambda file: file.write_text(text, encoding="utf-8"))


def readable(task: Task, example: Example) -> bool:
    """Whether a task can read an example: a text may be longer than the model's context."""
    try:
        task.read(*example.inputs)
    except ValueError:
        return False
    return True


def examples_of(kind: type[Task], path: Path, config: Any) -> list[dict[str, Any]]:
    """The examples of the model in `path` that fit its context: those saved beside it, or the defaults of its task."""
    file = path / EXAMPLES
    if path.is_dir() and file.is_file():
        data = read_json_value(file, "remove it")
        if not isinstance(data, list) or not all(isinstance(row, dict) and row.get("label") for row in data):
            raise ValueError(f"{file} is no list of examples with labels; remove it")
    else:
        data = [request_of(kind, example) for example in kind.default_examples(path, config)[:MOST]]
    record, context = modalities[kind.inputs[0]], getattr(config, "max_len", None)
    if record.files or context is None:
        return data
    reader = record.load(path, config)
    return [row for row in data if length(reader, row) + SPECIAL <= context]


def length(reader: Any, row: dict[str, Any]) -> int:
    """The number of tokens of an example's texts."""
    return sum(len(reader.encode(row[name])) for name in ("input", "second") if isinstance(row.get(name), str))
