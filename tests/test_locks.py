"""The lock files: they agree with constraints.txt and pyproject.toml, and hold all that is installed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from locks import audit
from locks.lock import ASIDE, WEIGHTS, pins

ROOT = Path(__file__).parents[1]
LOCKS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "locks").glob("*.txt")}
PINNED = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEMO = pins(LOCKS["first"]) | pins(LOCKS["demo"])
TEST = DEMO | pins(LOCKS["test"])


def test_versions_are_those_of_the_constraints():
    locked = {name: version for text in LOCKS.values() for name, version in pins(text).items()}
    assert locked == {name: version for name, version in PINNED.items() if name not in ASIDE}, "run make lock"
    assert set(WEIGHTS) == pins(LOCKS["weights"]).keys()


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_has_checksums_and_no_address(name):
    entries = LOCKS[name].replace(" \\\n", "").splitlines()[1:]
    assert len(entries) == len(pins(LOCKS[name]))
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+(    --hash=sha256:[0-9a-f]{64})+", entry), entry[:80]


def wanted(extras):
    """The requirements of the project with some extras, those of its own extras followed."""
    lines = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        lines += PROJECT["project"]["optional-dependencies"][extra]
    for requirement in map(Requirement, lines):
        if requirement.name == "regard":
            yield from wanted(requirement.extras)
        elif requirement.name not in ASIDE:
            yield requirement


@pytest.mark.parametrize(
    "extras, locked", [(["demo", "text", "vision", "serve"], DEMO), (["test"], TEST)], ids=["demo", "test"]
)
def test_what_is_declared_is_locked(extras, locked):
    assert str(extras)[1:-1].replace("'", "").replace(" ", "") in (ROOT / "Makefile").read_text(encoding="utf-8")
    for requirement in wanted(extras):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), requirement


@pytest.mark.parametrize("locked", [DEMO, TEST], ids=["demo", "test"])
def test_what_locked_packages_need_is_locked(locked):
    """Otherwise pip would take it from anywhere, without a checksum."""
    for name in locked:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        for requirement in map(Requirement, needs):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in locked.keys() | ASIDE, f"{name} needs {requirement}"


def test_builds_take_what_is_locked():
    (needed,) = map(Requirement, PROJECT["build-system"]["requires"])
    assert needed.specifier.contains(pins(LOCKS["first"])[needed.name])


def test_licences_are_listed():
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w.-]+) \| ([\d.]+) \| .+ \| `make \w+` \|$", page, re.M))
    assert rows == TEST | {"torch": PINNED["torch"]}, "run make licences"


HOLE = {"id": "HOLE-1", "fix_versions": ["1.1"]}


@pytest.mark.parametrize(
    "report, code, line",
    [
        ("no answer within 60 s", 0, "audit: skipped (no answer within 60 s)"),
        ([{"name": "a", "skip_reason": "not found"}], 0, "audit: 0 of 1 packages could be looked up"),
        ([{"name": "a", "version": "1", "vulns": []}], 0, "audit: 1 of 1 packages could be looked up"),
        ([{"name": "a", "version": "1", "vulns": [HOLE]}], 1, "put 1.1 into constraints.txt"),
        ([{"name": "a", "version": "1", "vulns": [HOLE | {"fix_versions": []}]}], 0, "no fix yet"),
    ],
    ids=["offline", "unknown", "sound", "fixable", "unfixable"],
)
def test_the_audit_fails_only_where_a_fix_is_out(report, code, line, monkeypatch, capsys):
    monkeypatch.setattr(audit, "report", lambda: report)
    assert audit.main() == code
    assert line in capsys.readouterr().out


def test_the_audit_without_its_tool_is_a_note(monkeypatch, tmp_path):
    monkeypatch.setattr(audit, "TOOL", tmp_path / "pip-audit")
    assert audit.report() == "pip-audit is not installed"
