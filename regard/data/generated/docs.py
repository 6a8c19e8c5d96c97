"""The embedded text: Python's own documentation, from its help topics and the docstrings of its standard library.

Nothing is stored, nothing is downloaded, nothing is imported: the sources are only parsed. Whole documents (a topic,
a file) belong to one split. The text differs between versions of Python; `documentation_hash` identifies it.
"""

import ast
import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

from regard.data.generated.splits import SPLITS, check_stream, split_by_hash

# Tests, demonstrations, what was installed later, and the codecs, which all say the same sentence.
_SKIPPED = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "pydoc_data", "encodings", "__pycache__"}
_SKIPPED |= {"site-packages", "dist-packages"}
_Defined = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def documentation(split: str) -> str:
    """The text of a split: about 90 % of all documents train, 5 % valid, 5 % test."""
    check_stream(split)
    return "\n\n\n".join("\n\n".join(pieces) for where, pieces in _documents() if where == split) + "\n"


@cache
def documentation_hash() -> str:
    """The SHA-256 of this Python's text, in hexadecimal."""
    return hashlib.sha256("\0".join(map(documentation, SPLITS)).encode()).hexdigest()


@cache
def summaries(split: str) -> list[tuple[str, str]]:
    """(the body of a docstring in one line, its first line): prose of useful lengths; no first line comes twice."""
    check_stream(split)
    pairs: dict[str, tuple[str, str, str]] = {}
    for where, pieces in _documents():
        for piece in pieces:
            first, _, body = piece.partition("\n\n")
            body = " ".join(body.split())
            if _is_title(first) and _is_prose(body):
                pairs.setdefault(first.casefold(), (where, body, first))
    return [(body, first) for where, body, first in pairs.values() if where == split]


def _is_title(line: str) -> bool:
    """Whether a text is a full sentence in one line."""
    return 15 <= len(line) <= 90 and " ".join(line.split()) == line and line[0].isupper() and line.endswith(".")


def _is_prose(body: str) -> bool:
    """Whether a text has at least two sentences, and no code."""
    return (
        len(body) <= 600
        and ">>>" not in body
        and "::" not in body
        and len(re.findall(r"[a-z)\]'\"][.!?]( [A-Z]|$)", body)) >= 2
    )


@cache
def _documents() -> list[tuple[str, list[str]]]:
    """Every document: its split, and its topic or those docstrings of a file that occur in no earlier one."""
    seen: set[str] = set()
    documents = []
    for name, pieces in (*_topics(), *_files(Path(sysconfig.get_paths()["stdlib"]))):
        fresh = [piece for piece in dict.fromkeys(pieces) if piece not in seen]
        seen.update(fresh)
        if fresh:
            documents.append((split_by_hash(f"python {name}", 90), fresh))
    if len(documents) < 100:
        raise ValueError("this Python comes without the sources of its standard library; give a text of your own")
    return documents


def _topics() -> Iterator[tuple[str, list[str]]]:
    """Help topics from the longest to the shortest, without those that are a part of a longer one."""
    seen: set[str] = set()
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        paragraphs = {" ".join(paragraph.split()) for paragraph in topics[name].split("\n\n")}
        if len(paragraphs - seen) > len(paragraphs) / 2:
            yield f"topic {name}", [topics[name].strip()]
        seen |= paragraphs


def _files(root: Path) -> Iterator[tuple[str, list[str]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("config-"))
        for file in sorted(name for name in files if name.endswith(".py")):
            path = Path(folder, file)
            yield path.relative_to(root).as_posix(), list(_docstrings(ast.parse(path.read_bytes())))


def _docstrings(node: ast.AST) -> Iterator[str]:
    """Docstrings in their order; expressions are not searched, which is most of the work."""
    if isinstance(node, _Defined) and (text := ast.get_docstring(node)):
        yield text.strip()
    for below in getattr(node, "body", []):
        if hasattr(below, "body"):
            yield from _docstrings(below)
