"""Each field of each JSON and TOML file of small runs, removed or set to values of any kind: every load ends well, or
in one line that names the file."""

import resource
import shutil

import pytest

from tests.mutations import Case, apply, cases_of, make_runs, open_run

MOST_KILOBYTES = 600_000
"""Most that the process may grow; the weights of the runs are a few kilobytes."""
PARTS = 12
"""Tests that all of the changes are shared by."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_runs(tmp_path_factory.mktemp("mutations"))


def problem(case: Case, run, backup) -> str | None:
    """What is wrong with the way in which a changed file is read."""
    shutil.copyfile(run / case.file, backup)
    apply(case, run)
    try:
        open_run(run, case.file)
    except ValueError as error:
        message = str(error)
        if "\n" in message or len(message) > 1500:
            return f"{case}: not one line: {message[:300]!r}"
        if (run / case.file).name not in message:
            return f"{case}: the file is not named: {message}"
    except BaseException as error:
        return f"{case}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        shutil.copyfile(backup, run / case.file)
    return None


def problems(runs, backup, stride: int, first: int = 0) -> list[str]:
    """The problems of every `stride`-th case, from the first on."""
    cases = [case for name, run in runs.items() for case in cases_of(name, run)][first::stride]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [text for case in cases if (text := problem(case, runs[case.run], backup))]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(cases) > 150
    return found + ([f"the process grew by {grown:,} kB"] if grown > MOST_KILOBYTES else [])


def test_the_runs_themselves_are_read(runs):
    for name, run in runs.items():
        for file in {case.file for case in cases_of(name, run)}:
            open_run(run, file)


def test_a_selection_of_single_changes(runs, tmp_path):
    assert not problems(runs, tmp_path / "backup", 61)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_single_changes(runs, tmp_path, part):
    assert not problems(runs, tmp_path / "backup", PARTS, part)
