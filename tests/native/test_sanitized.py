"""The kernels under the sanitizers of addresses, undefined behaviour and threads, against plain loops, in a process."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import regard.native

COMPILER = next((found for name in ("g++", "clang++") if (found := shutil.which(name))), None)
FLAGS = ["-std=c++17", "-O1", "-g1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-psabi"]
MEMORY = ["-fopenmp", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# GCC's OpenMP is itself not instrumented: its barriers would be reported. Threads of the driver take its place.
THREADS = ["-pthread", "-fsanitize=thread", "-Wno-unknown-pragmas"]


def build(folder, sanitizers):
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    built, sources = folder / "driver", Path(regard.native.__file__).parent
    command = [COMPILER, *FLAGS, *sanitizers, f"-I{sources}", str(Path(__file__).with_name("driver.cpp")), "-o", built]
    done = subprocess.run(command, capture_output=True, text=True)
    if any(word in done.stderr for word in ("-fsanitize", "asan", "tsan", "-fopenmp")):
        pytest.skip("this compiler has no sanitizers, or no OpenMP")
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver"), MEMORY)


@pytest.mark.parametrize("portable", [0, 1])
def test_every_operation_stays_within_its_memory(driver, portable):
    # OpenMP keeps its threads until the end, which a search for leaks would report.
    environment = os.environ | {"REGARD_PORTABLE": str(portable), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([driver], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def threaded(tmp_path_factory):
    return build(tmp_path_factory.mktemp("threaded"), THREADS)


@pytest.mark.parametrize("portable", [0, 1])
def test_threads_share_nothing_that_one_of_them_writes(threaded, portable):
    """Three threads run every operation at a time, each with numbers of its own."""
    environment = os.environ | {"REGARD_PORTABLE": str(portable)}
    done = subprocess.run([threaded, "second", "third"], capture_output=True, text=True, env=environment)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is unknown to the sanitizer")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_race_would_be_found(tmp_path):
    source = tmp_path / "race.cpp"
    source.write_text(
        "#include <thread>\nint shared = 0;\nvoid add() { for (int i = 0; i < 100000; i++) shared++; }\n"
        "int main() { std::thread other(add); add(); other.join(); return 0; }\n"
    )
    command = [COMPILER or "g++", "-std=c++17", "-g1", *THREADS, str(source), "-o", str(tmp_path / "race")]
    if COMPILER is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no compiler with this sanitizer")
    done = subprocess.run([tmp_path / "race"], capture_output=True, text=True)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel's address layout is unknown to the sanitizer")
    assert done.returncode and "data race" in done.stderr
