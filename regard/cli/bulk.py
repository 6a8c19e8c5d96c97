"""Answers to all texts of a file, written to another."""

import sys
from pathlib import Path
from typing import Any

import click


def answer_file(
    verb: Any,
    run: str,
    input_: Path | None,
    out: Path,
    settings: dict[str, Any],
    others: dict[str, Any],
    **options: Any,
) -> None:
    """Answer every text of a file into another, in order; resume where an earlier call was stopped."""
    from regard.tasks.bulk import Answers, read_records, text_of

    if input_ is None:
        raise ValueError("--out answers the texts of a file; name it with --input")
    for name, setting in others.items():
        if setting:
            raise ValueError(f"{name} does not go with --out; leave one of them out")
    if settings.get("n_best", 1) > 1 and out.suffix != ".jsonl":
        raise ValueError(f"--n-best needs more than a line; write {out.with_suffix('.jsonl').name} instead")
    records = read_records(input_)
    texts = [text_of(record) for record in records]
    try:
        verb.__self__.check(texts)
    except ValueError as error:
        raise ValueError(f"{input_}: {error}") from None
    about = {name: str(value) for name, value in settings.items()} | {"run": run, "verb": verb.__name__}
    answers = Answers(out, texts, about, input_)
    first = answers.done
    if first:
        click.echo(f"resuming after {first:,} answers of an earlier call", err=True)
    settings = {name: value for name, value in settings.items() if name not in ("quantize", "draft", "lookup")}
    with click.progressbar(length=len(texts) - first, file=sys.stderr, label=verb.__name__) as bar:

        def put(number: int, output: Any) -> None:
            if isinstance(output, str):
                answers.put(first + number, records[first + number] | {"answer": output}, output)
            else:
                best = [{"text": row.text, "score": round(row.score, 6)} for row in output]
                record = {"answer": best[0]["text"]} | ({"answers": best} if len(best) > 1 else {})
                answers.put(first + number, records[first + number] | record, best[0]["text"])
            bar.update(1)

        try:
            verb(texts[first:], each=put, first=first, **settings, **options)
        finally:
            answers.close()
