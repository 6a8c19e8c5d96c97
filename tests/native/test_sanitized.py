"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, against plain loops, in a process of their own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import regard.native

COMPILER = next((found for name in ("g++", "clang++") if (found := shutil.which(name))), None)
FLAGS = ["-std=c++17", "-O1", "-g1", "-fopenmp", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    built = tmp_path_factory.mktemp("driver") / "driver"
    sources = Path(regard.native.__file__).parent
    command = [COMPILER, *FLAGS, *SANITIZERS, f"-I{sources}", str(Path(__file__).with_name("driver.cpp")), "-o", built]
    done = subprocess.run(command, capture_output=True, text=True)
    if "-fsanitize" in done.stderr or "asan" in done.stderr or "-fopenmp" in done.stderr:
        pytest.skip("this compiler has no sanitizers, or no OpenMP")
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("portable", [0, 1])
def test_every_operation_stays_within_its_memory(driver, portable):
    # OpenMP keeps its threads until the end, which a search for leaks would report.
    environment = os.environ | {"REGARD_PORTABLE": str(portable), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([driver], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
