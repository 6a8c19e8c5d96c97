"""Results in words: for the terminal, as Markdown, and as one HTML file that needs no network."""

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.files import write_text
from regard.inside.draw.document import POLICY
from regard.why.component import COMPONENTS, Component
from regard.why.measure import RUNS, Store

FIGURE, RESULT = "figure.png", "result.json"
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1f2328}"
    "img{max-width:100%}table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #e5e7eb;"
    "padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top}code{white-space:pre-wrap}"
)


def interval_text(found: Mapping[str, Any]) -> str:
    """Return a mean with its 95 % interval."""
    return f"{found['mean']:+.3g} [{found['low']:+.3g}, {found['high']:+.3g}]"


def claim_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a table: claim, interval and verdict at equal steps and at equal CPU time."""
    rows = [["claim", "unit; smallest that counts", "equal steps", "verdict", "equal CPU time", "verdict"]]
    for claim in result["claims"]:
        found = [part for key in ("steps", "cpu") for part in (interval_text(claim[key]), claim[key]["verdict"])]
        rows.append([claim["text"], f"{claim['unit']}; {claim['least']:g}", *found])
    return rows


def arm_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a table: each arm with its size, time and metrics."""
    names = list(result["arms"][0]["metrics"])
    rows = [["arm", "", "parameters", *(name.replace("_", " ") for name in names)]]
    for arm in result["arms"]:
        about = arm["about"] + (f"; diverged {arm['diverged']} times" if arm["diverged"] else "")
        rows.append([arm["name"], about, f"{arm['parameters']:,}", *(f"{arm['metrics'][name]:.4g}" for name in names)])
    return rows


def heading(result: Mapping[str, Any]) -> str:
    return (
        f"{result['seeds']} paired seeds, {result['steps']} steps a run; differences are positive where a claim holds"
    )


def render(result: Mapping[str, Any]) -> str:
    """Return the text for a terminal."""
    lines = [result["question"], heading(result), ""]
    for claim in result["claims"]:
        lines.append(claim["text"] + (f"  (lecture {claim['lecture']})" if claim["lecture"] else ""))
        for key, name in (("steps", "equal steps"), ("cpu", "equal CPU time")):
            found = claim[key]
            lines.append(f"  {name:15}{interval_text(found):32}{found['verdict']}")
        lines.append(f"  {'':15}{claim['unit']}; the smallest that counts is {claim['least']:g}")
    if result["same"]:
        return "\n".join(lines)
    if result["too_small"]:
        return "\n".join([*lines[:2], "", f"no verdict: {result['too_small']}"])
    samples = [f"  {arm['name']:12}{arm['sample']}" for arm in result["arms"]]
    return "\n".join([*lines, "", "samples:", *samples])


def markdown(result: Mapping[str, Any]) -> str:
    """Return the report as Markdown, the figure beside it."""
    parts = [f"# {result['question']}", heading(result) + ".", f"![figure]({FIGURE})"]
    parts.append(f"No verdict: {result['too_small']}." if result["too_small"] else table(claim_rows(result)))
    parts.append(table(arm_rows(result)))
    parts += [f"**{arm['name']}** says: `{arm['sample']}`" for arm in result["arms"]]
    return "\n\n".join(parts) + "\n"


def table(rows: list[list[str]]) -> str:
    """Return rows as a table of Markdown."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def page(result: Mapping[str, Any], figure: bytes) -> str:
    """Return the report as one HTML file with its figure inside."""

    def grid(rows: list[list[str]]) -> str:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
        return f"<table><tr>{head}</tr>{body}</table>"

    title, image = html.escape(result["question"]), base64.b64encode(figure).decode()
    small = result["too_small"]
    verdicts = f"<p>No verdict: {html.escape(small)}.</p>" if small else grid(claim_rows(result))
    samples = "".join(
        f"<p><b>{html.escape(arm['name'])}</b> says: <code>{html.escape(arm['sample'])}</code></p>"
        for arm in result["arms"]
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{html.escape(heading(result))}.</p>"
        f'<p><img alt="Curves, gradients, intervals and attention of the arms" src="data:image/png;base64,{image}"></p>'
        f"{verdicts}{grid(arm_rows(result))}{samples}</body></html>\n"
    )


def write_report(component: Component, result: Mapping[str, Any], out: Path) -> None:
    """Write the figure, both reports and the result itself into a folder that has the runs."""
    from regard.why.figure import draw_comparison

    if result["same"]:
        write_text(out / "same.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        return
    write_text(out / RESULT, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    runs = Store(out / RUNS, component, result["steps"]).runs
    kept = {key: run for key, run in runs.items() if key[1] < result["seeds"]}
    draw_comparison(result, kept, component.metric, component.also, out / FIGURE)
    write_text(out / "report.md", markdown(result))
    write_text(out / "report.html", page(result, (out / FIGURE).read_bytes()))


# ---- measured verdicts ----------------------------------------------------------------------------------------

MEASURED = Path(__file__).parent / "measured.json"


def measured() -> dict[str, Any]:
    """Return the stored results by component; {} where none were measured."""
    return json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}


def overview() -> str:
    """Return the components with their questions, claims and stored verdicts."""
    stored, lines = measured(), []
    for name, component in COMPONENTS.items():
        lines.append(f"{name:17}{component.question}")
        found = {claim["text"]: claim["steps"] for claim in stored.get(name, {}).get("claims", ())}
        for claim in component.claims:
            verdict = found.get(claim.text)
            said = f"{verdict['verdict']}, {interval_text(verdict)}" if verdict else "not measured yet"
            lines.append(f"{'':17}  {claim.text}")
            lines.append(f"{'':17}    {said}")
    return "\n".join([*lines, "", "regard why COMPONENT measures one here"])


def verdict_table() -> str:
    """Return the stored verdicts as a table of Markdown, for the documentation."""
    rows = [["command", "claim (lecture)", "difference, 95 %", "unit; smallest that counts", "at equal steps",
             "at equal CPU time", "the same arm twice"]]  # fmt: skip
    for name, result in measured().items():
        same, command = result.get("same_verdict", "–"), f"`regard why {name} --steps {result['steps']}`"
        for claim in result["claims"]:
            rows.append([command, f"{claim['text']} ({claim['lecture']})", interval_text(claim["steps"]),
                         f"{claim['unit']}; {claim['least']:g}", claim["steps"]["verdict"], claim["cpu"]["verdict"],
                         same])  # fmt: skip
            command, same = "", ""
    return table(rows)


def keep(out: Path) -> str:
    """Store the result in a folder as the measured one of its component; return the component's name."""
    path = out / RESULT
    if not path.is_file():
        raise ValueError(f"{path} does not exist; run regard why COMPONENT --out {out} first")
    result = json.loads(path.read_text(encoding="utf-8"))
    if result["too_small"]:
        raise ValueError(f"{path} has no verdict: {result['too_small']}")
    kept = {name: result[name] for name in ("question", "steps", "seeds", "claims")}
    same = out / "same.json"
    if same.is_file():
        verdicts = {claim["steps"]["verdict"] for claim in json.loads(same.read_text(encoding="utf-8"))["claims"]}
        kept["same_verdict"] = "no difference" if verdicts == {"no difference"} else "a difference"
    every = measured() | {result["component"]: kept}
    ordered = {name: every[name] for name in COMPONENTS if name in every}
    write_text(MEASURED, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    return result["component"]
