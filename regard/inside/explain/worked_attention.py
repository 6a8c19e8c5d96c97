"""Attention worked out by hand on a few words: the seven steps from a query to its output, with every number.

1 query · 2 keys · 3 scores q·k · 4 scaled by √d_k · 5 softmax → weights · 6 values · 7 weighted sum
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import nearest, read_json_value, read_toml
from regard.nn.kernels import attend
from regard.nn.mask_expressions import read_mask
from regard.nn.masks import everything

Rows = list[list[float]]
FIELDS = ("title", "words", "queries", "keys", "values", "vectors", "scores", "weights", "features", "lecture")
MOST_WORDS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """Words with keys and values, and the queries that attend to them.

    In place of queries and keys there may be `scores` (query × word), or `weights` to be masked and normalised again.
    """

    words: list[str]
    names: list[str]
    """One name for each query."""
    queries: Rows | None = None
    keys: Rows | None = None
    values: Rows | None = None
    scores: Rows | None = None
    features: list[str] = field(default_factory=list)
    """Names of the vectors' dimensions."""
    title: str = ""
    lecture: Mapping[str, list[float]] = field(default_factory=dict)
    """Numbers that the source prints for the first query: scores, scaled, exponentials, weights, output."""

    @property
    def own(self) -> bool:
        """Whether the words attend to each other, so that query i stands at the position of word i."""
        return len(self.names) == len(self.words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Worked:
    """All numbers of one query's attention."""

    query: str
    q: list[float] | None
    scores: list[float]
    scaled: list[float]
    """Scores divided by √d_k and by the temperature; −∞ where the mask hides a word."""
    exponentials: list[float]
    total: float
    weights: list[float]
    output: list[float] | None
    divisor: float
    """√d_k · temperature."""


def work_out(
    example: Example,
    query: str | Sequence[float] | None = None,
    *,
    mask: str = "",
    temperature: float = 1.0,
    digits: int | None = None,
) -> Worked:
    """Return the seven steps for one query: a name or number of the example's own, a vector, or by default the first.

    With `digits`, every step is rounded to so many before it is used in the next, as on a blackboard.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature={temperature} must be above 0; 0.1 is nearly a hard lookup, 10 nearly even")
    index, q = find_query(example, query)
    size = len(example.keys[0]) if example.keys else 1
    divisor = math.sqrt(size) * temperature

    def shown(values: Tensor, more: int = 0) -> Tensor:
        return values if digits is None else torch.round(values, decimals=digits + more)

    if q is not None:
        assert example.keys is not None
        scores = shown(torch.tensor(example.keys, dtype=torch.float64) @ torch.tensor(q, dtype=torch.float64))
    else:
        assert example.scores is not None and index is not None
        scores = torch.tensor(example.scores[index], dtype=torch.float64)
    count = len(example.words)
    place = index if example.own and index is not None else count - 1  # another sequence's query stands at the end
    rule = read_mask(mask, count) if mask else everything()
    allowed = rule.at(place).dense(1, count)[0, 0, 0]
    if not allowed.any():
        raise ValueError(f"mask {mask!r} hides every word from query {place}; let it see at least one")
    scaled = shown(scores / divisor).masked_fill(~allowed, -math.inf)
    exponentials = shown(scaled.exp())
    total = shown(exponentials.sum()).item()
    values = torch.tensor(example.values or [[0.0]] * count, dtype=torch.float64)
    mixed, weights = attend(scaled[None, None, None], values[None, None])  # the core's own softmax and sum
    if digits is not None:
        weights = shown(exponentials / total)[None, None, None]
        mixed = shown(weights @ values, more=1)
    output = None if example.values is None else mixed[0, 0, 0].tolist()
    return Worked(
        query=name_of(example, index, q), q=q, scores=scores.tolist(), scaled=scaled.tolist(),
        exponentials=exponentials.tolist(), total=total, weights=weights[0, 0, 0].tolist(), output=output,
        divisor=divisor,
    )  # fmt: skip


def all_weights(example: Example, *, mask: str = "", temperature: float = 1.0) -> Float[Tensor, "T S"]:
    """Return the attention weights of every query of an example."""
    rows = [work_out(example, str(i), mask=mask, temperature=temperature).weights for i in range(len(example.names))]
    return torch.tensor(rows)


def find_query(example: Example, query: str | Sequence[float] | None) -> tuple[int | None, list[float] | None]:
    """Return the index of a query, if it is one of the example's, and its vector, if there are vectors."""
    if isinstance(query, str) and "," in query:
        try:
            query = [float(part) for part in query.split(",")]
        except ValueError:
            raise ValueError(f"query {query!r} is no vector; write numbers and commas, as in 0.9,0.1,0.2") from None
    if query is not None and not isinstance(query, str):
        vector = list(query)
        if example.keys is None:
            raise ValueError("this example has scores instead of keys, so a query must be one of its own; name it")
        if len(vector) != len(example.keys[0]):
            raise ValueError(f"the query has {len(vector)} numbers, the keys have {len(example.keys[0])}; give as many")
        return None, vector
    index = 0
    if query is not None and query.isdigit() and query not in example.names:
        index = int(query)
        if index >= len(example.names):
            raise ValueError(f"there is no query {index}; they are numbered from 0 to {len(example.names) - 1}")
    elif query is not None:
        if query not in example.names:
            raise ValueError(f"no query {query!r}, and no vector such as 0.9,0.1,0.2; {nearest(query, example.names)}")
        index = example.names.index(query)
    return index, None if example.queries is None else example.queries[index]


def name_of(example: Example, index: int | None, q: list[float] | None) -> str:
    return example.names[index] if index is not None else ", ".join(f"{x:g}" for x in q or ())


def load_example(name: str) -> Example:
    """Return a built-in example by its name, or the one in a .toml or .json file."""
    if name in EXAMPLES:
        return read_example(EXAMPLES[name], name)
    path = Path(name)
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"no example {name!r}, and no .toml or .json file of one; {nearest(name, EXAMPLES)}")
    if path.is_file() and path.stat().st_size > 1_000_000:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes; an example to read by eye has at most 1,000,000")
    return read_example(read_toml(path) if path.suffix == ".toml" else read_json_value(path), str(path))


def read_example(content: Any, file: str) -> Example:
    """Check what a file holds and return it as an example; an error names the file and the field."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{file} holds no fields; it needs words with keys and values, or with scores")
    for name in content:
        if name not in FIELDS:
            raise ValueError(f"{file} has an unknown field {name!r}; {nearest(name, FIELDS)}")
    words = content.get("words")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f'{file} needs words, a list of texts such as ["the", "cat"]; got {words!r}')
    if len(words) > MOST_WORDS:
        raise ValueError(f"{file} has {len(words)} words; attention is worked out for at most {MOST_WORDS}")
    names, table = named_queries(content, words)
    fields = {**content, **table}
    rows = {name: matrix(fields, name, file) for name in ("queries", "keys", "values", "vectors", "scores", "weights")}
    for name in ("queries", "keys", "values"):
        rows[name] = rows["vectors"] if rows[name] is None else rows[name]
    if rows["weights"] is not None:
        if any(value <= 0 for row in rows["weights"] for value in row):
            raise ValueError(f"{file}: weights must be above 0; what a query must not see is hidden by --mask")
        rows["scores"] = [[math.log(value) for value in row] for row in rows["weights"]]  # softmax(log w) = w / Σw
    if rows["scores"] is None and (rows["queries"] is None or rows["keys"] is None):
        raise ValueError(f"{file} needs queries and keys, or vectors for all three, or scores")
    if rows["scores"] is not None:
        rows["queries"] = rows["keys"] = None
    check_sizes(rows, words, file)
    count = len(rows["queries"] or rows["scores"] or [])
    features = content.get("features", [])
    return Example(
        words=words, names=names or (words if count == len(words) else [str(i) for i in range(count)]),
        queries=rows["queries"], keys=rows["keys"], values=rows["values"], scores=rows["scores"],
        features=[str(name) for name in features] if isinstance(features, list) else [],
        title=str(content.get("title", "")), lecture=content.get("lecture", {}),
    )  # fmt: skip


def named_queries(content: Mapping[str, Any], words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of queries or scores that are given by name, and the same as rows."""
    for name in ("queries", "scores"):
        if isinstance(content.get(name), Mapping):
            return [str(key) for key in content[name]], {name: list(content[name].values())}
    return [], {}


def matrix(content: Mapping[str, Any], name: str, file: str) -> Rows | None:
    """Return a field as rows of numbers of equal length; one row may stand without its brackets. None if missing."""
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, list) and value and all(is_number(item) for item in value):
        value = [value]
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        raise ValueError(f"{file}: {name} must be rows of numbers, as in [[1, 0], [0, 1]]; got {str(value)[:60]!r}")
    for number, row in enumerate(value):
        if not all(is_number(item) for item in row):
            raise ValueError(f"{file}: row {number} of {name} is no list of finite numbers: {str(row)[:60]}")
        if len(row) != len(value[0]):
            raise ValueError(f"{file}: row {number} of {name} has {len(row)} numbers, row 0 has {len(value[0])}")
    return [[float(item) for item in row] for row in value]


def is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool) and abs(item) < 1e12  # NaN compares false


def check_sizes(rows: Mapping[str, Rows | None], words: list[str], file: str) -> None:
    """Raise an error where words, keys, values, queries and scores do not fit together."""
    for name in ("keys", "values"):
        if (given := rows[name]) is not None and len(given) != len(words):
            name = "vectors" if given is rows["vectors"] else name
            raise ValueError(f"{file} has {len(words)} words and {len(given)} {name}; give one row for each word")
    if rows["scores"] is not None and len(rows["scores"][0]) != len(words):
        raise ValueError(f"{file} has {len(words)} words and {len(rows['scores'][0])} scores; give one for each word")
    if rows["queries"] and rows["keys"] and len(rows["queries"][0]) != len(rows["keys"][0]):
        sizes = len(rows["queries"][0]), len(rows["keys"][0])
        raise ValueError(f"{file}: queries have {sizes[0]} numbers and keys {sizes[1]}; give both the same")


EXAMPLES: dict[str, dict[str, Any]] = {
    "cat": {
        "title": "cat → chat: a decoder that writes French attends to an English sentence (lecture 002)",
        "words": ["the", "cat", "sat", "on", "the", "mat"],
        "features": ["animal", "action", "object", "definite"],
        "queries": {"animal": [0.9, 0.1, 0.2, 0.3], "action": [0.1, 0.9, 0.1, 0.1]},
        "keys": [[0, 0, 0, 1], [1, 0, 0.3, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
        "values": [
            [0.1, 0, 0, 0.8], [0.9, 0, 0.1, 0.7], [0, 0.9, 0, 0.3],
            [0, 0, 0.5, 0], [0, 0, 0, 0.9], [0, 0, 0.9, 0.6],
        ],
        "lecture": {
            "scores": [0.30, 0.96, 0.10, 0.00, 0.30, 0.20],
            "scaled": [0.15, 0.48, 0.05, 0.00, 0.15, 0.10],
            "exponentials": [1.16, 1.62, 1.05, 1.00, 1.16, 1.11],
            "weights": [0.16, 0.23, 0.15, 0.14, 0.16, 0.16],
            "output": [0.223, 0.135, 0.237, 0.574],
        },
    },
    "library": {
        "title": "the library: books on neural networks after 2017 (lecture 002, which takes scores for weights)",
        "words": ["Deep Learning, 2016", "Neural Networks, 2020", "Transformers, 2017"],
        "scores": [0.1, 0.9, 0.5],
        "lecture": {"weights": [0.1, 0.9, 0.5]},
    },
    "students": {
        "title": "students of computer science with a grade above 3.5 (lecture 002, which takes scores for weights)",
        "words": ["Alice, CS, 3.9", "Bob, Math, 3.8", "Carol, CS, 3.2", "Dave, CS, 3.7"],
        "scores": [0.95, 0.1, 0.3, 0.9],
        "lecture": {"weights": [0.95, 0.1, 0.3, 0.9]},
    },
    "scores": {
        "title": "four scores become weights (lecture 002, whose weights are no softmax of these scores)",
        "words": ["V1", "V2", "V3", "V4"],
        "scores": [2.1, 0.3, -0.5, 1.8],
        "lecture": {"weights": [0.58, 0.10, 0.04, 0.28]},
    },
    "sign": {
        "title": "the sign of the exponent (lecture 003, whose np.exp(-x) gives the smallest score the largest weight)",
        "words": ["w1", "w2", "w3", "w4"],
        "scores": [-8.96, 8.84, -2.15, 4.1],
        "lecture": {"weights": [9.99e-01, 1.85e-08, 1.10e-03, 2.13e-06]},
    },
    "table": {
        "title": "six words that attend to each other (lecture 004)",
        "words": ["YOUR", "CAT", "IS", "A", "LOVELY", "CAT"],
        "weights": [
            [0.268, 0.119, 0.134, 0.148, 0.179, 0.152],
            [0.124, 0.278, 0.201, 0.128, 0.154, 0.115],
            [0.147, 0.132, 0.262, 0.097, 0.218, 0.145],
            [0.210, 0.128, 0.206, 0.212, 0.119, 0.125],
            [0.146, 0.158, 0.152, 0.143, 0.227, 0.174],
            [0.195, 0.114, 0.203, 0.103, 0.157, 0.229],
        ],
        "lecture": {"weights": [0.268, 0.119, 0.134, 0.148, 0.179, 0.152]},
    },
}  # fmt: skip
"""Examples of the lectures, in the form of a file, with the numbers that they print."""
