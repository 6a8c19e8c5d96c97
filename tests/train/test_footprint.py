"""The predicted memory of a training step, beside what the system says that a process took."""

import json
import subprocess
import sys

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.doctor.case import example
from regard.models import build, preset
from regard.objectives.next_token import next_token
from regard.registry import models
from regard.train.config import TrainConfig
from regard.train.footprint import Gauge, predict
from tests.laws.cases import make

FLAGS = {
    "plain": {}, "accumulate": {"accumulate": 2}, "checkpoint_blocks": {"checkpoint_blocks": True},
    "bfloat16": {"precision": "bfloat16"}, "muon": {"optimizer": "muon"},
    "all": {"accumulate": 2, "checkpoint_blocks": True, "precision": "bfloat16"},
}  # fmt: skip
NONE = {"graph-transformer"}
"""Families that do not run on `meta`: their runs print no prediction."""


def gpt(dim=256, depth=4):
    return build("gpt", preset("gpt", "tiny", vocab_size=1000, dim=dim, heads=4, depth=depth, ffn_dim=4 * dim,
                               dropout=0.1, max_len=256))  # fmt: skip


def batch_of(rows=8, length=256):
    ids = torch.randint(1000, (rows, length))
    return Batch({"ids": ids}, ids, tuple(range(rows)))


def compared(flags):
    """The memory of the second step of a small training, predicted and measured."""
    from regard.train.compute import Placed, computing
    from regard.train.optim import build_optimizers
    from regard.train.parallel import Parallel

    torch.set_num_threads(1)
    model, batch, config = gpt(), batch_of(), TrainConfig(lr=1e-4, **flags)
    objective = Placed(next_token, config.precision)
    parallel, gauge = Parallel(model, objective, 0), Gauge(model, torch.device("cpu"))
    optimizers = build_optimizers(model, name=config.optimizer, lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01)
    with computing(model, config):
        for step in range(2):
            gauge.start(optimizers)
            for _ in range(config.accumulate):
                gauge.add(batch)
                summed, _ = parallel.loss(batch, step=step, smoothing=0.1)
                summed.backward()
                del summed
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            gauge.stop()
    return predict(model, objective, batch, config).peak, gauge.measured


@pytest.mark.slow  # python -m pytest --slow tests/train/test_footprint.py: half a minute each
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process took")
@pytest.mark.parametrize("name", FLAGS)
def test_predicted_memory_is_within_a_tenth_of_what_the_process_takes(name):
    done = subprocess.run([sys.executable, "-m", __name__, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    predicted, measured = json.loads(done.stdout)
    assert predicted == pytest.approx(measured, rel=0.1)


def footprint(**flags):
    return predict(gpt(dim=64, depth=3), next_token, batch_of(2, 64), TrainConfig(lr=1e-3, **flags))


def test_flags_change_what_they_should():
    plain, less, half = footprint(), footprint(checkpoint_blocks=True), footprint(precision="bfloat16")
    count = 4 * sum(p.numel() for p in gpt(dim=64, depth=3).parameters())
    assert plain.weights >= plain.gradients == count and plain.optimizer == pytest.approx(2 * count, rel=0.01)
    assert sum(less.activations.values()) < 0.3 * sum(plain.activations.values())
    assert less.peak < half.peak < plain.peak
    assert plain.peak >= plain.weights + plain.optimizer + sum(plain.activations.values())
    assert footprint(optimizer="muon").optimizer < plain.optimizer


def test_the_cause_names_what_fills_memory_and_what_to_lower():
    config = TrainConfig(lr=1e-3)
    words = predict(gpt(dim=64), next_token, batch_of(), config).cause(config)
    assert "activations of" in words and "lower --train.batch-tokens" in words and "checkpoint-blocks" in words
    words = predict(gpt(), next_token, batch_of(1, 8), config).cause(config)
    assert "optimizer" in words and "a smaller model" in words


@pytest.mark.parametrize("family", [family for family in models if family not in NONE])
def test_every_family_has_a_prediction(family):
    model = make(family)
    inputs = example(model)
    rows = len(next(iter(inputs.values())))

    def objective(model, batch, *, smoothing):
        out = model(**batch.inputs)
        return sum(part.square().sum() for part in (out if isinstance(out, tuple) else (out,))), rows

    found = predict(model, objective, Batch(inputs, torch.zeros(rows), tuple(range(rows))), TrainConfig(lr=1e-3))
    assert found.peak > found.weights + found.optimizer and found.optimizer >= 2 * found.gradients
    assert not any(tensor.is_meta for tensor in model.parameters()), "the model itself stays as it is"


if __name__ == "__main__":
    print(json.dumps(compared(FLAGS[sys.argv[1]])))


def test_a_system_that_does_not_say_its_memory_ends_no_training(tmp_path, monkeypatch):
    """As in a container: /proc can be read, not written, or lacks the peak."""
    (tmp_path / "status").write_text("Name:\tpython\n")
    monkeypatch.setattr("regard.train.footprint.PROCESS", tmp_path)
    gauge = Gauge(gpt(dim=16, depth=1), torch.device("cpu"))
    for _ in range(3):
        gauge.start([])
        gauge.add(batch_of(1, 4))
        gauge.stop()
    assert gauge.compare(next_token, TrainConfig()) == ""


def test_what_an_objective_says_to_tensors_without_numbers_ends_no_training():
    def objective(model, batch, **options):
        assert {0: True}[float(batch.targets.sum())], "it looks at a number"

    gauge = Gauge(gpt(dim=16, depth=1), torch.device("cpu"), measures=False)
    assert gauge.predict(objective, batch_of(1, 4), TrainConfig()) is None
