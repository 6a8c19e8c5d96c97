"""The ledger as text for the terminal, and as the pages of docs/claims."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.claims import topics
from regard.claims.checks import CHECKS
from regard.claims.ledger import LECTURES, VERDICTS, Claim, Figure, ledger
from regard.claims.run import Outcome
from regard.files import write_text

WRITTEN = "<!-- Written by `regard claims --out docs/claims`; change regard/claims/lectures instead. -->"


def shown(figure: Figure | None) -> str:
    """Return a figure as text: four significant digits, whole numbers in full."""
    if figure is None:
        return "–"
    if isinstance(figure, list):
        return " ".join(map(shown, figure))
    return figure if isinstance(figure, str) else f"{figure:,}" if isinstance(figure, int) else f"{figure:.4g}"


def as_dict(claim: Claim) -> dict[str, Any]:
    """Return a claim for `--json`."""
    names = ("id", "place", "claim", "command", "field", "check", "expects", "measured", "tolerance", "slow")
    rest = {"depends": claim.depends, "untestable": claim.untestable, "note": claim.note, "verdict": claim.verdict}
    return {name: getattr(claim, name) for name in names} | rest


def outcome_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome of a claim that was measured again, for `--json`."""
    return {
        "id": outcome.claim.id, "measured": outcome.claim.measured, "figure": outcome.figure,
        "as_stored": outcome.as_stored, "verdict": outcome.claim.verdict, "error": outcome.error,
    }  # fmt: skip


def counts(claims: Sequence[Claim]) -> str:
    """Return the number of claims by verdict, in a line; those that nothing can test are counted apart."""
    number = Counter(claim.verdict for claim in claims)
    apart = number.pop("not testable here", 0)
    words = {"holds": "hold", "fails": "fail", "depends": "depend", "not measured yet": "not measured yet"}
    parts = [f"{number[verdict]} {words[verdict]}" for verdict in VERDICTS if number[verdict]]
    more = f"; {apart} more not testable here" if apart else ""
    return f"{number.total()} claims: {', '.join(parts) or 'none'}{more}"


def reason(claim: Claim) -> str:
    """Return the verdict with its condition, and the note."""
    on = f" on {claim.depends}" if claim.depends else ""
    notes = "; ".join(filter(None, (claim.untestable, claim.note)))
    return f"{claim.verdict}{on}" + (f": {notes}" if notes else "")


def render(claims: Sequence[Claim]) -> str:
    """Return two lines for each claim, and the counts."""
    lines = []
    for claim in claims:
        lines += [f"{claim.id}  {claim.claim}", f"{'':8}{reason(claim)}"]
        if claim.expects:
            lines.append(f"{'':8}{claim.typed}  → {shown(claim.measured)} (expected {claim.expects})")
    return "\n".join([*lines, "", counts(claims)])


def render_outcome(outcome: Outcome) -> str:
    """Return a claim that was measured again in a line."""
    claim = outcome.claim
    if outcome.error:
        return f"{claim.id}  broken: {outcome.error}"
    state = "as stored" if outcome.as_stored else f"changed from {shown(claim.measured)}"
    return f"{claim.id}  {shown(outcome.figure)}, {state}: {claim.verdict}"


def pages() -> dict[str, str]:
    """Return the pages of docs/claims by file name: lectures, an overview with all that fail, and topics."""
    pages = {f"{lecture}.md": page(lecture) for lecture in LECTURES}
    return {"README.md": overview()} | pages | {"topics.md": f"{WRITTEN}\n{topics.page()}"}


def write_pages(folder: Path) -> list[Path]:
    """Write the pages of docs/claims."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        write_text(folder / name, text)
    return [folder / name for name in pages()]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table of Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in [list(head), ["---"] * len(head), *cells]]


def way(claim: Claim) -> str:
    """Return the command of a claim, and what the figure is that it gives."""
    if not claim.typed:
        return ""
    if claim.command:
        return f"`{claim.typed}`: `{claim.field}`"
    figure = " ".join((CHECKS[claim.check].__doc__ or "").split()).removeprefix("Return ").removesuffix(".")
    given = ", ".join(
        f"{name} {value}" for name, value in claim.settings.items() if isinstance(value, int | float | str)
    )
    return f"`{claim.typed}`: {figure}" + (f" ({given})" if given else "")


def page(lecture: str) -> str:
    """Return the page of one lecture."""
    claims = [claim for claim in ledger() if claim.lecture == lecture]
    rows = [
        [
            claim.id, claim.place, claim.claim, way(claim),
            shown(claim.measured) if claim.expects else "", f"**{claim.verdict}**{reason(claim)[len(claim.verdict):]}",
        ]
        for claim in claims
    ]  # fmt: skip
    head = ["id", "place", "the claim, in our words", "tested by, and the figure", "measured", "verdict"]
    top = [WRITTEN, f"# Lecture {lecture}: its claims, measured", "", f"{counts(claims)}. [All lectures](README.md)"]
    return "\n".join([*top, "", *table(head, rows), ""])


def overview() -> str:
    """Return the page with the counts of each lecture and everything that does not hold as it was said."""
    text = [
        WRITTEN, "# The ledger: every claim of the lectures, measured", "",
        "Regard is built after five lectures, numbered 000 to 004 here. Each of their assertions stands in a ledger in",
        "our own words, with the command that tests it, the figure that it gave here, and the verdict that follows.",
        "", f"**{counts(ledger())}.**", "",
        "What needs training (residuals, norms, heads, warm-up …) is tested by `regard why`, with paired seeds:",
        "[why.md](../why.md) has the intervals, and what an arm against itself gives.", "",
        "    regard claims --lecture 002          list the claims of a lecture",
        "    regard claims --verdict fails        list what is wrong",
        "    regard claims --run                  measure all that take no training again, and compare",
        "    regard claims --run 002-17           measure one again",
        "    regard claims --run --slow           measure those that train, too",
        "    regard claims --topics               every heading of the lectures, and the claims under it", "",
        "[Topics](topics.md) lists the lectures heading by heading.", "",
    ]  # fmt: skip
    per_lecture = [[f"[{name}]({name}.md)", counts([c for c in ledger() if c.lecture == name])] for name in LECTURES]
    text += [*table(["lecture", "claims"], per_lecture), ""]
    for verdict, title in (("fails", "What is wrong, rounded on the way, or left unsaid"), ("depends", "What depends")):
        rows = [[c.id, c.claim, shown(c.measured), f"{c.depends}. {c.note}".removeprefix(". ")] for c in ledger()
                if c.verdict == verdict]  # fmt: skip
        head = ["id", "the lecture says", "measured", "why" if verdict == "fails" else "on what"]
        text += [f"## {title}", "", *table(head, rows), ""]
    return "\n".join(text)


def to_json(claims: Sequence[Claim]) -> str:
    """Return claims as JSON."""
    return json.dumps([as_dict(claim) for claim in claims], ensure_ascii=False)
