"""Processes that are killed, and commands with a mistake: nothing is lost, and one line says what is wrong."""

import json
import os
import subprocess
import sys

import pytest


def groups(what, folder):
    """The result of `tests.train.groups`, which forks, and so has to be a process of its own."""
    command = [sys.executable, "-m", "tests.train.groups", what, str(folder)]
    own = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"} | {"TORCH_CPP_LOG_LEVEL": "ERROR"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return json.loads((folder / "result.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_of_a_random_process_change_no_loss(tmp_path):
    """Each life goes on with 1 to 4 processes in another layout."""
    result = groups("kills", tmp_path)
    got, wanted = result["losses"]["run"], result["losses"]["whole"]
    assert len(result["lives"]) == 20 and len({(count, layout) for count, layout, *_ in result["lives"]}) == 9
    assert all(before > 0 for *_, before in result["lives"][1:]), "each life began where the last one ended"
    for name in wanted:
        assert got[name] == pytest.approx(wanted[name], rel=1e-11, abs=1e-11), name
    pairs = [abs(a - b) for name in wanted for a, b in zip(got[name], wanted[name], strict=True)]
    print(f"20 kills, {len(wanted['loss'])} steps: largest difference {max(pairs):.1e}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_mistake_of_many_processes_is_one_line_of_the_first(tmp_path):
    result = groups("mistakes", tmp_path)
    assert result.pop("fine")["codes"] == [0, 0]
    says = {
        "heads": "tensor=2 does not divide heads=1 of decoder.blocks.0.attention; use tensor=1",
        "product": "parallel=shard=2,tensor=2 is for 4 processes, this run has 2; start it with torchrun",
        "device": "--train.device cuda: ",
        "budget": "steps=0 must be at least 1",
        "minutes": "minutes=0.0 must be positive, or none",
        "disagree": "the processes disagree on the recipe: process 0 has lr = 0.001, process 1 has lr = 0.002",
        "file": "none.txt: no such file; check the path",
        "memory": "step 1 (batches of 128 tokens) needs 12.0 GiB of memory that there is not",
        "memory of one": "process 1: step 1 (batches of 128 tokens) needs 12.0 GiB of memory that there is not",
    }
    assert result.keys() == says.keys()
    alone = result.pop("memory of one")["printed"]  # the first process waits for an answer of the other
    (line,) = [line for text in alone for line in text.splitlines() if line.startswith("regard: ")]
    assert says.pop("memory of one") in line
    for name, (first, other) in {name: each["printed"] for name, each in result.items()}.items():
        lines = [line for line in first.splitlines() if line.startswith("regard: ")]
        assert len(lines) == 1 and first.splitlines()[-1] == lines[0] and says[name] in lines[0], (name, first)
        assert other == "" and "Traceback" not in first, (name, other)
        assert 0 not in result[name]["codes"], name
