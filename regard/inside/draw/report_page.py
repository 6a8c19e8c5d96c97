"""A report as one HTML file that needs no network: a title, a figure, tables and paragraphs."""

import base64
import html
from collections.abc import Sequence

from regard.inside.draw.document import POLICY

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "img{max-width:100%}table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #e5e7eb;"
    "padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top}code{white-space:pre-wrap}"
)


def grid(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of HTML, the first as its head."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<table><tr>{head}</tr>{body}</table>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of Markdown, the first as its head."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def report_page(title: str, intro: str, figure: bytes, alt: str, body: str) -> str:
    """Return the report; `body` is HTML, everything else text."""
    title, image = html.escape(title), base64.b64encode(figure).decode()
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{html.escape(intro)}</p>"
        f'<p><img alt="{html.escape(alt)}" src="data:image/png;base64,{image}"></p>{body}</body></html>\n'
    )
