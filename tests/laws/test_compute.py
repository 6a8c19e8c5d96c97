"""Every registered family trains to the same losses with its blocks recomputed, compiled, or both, dropout included."""

import dataclasses
import json
import math
import subprocess
import sys
import tempfile
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.doctor.case import example
from regard.registry import models
from regard.train.compute import blocks_of
from regard.train.config import TrainConfig
from regard.train.loop import fit
from tests.laws.cases import has, make

STEPS = TrainConfig(
    steps=3, lr=1e-3, warmup=1, schedule="constant", watch=0, smoothing=0.0, eval_every=3, save_every=3
)  # fmt: skip


class Stream:
    """Batches of random examples of a model's inputs."""

    def __init__(self, model, rows=4):
        self.model, self.rows = model, rows

    def batches(self, epoch=0, index=0):
        while True:
            index += 1
            torch.manual_seed(index)
            inputs = example(self.model, self.rows)
            yield epoch, index, Batch(inputs, torch.zeros(self.rows, dtype=torch.long), tuple(range(self.rows)))


def squares(model, batch, *, smoothing=0.0):
    """The mean square of all outputs, summed over rows."""
    outputs = model(**batch.inputs)
    parts = outputs if isinstance(outputs, tuple) else (outputs,)
    rows = len(batch.targets)
    return sum((part.float() if part.dtype != torch.float64 else part).square().mean() for part in parts) * rows, rows


def losses(family, out, dtype=torch.float64, **changes):
    torch.manual_seed(5)
    model = make(family, 0, **{name: 0.1 for name in ("dropout", "attention_dropout") if has(family, name)}).to(dtype)
    out.mkdir(parents=True)
    config = dataclasses.replace(STEPS, **changes)
    stream = Stream(model)
    held = [batch for _, _, batch in islice(stream.batches(index=100), 2)]
    fit(model, stream, lambda: held, squares, config, out, publish=lambda: None, quiet=True)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for name in ("loss", "valid_loss") for row in rows if name in row]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    known = {}

    def of(family, **changes):
        key = family, *changes.items()
        if key not in known:
            known[key] = losses(family, tmp_path_factory.mktemp("plain") / family, **changes)
        return known[key]

    return of


@pytest.mark.parametrize("family", list(models))
def test_recomputed_blocks_change_no_loss(family, plain, tmp_path):
    assert losses(family, tmp_path / "run", checkpoint_blocks=True) == pytest.approx(
        plain(family), rel=1e-12, abs=1e-12
    )


@pytest.fixture(scope="module")
def compiled():
    """The losses of every family with blocks, plain and compiled, from a process whose functions check no shapes."""
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def print_compiled():
    # Without a compiler for the CPU this takes seconds; a graph that breaks is an error.
    compiler = torch.compile
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in sys.argv[1:] or [family for family in models if blocks_of(make(family))]:
            torch._dynamo.reset()
            torch.compile = partial(compiler, backend="aot_eager", fullgraph=True)
            found[family] = [
                losses(family, Path(folder) / family / str(number), **changes)
                for number, changes in enumerate(({}, {"compile": True}, {"compile": True, "checkpoint_blocks": True}))
            ]
    print(json.dumps(found))


@pytest.mark.slow  # a minute or two: python -m pytest --slow tests/laws/test_compute.py -k compiled
@pytest.mark.parametrize("family", [family for family in models if blocks_of(make(family))])
def test_compiled_blocks_are_whole_graphs_and_change_no_loss(family, compiled):
    plain, alone, recomputed = compiled[family]
    assert alone == pytest.approx(plain, rel=1e-12, abs=1e-12)
    assert recomputed == pytest.approx(plain, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "fp8-emulated"])
@pytest.mark.parametrize("family", list(models))
def test_every_precision_trains(family, precision, plain, tmp_path):
    try:
        got = losses(family, tmp_path / "run", torch.float32, precision=precision)
    except ValueError as error:  # of recurrent layers on many CPUs
        assert "does not compute the layers of a" in str(error) and "; use float32, or try" in str(error)
        return
    wanted = plain(family, dtype=torch.float32)
    assert got[0] == pytest.approx(wanted[0], rel=0.2, abs=0.02) and all(map(math.isfinite, got))


if __name__ == "__main__":
    print_compiled()
