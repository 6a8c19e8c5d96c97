"""Runs all harnesses in turn, each in a child process, and prints executions, coverage and findings.

make fuzz MINUTES=10
python -m fuzz.run --minutes 1 config tokenizer        some of them
python -m fuzz.run --total                             the sum of all rounds on this machine
"""

import argparse
import base64
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzz.engine import CORPUS, keep

ROOT = Path(__file__).parents[1]
HARNESSES = sorted(path.stem for path in (ROOT / "fuzz" / "harnesses").glob("[a-z]*.py"))
STUCK = 600
"""Seconds without a new input after which the child is ended."""


class Child:
    """A process that tries inputs; after a crash the next order starts another one."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # files that are written thousands of times a second
        self.folder = tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None)
        self.current = Path(self.folder.name) / "current"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        """Return the process, a new one if there is none."""
        if self.process is None:
            env = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": self.folder.name, "TOKENIZERS_PARALLELISM": "false"}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fuzz.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=env,
            )  # fmt: skip
        return self.process

    def ask(self, order: dict[str, Any]) -> Any:
        """Return the answer to an order; None if the process ended, or was ended because it was stuck."""
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        self.current.write_bytes(b"")
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 1)[0]:
            if time.time() - self.current.stat().st_mtime > STUCK:
                process.kill()
                break
        answer = process.stdout.readline()
        return json.loads(answer) if answer else None

    def judge(self, name: str, data: bytes) -> list[str]:
        """Return the outcome of one input: "ok", "refused" or "finding", and what was found."""
        answer = self.ask({"name": name, "data": base64.b64encode(data).decode()})
        return ["finding", f"the process ended with code {self.end()}"] if answer is None else answer

    def fuzz(
        self, name: str, *, seed: int = 0, executions: int | None = None, seconds: float | None = None,
        kept: Path = CORPUS, grown: Path | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the result of one harness; a crash or an endless input is a finding of its own."""
        order = dict(name=name, seed=seed, executions=executions, seconds=seconds, current=str(self.current))
        answer = self.ask(order | {"kept": str(kept), "grown": grown and str(grown)})
        if answer is not None:
            return answer
        fact = f"the process ended with code {self.end()}"
        file = keep(kept / name, self.current.read_bytes())
        return dict(name=name, executions=1, refused=0, kept=0, lines=0, of=0, seconds=0.0, findings={fact: file})

    def close(self) -> None:
        """End the process and remove its files."""
        self.end()
        self.folder.cleanup()

    def end(self) -> int | None:
        """End the process, if there is one, and return its code."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.communicate()
        return process.returncode


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    rows = ["| harness | executions | CPU s | refused | inputs kept | lines reached | findings |", "|---" * 7 + "|"]
    for result in results:
        share = f"{result['lines']} of {result['of']} ({result['lines'] / max(1, result['of']):.0%})"
        counts = [f"{result[name]:,.0f}" for name in ("executions", "seconds", "refused", "kept")]
        cells = [result["name"], *counts, share]
        rows.append(f"| {' | '.join(cells)} | {len(result['findings'])} |")
    return "\n".join(rows)


def total(rounds: Path) -> list[dict[str, Any]]:
    """Return the sums of all rounds by harness, and of all harnesses; coverage is that of the best round."""
    sums: dict[str, dict[str, Any]] = {}
    for line in rounds.read_text().splitlines():
        result = json.loads(line)
        old = sums.setdefault(result["name"], dict.fromkeys(result, 0) | {"name": result["name"], "findings": {}})
        for name, combine in {"executions": sum, "seconds": sum, "refused": sum, "kept": max}.items():
            old[name] = combine((old[name], result[name]))
        old["lines"], old["of"] = max((old["lines"], old["of"]), (result["lines"], result["of"]))
        old["findings"] |= result["findings"]
    rows = [sums[name] for name in sorted(sums)]
    parts = {
        name: sum(row[name] for row in rows) for name in ("executions", "seconds", "refused", "kept", "lines", "of")
    }
    findings = {f"{row['name']}: {finding}": kept for row in rows for finding, kept in row["findings"].items()}
    return [*rows, {"name": "all", "findings": findings} | parts]


def main() -> int:
    """Run the harnesses; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="HARNESS", help=f"one of {', '.join(HARNESSES)}; all by default")
    parser.add_argument("--minutes", type=float, default=10, help="for all harnesses together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--grown", type=Path, default=ROOT / ".fuzz", help="inputs that reached something, for next time"
    )
    parser.add_argument("--total", action="store_true", help="only print the sum of all rounds so far")
    options = parser.parse_args()
    rounds = options.grown / "rounds.jsonl"
    if options.total:
        print(table(total(rounds)))
        return 0
    results, child, names = list[dict[str, Any]](), Child(), options.names or HARNESSES
    for name in names:
        seconds = options.minutes * 60 / len(names)
        result = child.fuzz(name, seed=options.seed, seconds=seconds, grown=options.grown)
        results.append(result)
        print(f"{name}: {result['executions']:,} executions", file=sys.stderr)
        for finding, kept in result["findings"].items():
            print(f"  {finding}  fuzz/corpus/{name}/{kept}", file=sys.stderr)
        options.grown.mkdir(parents=True, exist_ok=True)
        with rounds.open("a") as file:
            file.write(json.dumps(result) + "\n")
    child.close()
    print(table(results))
    return int(any(result["findings"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
