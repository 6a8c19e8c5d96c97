"""Writes docs/licences.md: the licence of every package that make installs, as the package itself declares it.

make licences
"""

import re
from importlib.metadata import PackageNotFoundError, metadata, version

from lock import ROOT, pins

PAGE = ROOT / "docs" / "licences.md"
HEAD = """# Licences of what is installed

Regard is under the MIT licence. `make demo` and `make test` install the packages below, each under its own, as it
declares itself; nothing of them is part of this repository. `make licences` writes this page, `make sbom` a
bill of materials (CycloneDX) of what is installed.

| package | version | licence | installed by |
|---|---|---|---|
"""


def licence(name: str) -> str:
    """Return the licence that an installed package declares: expression, classifiers or text."""
    declared = metadata(name)
    if expression := declared.get("License-Expression"):
        return expression
    classes = [entry for entry in declared.get_all("Classifier", []) if entry.startswith("License ::")]
    classes = [entry.rpartition(" :: ")[2] for entry in classes if not entry.endswith("OSI Approved")]
    lines = (declared.get("License") or "").strip().splitlines()
    return ", ".join(classes) or re.sub(r"\s+", " ", lines[0] if lines else "not declared").replace("|", "/")


def main() -> None:
    """Write the page from the lock files and what is installed."""
    packages = {"torch": (version("torch").partition("+")[0], "make demo")}
    for name, target in (("first", "make demo"), ("demo", "make demo"), ("test", "make test")):
        locked = pins((ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8"))
        packages |= {package: (number, target) for package, number in locked.items()}
    try:
        rows = [f"| {name} | {number} | {licence(name)} | `{by}` |" for name, (number, by) in sorted(packages.items())]
    except PackageNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed; run make test first") from None
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(rows)} packages")


if __name__ == "__main__":
    main()
