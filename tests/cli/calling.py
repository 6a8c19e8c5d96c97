"""How tests call the command."""

import json
import sys

import pytest

from regard.cli import main


def call(*words):
    """Runs the command in this process; returns nothing but what the test's capture sees."""
    before, sys.argv = sys.argv, ["regard", *map(str, words)]
    try:
        main()
    finally:
        sys.argv = before


def fails(capsys, *words):
    """Runs a command that must fail, and returns its one line."""
    with pytest.raises(SystemExit) as stop:
        call(*words)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


def said(capsys, *words):
    """What a command prints, line by line."""
    capsys.readouterr()
    call(*words)
    return capsys.readouterr().out.splitlines()


def rows(capsys, *words):
    """The same as JSON."""
    return [json.loads(line) for line in said(capsys, *words, "--json")]


def options(changes):
    """`--data.text a b --train.steps 3` from a recipe's fields."""
    return [
        word
        for key, value in changes.items()
        for word in (f"--{key.replace('_', '-')}", *(value if isinstance(value, list) else [value]))
    ]
