"""The command that writes what is said: transcribe."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from regard.cli.base import PATH
from regard.cli.query import Query, verb
from regard.data.terminal import echo

STDIN = "-"


@verb(
    click.option("--timestamps", is_flag=True, help="Print each phrase with its times."),
    click.option("--beam", "beams", type=click.IntRange(1), help="Beams; 1 is greedy.  [default: 1]"),
    click.option("--language", metavar="CODE", help="The language spoken, as en or de.  [default: detected]"),
    click.option("--task", type=click.Choice(["transcribe", "translate"]), help="Translate writes English."),
    click.option("--prompt", help="A text that comes before, such as names as they are to be spelled."),
    click.option("--temperature", type=float, help="Of sampling.  [default: 0, warmer where an answer is doubtful]"),
    click.option("--no-context", "context", flag_value=False, default=None, help="Hear each window by itself."),
    click.option("--srt", "form", flag_value="srt", help="Print subtitles as SubRip has them."),
    click.option("--vtt", "form", flag_value="vtt", help="Print subtitles for web pages."),
    click.option("--out", type=PATH, help="Write there; for several recordings, a folder."),
    items="audio", from_file=False,
)  # fmt: skip
def transcribe(query: Query, timestamps: bool, form: str | None, out: Path | None, **options: Any) -> None:
    """Write what is said in each AUDIO file, of any length; without one, or for -, in the file on stdin.

    \b
    regard transcribe RUN talk.mp3 --timestamps
    regard transcribe RUN talk.mp3 --srt --out talk.srt
    ffmpeg -i film.mp4 -f wav - | regard transcribe RUN -
    """
    options = {name: value for name, value in options.items() if value is not None}
    if query.as_json and form is not None:
        raise ValueError(f"--json does not go with --{form}; leave one of them out")
    names = query.items or (STDIN,)
    suffix = "json" if query.as_json else form or "txt"
    files = written(names, out, suffix)
    task = query.load(**options)
    task.check_inputs([name for name in names if name != STDIN])
    for number, name in enumerate(names):
        write = printer(files[number] if files else None)
        several = len(names) > 1 and not files
        show(query, task, name, options, timestamps=timestamps, form=form, write=write, named=several)


def show(
    query: Query, task: Any, name: str, options: dict[str, Any], *, timestamps: bool, form: str | None,
    write: Callable[[str], None], named: bool,
) -> None:  # fmt: skip
    """Print the transcript of a recording, phrase by phrase where the form allows."""
    from regard.data.terminal import to_json
    from regard.tasks.transcriber import as_json, line, srt, vtt

    audio = sys.stdin.buffer.read() if name == STDIN else name
    if query.as_json or (form is None and not timestamps):
        transcript = task.transcribe(audio, **options)
        row = {"audio": name} | as_json(transcript)
        write(to_json(row) if query.as_json else f"{transcript.text}\t{name}" if named else transcript.text)
        return
    if named:
        write(f"{name}:")
    count = 0

    def put(_: int, segment: Any) -> None:
        nonlocal count
        count += 1
        write(line(segment) if form is None else {"srt": srt, "vtt": vtt}[form](segment, count))

    if form == "vtt":
        write("WEBVTT\n")
    task.transcribe(audio, each=put, **options)


def written(names: tuple[str, ...], out: Path | None, suffix: str) -> list[Path]:
    """The file that each transcript goes to: `out` itself or, for several recordings, files of that folder."""
    if out is None:
        return []
    if len(names) > 1 and not out.is_dir():
        raise ValueError(f"{out} is no folder, and there are {len(names)} recordings; make it: mkdir {out}")
    stems = ["stdin" if name == STDIN else Path(name).stem for name in names]
    paths = [out / f"{stem}.{suffix}" for stem in stems] if out.is_dir() else [out]
    for index, path in enumerate(paths):
        if path in paths[:index]:
            first = names[paths.index(path)]
            raise ValueError(f"{names[index]} and {first} would both be written to {path}; rename one")
        if any(path.resolve() == Path(name).resolve() for name in names):
            raise ValueError(f"{path} would be overwritten; choose another --out")
    return paths


def printer(path: Path | None) -> Callable[[str], None]:
    """A function that prints a text, or appends it to a file, which is emptied at first."""
    if path is None:

        def show(text: str) -> None:
            echo(text)
            sys.stdout.flush()

        return show
    path.write_text("")

    def append(text: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    return append
