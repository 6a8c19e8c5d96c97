"""UTF-8 files as lines, texts and pairs of texts. Errors name file and line."""

import json
from collections.abc import Iterator
from pathlib import Path

Pairs = list[tuple[str, str]]


def read_bytes(path: Path, *, folder: str, empty: str) -> bytes:
    """The bytes of a file; the two texts are the cures that errors name for a folder and for an empty file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: is a directory; give {folder}") from None
    if not raw.strip():
        raise ValueError(f"{path}: the file is empty; give one with {empty}")
    return raw


def read_text(paths: tuple[str, ...]) -> str:
    """The text of several files, one after the other."""
    return "\n".join(_read_whole(Path(path)) for path in paths)


def _read_whole(path: Path) -> str:
    raw = read_bytes(path, folder=f"its text files, as in {path}/*.txt", empty="text")
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: not UTF-8; convert it: iconv -f latin1 -t utf-8 {path}") from None


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    return split_lines(read_bytes(path, folder="a text file", empty="a text a line"), path)


def split_lines(raw: bytes, path: Path) -> list[str]:
    """Lines end at newlines and nowhere else: Unicode's other separators would shift two files apart."""
    lines = raw.split(b"\n")
    return [_decode(line, path, number) for number, line in enumerate(lines if lines[-1] else lines[:-1], 1)]


def _decode(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 (byte {error.start}); convert it: iconv -f latin1 -t utf-8 {path}"
        ) from None


def read_pairs(source: str | None, target: str | None, pairs: str | None, keys: tuple[str, ...]) -> Pairs:
    """All pairs of two files, or of one, in order; also those with an empty side, so that lines can be counted."""
    if pairs is not None:
        path = Path(pairs)
        readers = {".tsv": _tsv_pairs, ".jsonl": _jsonl_pairs}
        if path.suffix not in readers:
            raise ValueError(f"{path}: pairs come as .tsv or .jsonl; two text files go in as source and target")
        rows = list(readers[path.suffix](path, keys))
    else:
        assert source is not None and target is not None
        left, right = read_lines(Path(source)), read_lines(Path(target))
        if len(left) != len(right):
            raise ValueError(
                f"{source} has {len(left):,} lines, {target} has {len(right):,}; "
                "line by line they must be translations of each other"
            )
        rows = list(zip(left, right, strict=True))
    if not any(s.strip() and t.strip() for s, t in rows):
        raise ValueError(f"{pairs or source}: no pair has text on both sides")
    return rows


def _tsv_pairs(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        parts = line.split("\t") if line.strip() else ["", ""]
        if len(parts) != 2:
            raise ValueError(f"{path}, line {number}: a pair is two texts with a tab between, got {len(parts)}")
        yield parts[0], parts[1]


def _jsonl_pairs(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            yield "", ""
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error})") from None
        for key in keys:
            if not isinstance(row, dict) or not isinstance(row.get(key), str):
                raise ValueError(f"{path}, line {number}: no text under {key!r}; --data.keys names the two fields")
        yield row[keys[0]], row[keys[1]]
