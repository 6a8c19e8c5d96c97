"""The scale of similarity scores: 0 to 1, or one whose top is among the scores."""

from collections.abc import Sequence
from typing import Any

from regard.data.readers.tables import Table

TOPS = (5, 10, 100)
"""Usual tops of scales that begin at 0 or 1."""


def find_scale(table: Table, rows: Sequence[tuple[int, dict[str, Any]]]) -> float | None:
    """The top of the scale of a table's scores, if it is not 1; an error where the scores leave it open."""
    scores = []
    for _, row in rows:
        try:
            scores.append(float(row["score"]))
        except (KeyError, TypeError, ValueError):  # reported with its line when the example is made
            return None
    if not scores or max(scores) <= 1 or not all(score >= 0 for score in scores):
        return None
    top = max(scores)
    if top not in TOPS:
        number = next(number for number, row in rows if float(row["score"]) == top)
        raise ValueError(
            f"{table.source}, {table.unit} {number}: the score {top:g} is not from 0 to 1; say what the highest score "
            "on its scale is: --data.scale 5"
        )
    return float(top)
