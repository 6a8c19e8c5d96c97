"""The page as one file: the server's own modules and styles, and all that a look found, with no need of a network."""

import base64
import html
import json
import posixpath
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from regard.inside.page.rests import kept_views

if TYPE_CHECKING:
    from regard.inside.page import Page

STATIC = files("regard").joinpath("serve", "static")
ENTRY = "offline.js"
STYLES = ("style.css", "results.css", "look.css")
IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[^"]+)"')
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Nothing is fetched, whatever stands in the file."""
MOST_BYTES = 1_500_000
"""Of numbers behind the weights (q, k, v): of a larger look they are left out, and the page says so."""
MOST_PASSES = 150
"""Heads that are switched off one by one for the file."""
MOST_ROWS = 128
"""Places whose chances are told; of more, the last."""
FRAME = 820
"""Pixels of height in a notebook."""


def modules(entry: str = ENTRY) -> dict[str, str]:
    """A module and all that it imports, by path, with imports as names for an import map instead of paths."""
    found: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue

        def named(match: re.Match[str], folder: str = posixpath.dirname(path)) -> str:
            target = posixpath.normpath(posixpath.join(folder, match[2]))
            waiting.append(target)
            return f'{match[1]}"regard/{target}"'

        found[path] = IMPORT.sub(named, STATIC.joinpath(path).read_text(encoding="utf-8"))
    return found


def whole_page(kept: dict[str, Any]) -> str:
    """The file's text, around all that was kept for it."""
    addresses = {
        f"regard/{path}": "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()
        for path, text in modules().items()
    }
    style = "\n".join(STATIC.joinpath(name).read_text(encoding="utf-8") for name in STYLES)
    parts = {"POLICY": POLICY, "STYLE": style, "IMPORTS": as_json({"imports": addresses}), "KEPT": as_json(kept),
             "ENTRY": f"regard/{ENTRY}"}  # fmt: skip
    shell = STATIC.joinpath("offline.html").read_text(encoding="utf-8")
    return re.sub("{{([A-Z]+)}}", lambda match: parts[match[1]], shell)


def as_json(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def kept_of(page: "Page") -> dict[str, Any]:
    """All that the page may ask of a server, asked before."""
    look, layers = page.describe(), page.layers
    heads: dict[str, Any] = {}
    size = 0
    for number, layer in enumerate(layers):
        for head in range(layer.heads):
            for row in range(look["layers"][number]["size"][0]):
                one = page.head(number, head, row, kind="f2") if size < MOST_BYTES else None
                size += 0 if one is None else sum(len(x["data"]) for x in one.values() if isinstance(x, dict))
                heads[f"{number},{head},{row}"] = one
    if size >= MOST_BYTES:
        heads = {}
    rows = range(len(page.scores)) if page.subject.answers != "vector" else range(0)
    return {
        "look": look,
        "layers": [page.layer(number) for number in range(len(layers))],
        "heads": heads,
        "chances": {row: page.chances(row) for row in rows[-MOST_ROWS:]},
        "alignment": page.best_alignment(),
        "effects": page.effects() if sum(layer.heads for layer in layers) <= MOST_PASSES else None,
        "views": kept_views(page),
    }


def framed(text: str) -> str:
    """A page inside another one, such as a notebook's."""
    return (
        f'<iframe srcdoc="{html.escape(text)}" title="Regard" width="100%" height="{FRAME}" '
        'style="border:0" sandbox="allow-scripts"></iframe>'
    )
