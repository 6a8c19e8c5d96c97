"""Out of memory: one line that says what needed how much, and nothing is lost."""

import pytest
import torch

import regard.recipes.translate as run
from regard.cli import base
from regard.recipes import fit
from regard.train.memory import OutOfMemory, memory_need
from tests.train.test_loop import losses

CPU = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
ERRORS = {
    "cpu": (RuntimeError(f"{CPU}68719476736 bytes. Error code 12 (Cannot allocate memory)"), "64.0 GiB of memory"),
    "cuda": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has"), "2.50 GiB of memory"),
    "python": (MemoryError(), "more memory than there is"),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_a_step_without_memory_is_one_line_and_the_run_goes_on(small, tmp_path, monkeypatch, kind):
    error, amount = ERRORS[kind]
    fit(small(), tmp_path / "whole", quiet=True)
    real, count = run.next_token, iter(range(1000))

    def objective(model, batch, **options):
        if "smoothing" in options and next(count) == 16:
            raise error
        return real(model, batch, **options)

    monkeypatch.setattr(run, "next_token", objective)
    with pytest.raises(OutOfMemory) as raised:
        fit(small(), tmp_path / "run", quiet=True)
    text = str(raised.value)
    assert text.startswith(f"step 17 (batches of 256 tokens) needs {amount}") and "\n" not in text
    assert "lower --train.batch-tokens" in text and "--resume" in text
    monkeypatch.undo()
    fit(small(), tmp_path / "run", resume=True, quiet=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_other_errors_stay_what_they_are(small, tmp_path, monkeypatch):
    def objective(*_, **__):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(run, "next_token", objective)
    with pytest.raises(RuntimeError, match="^shapes do not fit$"):
        fit(small(), tmp_path / "run", quiet=True)


def test_what_torch_itself_raises_is_known():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 52, dtype=torch.uint8)
    assert memory_need(raised.value) == "4,194,304.0 GiB"
    assert memory_need(RuntimeError("allocate")) is None


@pytest.mark.parametrize("kind", ERRORS)
def test_every_command_ends_in_one_line(monkeypatch, capsys, kind):
    def command(**_):
        raise ERRORS[kind][0]

    monkeypatch.setattr(base, "regard", command)
    with pytest.raises(SystemExit) as ended:
        base.main()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and len(lines) == 1
    assert lines[0].startswith("regard: error: out of memory: ") and "fewer or shorter inputs" in lines[0]
