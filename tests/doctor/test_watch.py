"""The doctor beside the loop: it changes nothing, and says what is wrong."""

import importlib.util
import inspect
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from regard.data.sets.batches import Batch, window_batch
from regard.doctor.feed import Feed, fingerprint, same_as_input
from regard.doctor.history import History
from regard.doctor.vitals import activations, few, layer_of, spread_of
from regard.doctor.watch import Watch, classes_of, rounded
from regard.hub.checkpoint import load_model
from regard.nn.kernels import Full
from regard.nn.masks import causal
from regard.objectives.next_token import next_token
from regard.recipes import fit
from regard.train import loop as loop_module
from regard.train.board import scalars
from regard.train.loop import read_metrics
from tests.doctor.faults import FAULTS, HEALTHY, chain, examine, train, writer

# ---- twins --------------------------------------------------------------------------------------------------------


def shortened(setup, steps):
    return replace(setup, config=replace(setup.config, steps=steps))


@pytest.mark.parametrize("name", HEALTHY)
def test_silence_on_healthy_runs(name, tmp_path):
    """Two writers to their end, where most rules begin to judge; the slow test below takes all of them there."""
    setup = HEALTHY[name](0)
    assert examine(setup if name in ("wide writer", "deep writer") else shortened(setup, 60), tmp_path) == []


QUICK = {
    "targets not shifted": 2, "a frozen layer": 2, "a layer cut off": 8, "NaN in one example": 20,
    "exploding initialisation": 1, "missing √d_k, large heads": 1, "duplicated batch order": 55, "labels shuffled": 120,
    "queries × 100": 140, "nearly a sign behind each block": 140, "learning rate × 100": 220,
    "no warm-up with post-norm": 120, "recordings of nothing": 430,
}  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_faults_are_named(name, tmp_path):
    cause, twin, broken = FAULTS[name]
    found = examine(shortened(broken(HEALTHY[twin](0)), QUICK[name]), tmp_path)
    assert cause in [finding.cause for finding in found[:2]]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_fault_and_every_twin(seed, tmp_path):
    for name, make in HEALTHY.items():
        assert examine(make(seed), tmp_path / name) == [], name
    for name, (cause, twin, broken) in FAULTS.items():
        assert cause in [f.cause for f in examine(broken(HEALTHY[twin](seed)), tmp_path / name.replace("/", ""))[:2]], (
            name
        )


# ---- a run is the same with and without ---------------------------------------------------------------------------


def state(out):
    return load_model(out).state_dict()


@pytest.mark.parametrize("changes", [{"model": "seq2seq", "train__accumulate": 2}])
def test_watching_changes_no_bit_and_resumes(small, tmp_path, monkeypatch, changes):
    plan = small(**changes, model__dropout=0.1, train__watch=5)
    fit(plan, tmp_path / "watched", quiet=True)
    fit(replace(plan, train=replace(plan.train, watch=0)), tmp_path / "alone", quiet=True)
    steps = iter(range(1000))

    def dies(batches):
        if inspect.isgenerator(batches) and next(steps) == 17:  # type checks call `next` too
            raise RuntimeError("the power went out")
        return next(batches)

    monkeypatch.setattr(loop_module, "next", dies, raising=False)
    with pytest.raises(RuntimeError, match="power"):
        fit(plan, tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    fit(plan, tmp_path / "broken", resume=True, quiet=True)
    wanted = state(tmp_path / "alone")
    for name in ("watched", "broken"):
        assert all(torch.equal(value, wanted[key]) for key, value in state(tmp_path / name).items())
    sampled = {
        name: [row["step"] for row in read_metrics(tmp_path / name / "metrics.jsonl") if "watch" in row]
        for name in ("watched", "alone", "broken")
    }
    assert sampled == dict(watched=[1, 2, 4, 5, 10, 15, 20, 25, 30], alone=[], broken=sampled["watched"])
    assert all({"loss", "lr", "norm", "tokens"} <= row.keys() for row in read_metrics(tmp_path / "alone/metrics.jsonl")
               if "valid_loss" not in row)  # fmt: skip


def test_looking_leaves_modes_random_numbers_and_gradients(tmp_path):
    setup = writer(0, dropout=0.5)
    setup.model.train()
    setup.model.decoder.blocks[0].eval()
    before = torch.get_rng_state()
    batch = next(setup.stream.batches())[2]
    found = activations(setup.model, setup.objective, batch)
    assert torch.equal(torch.get_rng_state(), before)
    assert setup.model.training and not setup.model.decoder.blocks[0].training
    assert all(p.grad is None for p in setup.model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in setup.model.modules())
    assert found["scale"].keys() >= {"decoder.blocks.0", "decoder.blocks.1", "embedding"}
    assert len(found["entropy"]["decoder.blocks.0.attention"]) == 2


def test_weights_of_long_sequences_are_not_asked_for(monkeypatch):
    setup = writer(0)
    monkeypatch.setattr("regard.doctor.vitals.MATRIX", 2 * 16 * 16 - 1)  # one row, two heads
    assert activations(setup.model, setup.objective, next(setup.stream.batches())[2])["entropy"] == {}


# ---- figures ------------------------------------------------------------------------------------------------------


def test_figures_are_what_they_are_called(tmp_path):
    """Against the same sums taken by hand around one step of plain PyTorch."""
    setup = writer(0)
    batch = next(setup.stream.batches())[2]
    watch = Watch(setup.model, setup.objective, setup.config)
    watch.on_batch(0, 1, batch)
    loss, count = setup.objective(setup.model, batch)
    (loss / count).backward()
    block = dict(setup.model.decoder.blocks[1].named_parameters())
    gradient = torch.cat([p.grad.flatten() for p in block.values()]).norm().item()
    before = torch.cat([p.detach().flatten().clone() for p in block.values()])
    watch.on_gradients(1)
    torch.optim.SGD(setup.model.parameters(), lr=0.1).step()
    moved = torch.cat([p.detach().flatten() for p in block.values()]) - before
    (row,) = [row["watch"] for row, _ in watch.on_update(1, loss.item() / count, 0.1) if "watch" in row]
    assert row["gradient"]["decoder.blocks.1"] == pytest.approx(gradient, rel=1e-3)
    assert row["ratio"]["decoder.blocks.1"] == pytest.approx((moved.norm() / before.norm()).item(), rel=1e-3)


def test_entropy_is_the_share_of_what_is_possible():
    even = torch.ones(1, 2, 8, 8).tril() / torch.arange(1, 9)[:, None]
    even[:, 1] = torch.eye(8)
    kernel = Full(heads=2, head_dim=4, max_len=8)
    entropy, _ = spread_of(even, kernel, causal())
    assert entropy == pytest.approx([1, 0], abs=1e-6)
    assert spread_of(torch.ones(1, 1, 3, 3) / 3, kernel) is None, "three keys say nothing"


def test_spread_is_the_deviation_of_scores():
    q, k, v = torch.randn(3, 2, 4, 16, 64).unbind(0)
    kernel = Full(heads=4, head_dim=64, max_len=16)
    _, weights = kernel(q, k, v, weights=True)
    scores = (q @ k.mT) / 8
    assert spread_of(weights, kernel)[1] == pytest.approx(scores.std(-1, correction=0).mean().item(), rel=1e-4)


@pytest.mark.parametrize(
    "kernel, position",
    [
        *((kernel, "sinusoidal") for kernel in ("window:radius=8", "sparse", "topk:k=8", "reformer", "linear")),
        *(("full", position) for position in ("alibi", "relative", "rotary")),
    ],
)
def test_scores_of_healthy_starts_are_small(kernel, position):
    """Whatever hides keys, and whatever is added to scores."""
    torch.manual_seed(1)
    model = writer(0, kernel=kernel, position=position, max_len=256).model
    figures = activations(model, next_token, window_batch(chain(0), np.arange(2) * 300, 256))
    assert figures["spread"] and all(0.05 < one < 3 for one in figures["spread"].values()), figures["spread"]
    assert all(0.5 < one <= 1.0001 for row in figures["entropy"].values() for one in row), figures["entropy"]


@pytest.mark.parametrize(
    "name, layer",
    [
        ("decoder.blocks.3.attention.query.weight", "decoder.blocks.3"),
        ("stages.0.blocks.1.norms.attention.weight", "stages.0.blocks.1"),
        ("embedding.weight", "embedding"),
        ("subblocks.weight", "subblocks"),
    ],
)
def test_layer_of_a_parameter(name, layer):
    assert layer_of(name) == layer


def test_examples_are_picked_with_all_their_rows():
    views = Batch({"pixels": torch.arange(6)}, torch.arange(6), (7, 8, 9))
    assert views.pick([1]).inputs["pixels"].tolist() == [1, 4] and views.pick([1]).examples == (8,)
    pairs = Batch({"pixels": torch.arange(3), "text": torch.arange(3)}, torch.eye(3).bool(), (0, 1, 2))
    assert torch.equal(pairs.pick([0, 2]).targets, torch.eye(2).bool())
    square = torch.arange(9).view(3, 3)
    assert Batch({"ids": square}, square, (0, 1, 2)).pick([0]).targets.tolist() == [[0, 1, 2]]
    odd = Batch({"ids": torch.arange(4)}, torch.arange(3), ())
    assert odd.pick([0]) is odd
    long = Batch({"ids": torch.zeros(64, 1024, dtype=torch.long)}, torch.zeros(64, 1024, dtype=torch.long), ())
    assert len(few(long).targets) == 1


def test_what_is_no_number_is_null():
    assert rounded({"a": [1.23456, math.nan], "b": {"c": math.inf}}) == {"a": [1.235, None], "b": {"c": None}}


def test_classes_of_heads():
    assert classes_of(writer(0).model) == 48
    assert classes_of(HEALTHY["classifier"](0).model) == 4
    assert classes_of(torch.nn.Linear(2, 3)) is None


# ---- batches ------------------------------------------------------------------------------------------------------


def windows(*starts):
    return window_batch(chain(0), torch.tensor(starts).numpy(), 16)


def test_few_batches_in_the_same_order_prove_nothing():
    feed = Feed()
    found = [one for epoch in range(6) for i in (1, 2) for one in feed.add(epoch, i, windows(i, 50))]
    assert found == []
    found = [one.cause for epoch in range(6, 40) for i in (1, 2) for one in feed.add(epoch, i, windows(i, 50))]
    assert set(found) == {"duplicated batch order"}


def test_the_same_batch_again():
    found = [one.cause for i in range(1, 6) for one in Feed().add(0, i, windows(1, 2))]
    assert found == []
    feed = Feed()
    found = [one.cause for i in range(1, 6) for one in feed.add(0, i, windows(1, 2))]
    assert found == ["the same batch again and again"]


def test_examples_without_numbers_are_told_apart_by_what_is_in_them():
    one, two = (replace(windows(i, 50), examples=(0, 0)) for i in (1, 2))
    assert fingerprint(one) != fingerprint(two)


def test_tokens_that_repeat_are_no_unshifted_targets():
    ids = torch.zeros(2, 9, dtype=torch.long)
    assert not list(same_as_input(Batch({"ids": ids}, ids, ())))
    assert not list(same_as_input(windows(1, 2)))


def test_floor_is_the_best_constant_guess():
    feed = Feed()
    targets = torch.tensor([0] * 6 + [1] * 2)
    list(feed.add(0, 1, Batch({"ids": torch.zeros(8, 2, dtype=torch.long)}, targets, ())))
    assert feed.chooses(2) and not feed.chooses(1) and not feed.chooses(None) and not Feed().chooses(2)
    guess = torch.tensor([0.75, 0.25, 1e-30]).log()
    wanted = torch.nn.functional.cross_entropy(guess.expand(8, 3), targets).item()
    assert feed.floor(3, 0.0) == pytest.approx(wanted, rel=1e-5)
    smoothed = (0.9 * torch.tensor([0.75, 0.25, 0]) + 0.1 / 3).log().expand(8, 3)
    wanted = torch.nn.functional.cross_entropy(smoothed, targets, label_smoothing=0.1).item()
    assert feed.floor(3, 0.1) == pytest.approx(wanted, rel=1e-5)


def test_mixed_targets_count_by_their_shares():
    targets = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]])
    feed = Feed()
    list(feed.add(0, 1, Batch({"pixels": torch.zeros(3, 1, 2, 2)}, targets, (0, 1, 2))))
    guess = targets.mean(0).log().expand(3, -1)
    assert feed.chooses(3)
    assert feed.floor(3, 0.0) == pytest.approx(torch.nn.functional.cross_entropy(guess, targets).item(), rel=1e-5)
    boxes = Feed()
    list(boxes.add(0, 1, Batch({"pixels": torch.zeros(3, 1, 2, 2)}, torch.rand(3, 4) + 1, (0, 1, 2))))
    assert not boxes.chooses(4)


# ---- what is said --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays", [False, True])
def test_a_spike_names_its_batch(stays):
    setup = writer(0)
    watch = Watch(setup.model, setup.objective, replace(setup.config, watch=10_000))
    rows = []
    for step in range(1, 61):
        watch.on_batch(0, step, windows(step, 1000))
        loss = 3 + 0.01 * (step % 5) + (4 if step == 50 or (stays and step > 50) else 0)
        rows += [row for row, _ in watch.on_update(step, loss, 0.1)]
    (spike,) = [row["spike"] for row in rows if "spike" in row]
    assert spike["at"] == 50 and spike["passed"] is not stays
    assert spike["batch"].startswith(f"batch {49 if stays else 50} of epoch 0 (examples {49 if stays else 50}, 1000")
    (finding,) = [row["finding"] for row in rows if "finding" in row]
    assert finding["cause"] == "loss spike"


def test_a_broken_example_is_named_in_the_error(tmp_path):
    """NaN in one picture of many: its number, not that of its batch only."""
    cause, twin, broken = FAULTS["NaN in one example"]
    setup = broken(HEALTHY[twin](0))
    with pytest.raises(ValueError, match=r"example \d+ of the batch's 32 by itself makes.*remove it and go"):
        train(setup, tmp_path)
    assert History.read(tmp_path).findings[0].cause == "a broken example"


def test_a_gradient_that_is_no_number_is_traced_to_its_example():
    setup = writer(0)
    batch = windows(1, 2, 3)

    def objective(model, batch, **how):
        loss, count = setup.objective(model, batch, **how)
        if 2 in batch.examples:
            loss = loss + torch.sqrt(model.head.weight.sum() * 0)  # 0 forwards, no number backwards
        return loss, count

    watch = Watch(setup.model, objective, setup.config)
    assert "example 2 of the batch's 3" in watch.blame("gradient norm", math.nan, 4, batch).sentence
    other = windows(4, 5)
    watch.on_batch(0, 1, batch)
    watch.on_batch(0, 2, other)  # of the same step: the last one is not the one to blame
    assert "example 2 of the batch's 5" in watch.blame("gradient norm", math.nan, 4, other).sentence
    assert "initialise the weights smaller" in watch.blame("loss", math.nan, 1, other).cure  # nothing was learned yet


def test_findings_are_said_once_and_not_again_on_resuming(capsys, tmp_path):
    cause, twin, broken = FAULTS["targets not shifted"]
    for steps in (20, 40):
        setup = broken(HEALTHY[twin](0))
        config = replace(setup.config, steps=steps, save_every=10)
        train(replace(setup, config=config), tmp_path, resume=steps == 40, quiet=False)
    said = capsys.readouterr().err
    assert said.count("doctor: targets not shifted") == 1
    assert "shift the targets" in said


# ---- TensorBoard --------------------------------------------------------------------------------------------------


def test_tensorboard_reads_every_number(tmp_path):
    cause, twin, broken = FAULTS["targets not shifted"]
    setup = broken(HEALTHY[twin](0))
    examine(replace(setup, config=replace(setup.config, steps=2)), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    wanted = {name: value for row in rows if row["step"] == 1 for name, value in scalars(row) if name != "step"}
    told = {name: one.value for name in events.Tags()["scalars"] for one in events.Scalars(name) if one.step == 1}
    assert told == {name: pytest.approx(value, rel=1e-6) for name, value in wanted.items()}
    assert {"loss", "watch/gradient/decoder.blocks.0"} <= set(told)
    (said,) = events.Tensors("doctor/text_summary")
    assert b"targets not shifted" in said.tensor_proto.string_val[0]


def test_without_tensorboard_nothing_is_missing(tmp_path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "tensorboard" else real(name))
    examine(replace(writer(0), config=replace(writer(0).config, steps=2)), tmp_path)
    assert (tmp_path / "metrics.jsonl").exists() and not (tmp_path / "tensorboard").exists()


def test_scalars_have_paths():
    row = {"watch": {"entropy": {"a": [0.5, None]}, "on": True}, "loss": 2}
    assert list(scalars(row)) == [("watch/entropy/a/0", 0.5), ("loss", 2)]


def test_rows_are_json(tmp_path):
    examine(replace(writer(0), config=replace(writer(0).config, steps=2)), tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) >= 2
    for line in lines:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
