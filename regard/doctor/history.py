"""A run read back: its losses, the doctor's figures and findings. Old runs have losses only, dead ones end early."""

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.config import read_toml
from regard.doctor.causes import PATIENCE
from regard.doctor.findings import Finding, as_dict, shortlist
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
        if not (run / "metrics.jsonl").is_file():
            raise ValueError(f"{run}: no metrics.jsonl; name the directory of a run, as runs/lm")
        rows = read_metrics(run / "metrics.jsonl")
        return cls(run, [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)])

    def points(self, key: str) -> Points:
        """A figure of the loop over the steps: "loss", "valid_loss", "norm", "lr"."""
        return [(row["step"], row[key]) for row in self.rows if isinstance(row.get(key), int | float)]

    def tables(self, key: str) -> list[tuple[int, dict[str, Any]]]:
        """What the doctor wrote, "watch", "finding" or "spike", over the steps; what is no table is left out."""
        return [(row["step"], row[key]) for row in self.rows if isinstance(row.get(key), dict)]

    def figures(self, kind: str) -> dict[str, Points]:
        """A figure of the doctor, by layer: "gradient", "ratio", "scale", "dead", "spread"; by head: "entropy"."""
        found: dict[str, Points] = {}
        for step, watch in self.tables("watch"):
            layers = watch.get(kind)
            for layer, value in layers.items() if isinstance(layers, dict) else ():
                heads = {f"{layer} head {i}": one for i, one in enumerate(value)} if isinstance(value, list) else {}
                for name, one in (heads or {layer: value}).items():
                    if one is not None:
                        found.setdefault(name, []).append((step, one))
        return found

    @cached_property
    def findings(self) -> list[Finding]:
        return shortlist(filter(None, (finding_of(row) for _, row in self.tables("finding"))))

    @property
    def spikes(self) -> list[dict[str, Any]]:
        return [row for _, row in self.tables("spike")]

    @property
    def sampled(self) -> int:
        """How often the doctor looked."""
        return len(self.tables("watch"))

    @property
    def planned(self) -> int | None:
        """The steps that the run was to have, if it said so."""
        recipe = self.run / "recipe.toml"
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
    """A finding as it was written, by another version too: what is unknown is left out, what is none is None."""
    known = {field.name for field in fields(Finding)}
    try:
        return Finding(**{name: value for name, value in row.items() if name in known})
    except (TypeError, ValueError):
        return None


def render(found: dict[str, Any]) -> str:
    """A run's history in a few lines."""
    planned = f" of {found['planned']:,}" if found["planned"] else ""
    lines = [f"{found['run']}: {found['steps']:,}{planned} steps"]
    if found["loss"]:
        lines[0] += f", loss {found['loss']['first']:.3f} → {found['loss']['last']:.3f}"
    if found["valid_loss"] is not None:
        lines[0] += f", validation {found['valid_loss']:.3f}"
    if found["heads"]["all"]:
        heads = found["heads"]
        lines.append(f"heads: {heads['all']}, of them {heads['sharp']} look at one place, {heads['even']} at all alike")
    if found["sampled"] == 0:
        lines.append("the doctor did not look at this run (an old one, or --train.watch 0): only its losses are known")
    for number, finding in enumerate(found["findings"], 1):
        step = f" (step {finding['step']})" if "step" in finding else ""
        lines += [f"{number}. {finding['cause']}{step}: {finding['sentence']}", f"   cure: {finding['cure']}"]
    if found["findings"]:
        return "\n".join(lines)
    if 0 < found["steps"] < PATIENCE:
        lines.append(f"fewer than {PATIENCE} steps say little of a learning rate")
    return "\n".join([*lines, "nothing wrong seen"])
