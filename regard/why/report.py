"""Results in words: for the terminal, as Markdown, and as one HTML file that needs no network."""

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.bench.measure import counted
from regard.files import write_text
from regard.inside.draw.report_page import grid, report_page, table
from regard.why.component import COMPONENTS, Component
from regard.why.measure import RUNS, Store
from regard.why.statistics import CONFIDENCE

FIGURE, RESULT, SAME = "figure.png", "result.json", "same.json"


def interval_text(found: Mapping[str, Any]) -> str:
    """Return a mean with its interval."""
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
        f"{result['seeds']} paired seeds, {counted(result['steps'], 'step')} a run; differences are positive where a "
        f"claim holds, their {len(result['claims'])} intervals hold together with 95 %"
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


def page(result: Mapping[str, Any], figure: bytes) -> str:
    """Return the report as one HTML file with its figure inside."""
    small = result["too_small"]
    verdicts = f"<p>No verdict: {html.escape(small)}.</p>" if small else grid(claim_rows(result))
    samples = "".join(
        f"<p><b>{html.escape(arm['name'])}</b> says: <code>{html.escape(arm['sample'])}</code></p>"
        for arm in result["arms"]
    )
    alt = "Curves, gradients, intervals and attention of the arms"
    body = verdicts + grid(arm_rows(result)) + samples
    return report_page(result["question"], f"{heading(result)}.", figure, alt, body)


def write_report(component: Component, result: Mapping[str, Any], out: Path) -> None:
    """Write the figure, both reports and the result itself into a folder that has the runs."""
    from regard.why.figure import draw_comparison

    if result["same"]:
        write_text(out / SAME, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
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


def command_of(name: str, result: Mapping[str, Any]) -> str:
    """Return the arguments of `regard` that measure a stored result again."""
    others = (field for field in ("seeds", "steps") if result[field] != getattr(COMPONENTS[name], field))
    return f"why {name}" + "".join(f" --{field} {result[field]}" for field in others)


def verdict_table() -> str:
    """Return the stored verdicts as a table of Markdown, for the documentation, and the rate of false alarms."""
    rows = [["command", "claim (lecture)", "difference, 95 %", "unit; smallest that counts", "at equal steps",
             "at equal CPU time", "the same arm twice"]]  # fmt: skip
    for name, result in measured().items():
        same, command = same_text(result.get("same", {})), f"`regard {command_of(name, result)}`"
        for claim in result["claims"]:
            rows.append([command, f"{claim['text']} ({claim['lecture']})", interval_text(claim["steps"]),
                         f"{claim['unit']}; {claim['least']:g}", claim["steps"]["verdict"], claim["cpu"]["verdict"],
                         same])  # fmt: skip
            command, same = "", ""
    return f"{table(rows)}\n\n{false_alarms()}"


def same_text(same: Mapping[str, Any]) -> str:
    """Return what the comparison of an arm with itself found, with its steps."""
    if not same:
        return "–"
    alarms = [claim["metric"] for claim in same["claims"] if claim["verdict"] != "no difference"]
    found = f"a difference of {', '.join(alarms)}" if alarms else "no difference"
    count = len(same["claims"])
    return f"{found} ({count} metric{'s' * (count > 1)}, {same['steps']} steps)"


def false_alarms() -> str:
    """Return the number of components that differ from themselves, beside the number expected of equal arms."""
    every = [result["same"]["claims"] for result in measured().values() if "same" in result]
    alarms = sum(any(claim["verdict"] != "no difference" for claim in claims) for claims in every)
    return (
        f"Of {len(every)} comparisons of an arm with itself, by {sum(map(len, every))} metrics, {alarms} found a "
        f"difference; chance alone would give {(1 - CONFIDENCE) * len(every):.2g} at most."
    )


def keep(out: Path) -> str:
    """Store what a folder has, a result or a comparison of the first arm with itself; return the component's name."""
    parts = {name: read_result(out / name) for name in (RESULT, SAME) if (out / name).is_file()}
    if not parts:
        raise ValueError(f"{out / RESULT} does not exist; run regard why COMPONENT --out {out} first")
    every, component = measured(), next(iter(parts.values()))["component"]
    kept = every.setdefault(component, {})
    if found := parts.get(RESULT):
        if found["too_small"]:
            raise ValueError(f"{out / RESULT} has no verdict: {found['too_small']}")
        kept |= {name: found[name] for name in ("question", "steps", "seeds", "claims")}
    if not kept:
        raise ValueError(f"{out} compares {component} with itself alone; run regard why {component} --out {out} first")
    if found := parts.get(SAME):
        claims = [{"metric": claim["metric"], **claim["steps"]} for claim in found["claims"]]
        kept["same"] = {"steps": found["steps"], "claims": claims}
    ordered = {name: every[name] for name in COMPONENTS if name in every}
    write_text(MEASURED, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    return component


def read_result(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result
