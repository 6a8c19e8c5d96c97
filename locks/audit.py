"""Looks the locked packages up among known vulnerabilities with pip-audit; without a network it says so and passes.

make audit
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOL = ROOT / ".venv" / "audit" / "bin" / "pip-audit"
SECONDS = 60


def report() -> list[dict] | str:
    """Return an entry for each locked package, or why there is none."""
    if not TOOL.exists():
        return "pip-audit is not installed"
    files = [f"--requirement={ROOT / 'locks' / name}.txt" for name in ("first", "demo", "test")]
    options = ["--disable-pip", "--require-hashes", "--format=json", "--timeout=5", "--progress-spinner=off"]
    try:
        done = subprocess.run([str(TOOL), *options, *files], capture_output=True, text=True, timeout=SECONDS)
        return json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return f"no answer within {SECONDS} s"
    except (ValueError, KeyError):
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]


def main() -> int:
    """Print what is known; return 1 if a version with a fix is out for a vulnerability."""
    packages = report()
    if isinstance(packages, str):
        print(f"audit: skipped ({packages})")
        return 0
    checked = [package for package in packages if "vulns" in package]
    print(f"audit: {len(checked)} of {len(packages)} packages could be looked up")
    fixable = 0
    for package in checked:
        for hole in package["vulns"]:
            fixes = " or ".join(hole["fix_versions"])
            cure = f"put {fixes} into constraints.txt and run make lock" if fixes else "no fix yet"
            print(f"  {package['name']}=={package['version']}: {hole['id']}; {cure}")
            fixable += bool(fixes)
    return min(fixable, 1)


if __name__ == "__main__":
    sys.exit(main())
