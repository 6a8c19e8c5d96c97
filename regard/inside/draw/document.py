"""A page as one file: the server's own scripts and styles around the data, with no need of a network."""

import base64
import html
import json
import posixpath
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

STATIC = files("regard").joinpath("serve", "static")
ENTRY = "offline.js"
STYLES = ("style.css", "results.css", "look.css")
IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[^"]+)"')
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy that forbids every network request."""
FRAME = 820
"""Height of the frame in a notebook, in pixels."""


def modules(entry: str = ENTRY) -> dict[str, str]:
    """Return the source of a script and of all its imports by path; imports become names of an import map."""
    texts: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue

        def named(match: re.Match[str], folder: str = posixpath.dirname(path)) -> str:
            target = posixpath.normpath(posixpath.join(folder, match[2]))
            waiting.append(target)
            return f'{match[1]}"regard/{target}"'

        texts[path] = IMPORT.sub(named, STATIC.joinpath(path).read_text(encoding="utf-8"))
    return texts


def whole_page(data: dict[str, Any], entry: str = ENTRY, styles: Sequence[str] = STYLES) -> str:
    """Return the text of a single-file page: the script `entry` shows these data."""
    addresses = {
        f"regard/{path}": "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()
        for path, text in modules(entry).items()
    }
    parts = {"POLICY": POLICY, "STYLE": style_of(*styles), "IMPORTS": as_json({"imports": addresses}),
             "KEPT": as_json(data), "ENTRY": f"regard/{entry}"}  # fmt: skip
    shell = STATIC.joinpath("offline.html").read_text(encoding="utf-8")
    return re.sub("{{([A-Z]+)}}", lambda match: parts[match[1]], shell)


def style_of(*names: str) -> str:
    """The text of the server's style sheets of these names."""
    return "\n".join(STATIC.joinpath(name).read_text(encoding="utf-8") for name in names)


def as_json(value: Any) -> str:
    """Return JSON that cannot close the script element around it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def framed(text: str) -> str:
    """A page as a frame inside another one, such as a notebook's."""
    return (
        f'<iframe srcdoc="{html.escape(text)}" title="Regard" width="100%" height="{FRAME}" '
        'style="border:0" sandbox="allow-scripts"></iframe>'
    )
