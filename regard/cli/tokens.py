"""The command `tokenizer`: train, encode, decode, trace the merges of BPE, and compare kinds of tokens."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH, Commands, emit, json_option, regard
from regard.data.terminal import echo, to_json

KINDS = ("bpe", "word", "char", "code", "dna", "bytes")
EMBEDDED = 400_000
"""Characters of the embedded text that `compare` learns from."""


@regard.group(cls=Commands)
def tokenizer() -> None:
    """Train a tokenizer, use it, trace the merges of BPE, and compare kinds of tokens."""


@tokenizer.command("train")
@click.argument("files", type=PATH, nargs=-1, required=True)
@click.option(
    "--kind", type=click.Choice(["bpe", "word", "char", "code", "dna", "bytes"]), default="bpe", show_default=True
)
@click.option("--vocab-size", type=int, default=8000, show_default=True)
@click.option("--lowercase", is_flag=True)
@click.option("--out", type=PATH, required=True, help="Where to write tokenizer.json.")
def tokenizer_train(files: tuple[Path, ...], kind: Any, vocab_size: int, lowercase: bool, out: Path) -> None:
    """Learn a vocabulary from text FILES."""
    from regard.tokens import Tokenizer

    made = Tokenizer.train(files, kind=kind, vocab_size=vocab_size, lowercase=lowercase, progress=sys.stderr.isatty())
    echo(f"{kind} tokenizer with {len(made):,} entries: {made.save(out)}")


@tokenizer.command("encode")
@click.argument("file", type=PATH)
@click.argument("text", nargs=-1)
@json_option
def tokenizer_encode(file: Path, text: tuple[str, ...], as_json: bool) -> None:
    """Encode TEXT (or stdin's lines) with the tokenizer in FILE: ids and pieces."""
    from regard.tokens import Tokenizer

    tokens = Tokenizer.load(file)
    for line in text or sys.stdin.read().splitlines():
        ids = tokens.encode(line)
        emit({"ids": ids, "pieces": tokens.pieces(ids)}, as_json, lambda r: " ".join(map(str, r["ids"])))
        if not as_json:
            echo(" | ".join(tokens.pieces(ids)), err=True)


@tokenizer.command("decode")
@click.argument("file", type=PATH)
@click.argument("ids", type=int, nargs=-1)
def tokenizer_decode(file: Path, ids: tuple[int, ...]) -> None:
    """Turn IDS (or stdin's lines of ids) back into text."""
    from regard.tokens import Tokenizer

    tokens = Tokenizer.load(file)
    lines = [list(ids)] if ids else [[int(word) for word in line.split()] for line in sys.stdin]
    for line in lines:
        echo(tokens.decode(line))


@tokenizer.command("trace")
@click.argument("text")
@click.option("--tokenizer", "file", type=PATH, help="Show this tokenizer's merges; without, those of TEXT alone.")
@json_option
def tokenizer_trace(text: str, file: Path | None, as_json: bool) -> None:
    """Show the merges of BPE on TEXT, with counts."""
    from regard.tokens import Tokenizer
    from regard.tokens.trace import trace

    made = trace(text, Tokenizer.load(file) if file else None)
    echo(to_json(asdict(made) | {"pieces": made.pieces}) if as_json else str(made))


@tokenizer.command("compare")
@click.argument("text")
@click.option("--corpus", type=PATH, multiple=True, help="Text files to learn from.  [default: Python's documentation]")
@click.option("--vocab-size", type=click.IntRange(300), default=4000, show_default=True, help="Words, and subwords.")
@json_option
def tokenizer_compare(text: str, corpus: tuple[Path, ...], vocab_size: int, as_json: bool) -> None:
    """Split TEXT into characters, words, subwords and stems: tokens, comparisons, what is unknown and what is lost.

    \b
    regard tokenizer compare "The students were running"
    regard tokenizer compare "This is tokenizing." --corpus my.txt --vocab-size 8000
    """
    from regard.data.generated.docs import documentation
    from regard.tokens import corpus as files
    from regard.tokens.compare import compare

    lines = files.corpus(corpus, None) if corpus else documentation("train")[:EMBEDDED].splitlines()
    rows = compare(text, lines, vocab_size=vocab_size)
    if as_json:
        echo(to_json({row.kind: row.to_dict() for row in rows}))
        return
    head = f"{'':12}{'tokens':>7}{'pairs n²':>10}{'vocabulary':>12}{'unknown':>9}   given back"
    counts = [
        f"{r.kind:12}{len(r.tokens):7,}{r.pairs:10,}{r.vocabulary:12,}{len(r.unknown):9,}   {r.back}" for r in rows
    ]
    splits = [f"{row.kind:12}{' | '.join(row.tokens)}" for row in rows]
    lost = [f"{row.kind:12}loses {', '.join(row.lost)}" for row in rows if row.lost]
    echo("\n".join([head, *counts, "", *splits, *([""] if lost else []), *lost]))
    if len(rows) < 4:
        echo("stems need nltk, which is not installed: pip install 'regard[text]'", err=True)
