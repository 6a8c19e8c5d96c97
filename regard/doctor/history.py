"""The history of a run from its metrics.jsonl: losses, the doctor's figures and findings. Old runs have losses only."""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.config import read_toml, reading
from regard.doctor.causes import PATIENCE
from regard.doctor.findings import Finding, as_dict, shortlist
from regard.doctor.outcome import judge
from regard.doctor.vitals import EVEN, SHARP
from regard.train.loop import read_metrics

Number = int | float
Points = list[tuple[int, Number]]


@dataclass(frozen=True)
class History:
    """The rows of a run's metrics.jsonl."""

    run: Path
    rows: list[dict[str, Any]]

    @classmethod
    def read(cls, run: Path) -> "History":
        """The history of the run in a directory."""
        if not (run / "metrics.jsonl").is_file():
            raise ValueError(f"{run}: no metrics.jsonl; name the directory of a run, as runs/lm")
        rows = read_metrics(run / "metrics.jsonl")
        return cls(run, [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)])

    def points(self, key: str) -> Points:
        """The values of a figure of the loop by step: "loss", "valid_loss", "norm", "lr"."""
        return [(row["step"], row[key]) for row in self.rows if isinstance(row.get(key), int | float)]

    def tables(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """The doctor's rows by step: "watch", "finding" or "spike"; values that are no table are left out."""
        return [(row["step"], row[key]) for row in self.rows if isinstance(row.get(key), dict)]

    def figures(self, kind: str) -> dict[str, Points]:
        """The points of a figure by layer ("gradient", "ratio", "scale", "dead", "spread") or by head ("entropy")."""
        curves: dict[str, Points] = {}
        for step, watch in self.tables("watch"):
            layers = watch.get(kind)
            for layer, value in layers.items() if isinstance(layers, dict) else ():
                heads = {f"{layer} head {i}": y for i, y in enumerate(value)} if isinstance(value, list) else {}
                for name, y in (heads or {layer: value}).items():
                    if isinstance(y, Number):
                        curves.setdefault(name, []).append((step, y))
        return curves

    @cached_property
    def findings(self) -> list[Finding]:
        seen = [finding_of(row) for _, row in self.tables("finding")]
        return shortlist(filter(None, [*seen, judge(self.run)]))

    @property
    def spikes(self) -> list[dict[str, Any]]:
        return [row for _, row in self.tables("spike")]

    @property
    def sampled(self) -> int:
        """The number of sampled steps."""
        return len(self.tables("watch"))

    @property
    def planned(self) -> int | None:
        """The number of steps of the run's recipe, None where its budget is time."""
        recipe = self.run / "recipe.toml"
        with reading(recipe):
            train = read_toml(recipe).get("train", {}) if recipe.is_file() else {}
            return train.get("steps") if train.get("minutes", "none") == "none" else None

    def as_dict(self) -> dict[str, Any]:
        losses, valid = self.points("loss"), self.points("valid_loss")
        heads = [points[-1][1] for points in self.figures("entropy").values()]
        return {
            "run": str(self.run),
            "steps": losses[-1][0] if losses else 0,
            "planned": self.planned,
            "loss": {"first": losses[0][1], "last": losses[-1][1]} if losses else None,
            "valid_loss": valid[-1][1] if valid else None,
            "sampled": self.sampled,
            "heads": {"all": len(heads), "sharp": sum(x < SHARP for x in heads), "even": sum(x > EVEN for x in heads)},
            "spikes": self.spikes,
            "findings": [as_dict(finding) for finding in self.findings],
        }


def finding_of(row: dict[str, Any]) -> Finding | None:
    """The finding of a row, of another version too: unknown fields are left out; None if the row is no finding."""
    known = {field.name for field in fields(Finding)}
    try:
        return Finding(**{name: value for name, value in row.items() if name in known})
    except (TypeError, ValueError):
        return None


def render(history: dict[str, Any]) -> str:
    """`History.as_dict()` in a few lines."""
    planned = f" of {history['planned']:,}" if history["planned"] else ""
    lines = [f"{history['run']}: {history['steps']:,}{planned} steps"]
    if history["loss"]:
        lines[0] += f", loss {history['loss']['first']:.3f} → {history['loss']['last']:.3f}"
    if history["valid_loss"] is not None:
        lines[0] += f", validation {history['valid_loss']:.3f}"
    if history["heads"]["all"]:
        heads = history["heads"]
        sharp, even = f"{heads['sharp']} attend to one position", f"{heads['even']} to all alike"
        lines.append(f"heads: {heads['all']}, of them {sharp}, {even}")
    if history["sampled"] == 0:
        lines.append("the doctor did not watch this run (an old one, or --train.watch 0): only its losses are known")
    for number, finding in enumerate(history["findings"], 1):
        step = f" (step {finding['step']})" if "step" in finding else ""
        lines += [f"{number}. {finding['cause']}{step}: {finding['sentence']}", f"   cure: {finding['cure']}"]
    if history["findings"]:
        return "\n".join(lines)
    if 0 < history["steps"] < PATIENCE:
        lines.append(f"fewer than {PATIENCE} steps say little of a learning rate")
    return "\n".join([*lines, "nothing wrong seen"])
