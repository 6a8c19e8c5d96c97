"""JSON as rows of named fields: an object a line, an array of objects, columns, or SQuAD's articles."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Objects = list[tuple[int, Row]]
LISTS = ("data", "rows", "examples", "items", "records", "instances", "annotations")
"""Keys under which a file of one object has its rows."""


def read_objects(text: str, path: Path, lines: bool, shown: str) -> tuple[Objects, str, str]:
    """The rows of a JSON file with their numbers, the unit that is counted (line, item), and the format in words.

    `lines` says that the suffix stands for an object a line; `shown` is what such a line is like, for errors.
    """
    first = text.lstrip()[:1]
    if lines and first != "[":
        return list(object_lines(text, path, shown)), "line", "JSON, an object a line"
    try:
        stored = json.loads(text)
    except json.JSONDecodeError as error:
        if first == "{" and error.msg == "Extra data":  # as pandas and datasets write it, also to .json
            return list(object_lines(text, path, shown)), "line", "JSON, an object a line"
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error}); write it again with json.dump") from None
    except (ValueError, RecursionError) as error:  # numbers that are too long, objects that are nested too deeply
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ValueError(f"{path}: not JSON that can be read ({reason}); write one object a line") from None
    if lines and not isinstance(stored, list | dict):
        raise ValueError(f"{path}, line 1: not an object; write one a line, like {shown}")
    rows, about = rows_of(stored, path)
    objects = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            got = json.dumps(row)[:40]
            raise ValueError(f"{path}, {'line' if lines else 'item'} {number}: not an object, but {got}; like {shown}")
        objects.append((number, row))
    return objects, "item", about


def object_lines(text: str, path: Path, shown: str) -> Iterator[tuple[int, Row]]:
    """The objects of a file with one a line; blank lines are passed over."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: not an object; write one a line, like {shown}")
        yield number, row


def rows_of(stored: Any, path: Path) -> tuple[list[Any], str]:
    """The rows of a whole JSON document, and its layout in words."""
    if isinstance(stored, list):
        if any(isinstance(item, dict) and "paragraphs" in item for item in stored):
            return list(squad(stored, path)), "SQuAD's JSON"
        return stored, "a JSON array"
    if not isinstance(stored, dict):
        raise ValueError(f"{path}: neither an array nor an object; write an array of objects, or one object a line")
    data = stored.get("data")
    if isinstance(data, list) and any(isinstance(item, dict) and "paragraphs" in item for item in data):
        return list(squad(data, path)), "SQuAD's JSON"
    if isinstance(data, list) and isinstance(stored.get("columns"), list):  # pandas, orient="split"
        names = list(map(str, stored["columns"]))
        return [dict(zip(names, row, strict=False)) for row in data if isinstance(row, list)], "JSON of pandas (split)"
    for key in LISTS:
        rows = stored.get(key)
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            inner = all(isinstance(row, dict) and isinstance(row.get("row"), dict) for row in rows)  # the Hub's viewer
            return [row["row"] for row in rows] if inner else rows, f"JSON, the array {key!r}"
    columns = {str(name): values for name, values in stored.items()}
    if columns and all(isinstance(values, dict) for values in columns.values()):  # pandas, orient="columns" or "index"
        keys = [tuple(values) for values in columns.values()]
        if len(set(keys)) == 1 and all(key.isdigit() for key in keys[0]):
            return [{name: values[key] for name, values in columns.items()} for key in keys[0]], "JSON of pandas"
        if all(name.isdigit() for name in columns):
            return list(columns.values()), "JSON of pandas (index)"
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    if lists and len(lists) == len(columns) and len({len(values) for values in lists.values()}) == 1:
        if not all(isinstance(item, dict) for values in lists.values() for item in values):
            return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)], "JSON by columns"
    parts = [name for name, values in lists.items() if values and isinstance(values[0], dict)]
    if len(parts) == 1:
        return lists[parts[0]], f"JSON, the array {parts[0]!r}"
    if parts:
        raise ValueError(f"{path} has several arrays ({', '.join(parts)}); write each of them to a file of its own")
    return [stored], "a JSON object"


def squad(articles: list[Any], path: Path) -> Iterator[Row]:
    """The questions of SQuAD's articles, with the passage of each; version 2 has questions without an answer."""
    for number, article in enumerate(articles, 1):
        try:
            for paragraph in article["paragraphs"]:
                for item in paragraph["qas"]:
                    spans = [] if item.get("is_impossible") else item.get("answers", [])
                    answers = {
                        "text": [answer["text"] for answer in spans],
                        "answer_start": [answer["answer_start"] for answer in spans],
                    }
                    yield {"question": item["question"], "passage": paragraph["context"], "answers": answers}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}, article {number}: not as in SQuAD ({error}); paragraphs have context and qas, each of them "
                "question and answers"
            ) from None
