"""The loop: what it keeps, how it stops, and that a broken run goes on as if nothing had happened."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
import torch

from regard.data.phrases import phrases
from regard.hub.checkpoint import load_model
from regard.recipes import fit
from regard.train import checkpoint
from regard.train import loop as loop_module
from regard.train.loop import Interrupted, read_metrics
from tests.train.conftest import SMALL


def losses(out):
    return {row["step"]: row["loss"] for row in read_metrics(out / "metrics.jsonl") if "loss" in row}


def weights(path):
    return {name: value.clone() for name, value in load_model(path).state_dict().items()}


def test_loss_falls_and_the_run_is_complete(small, tmp_path):
    fitted = fit(small(), tmp_path / "run", quiet=True)
    seen = losses(tmp_path / "run")
    assert list(seen) == list(range(1, 31))
    assert seen[30] < seen[1] - 0.5
    assert fitted.step == 30
    for name in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "recipe.toml"):
        assert (tmp_path / "run" / name).is_file()


@pytest.mark.parametrize("changes", [{}, {"train__optimizer": "adamw"}, {"model": "seq2seq"}])
def test_resumes_bit_for_bit(small, tmp_path, monkeypatch, changes):
    """A run that stops at step 17, past its last checkpoint, ends with the very same losses and weights."""
    if changes.get("model") == "seq2seq":
        changes = {"model.dim": 16}
        plan = small()
        from regard.recipes import configure

        base = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
        plan = configure(plan, {"model": "seq2seq", **base, "model.dim": 16})
    else:
        plan = small(**changes, model__dropout=0.1)
    fit(plan, tmp_path / "whole", quiet=True)

    real, calls = loop_module.next if hasattr(loop_module, "next") else next, iter(range(100))

    def dies(batches):
        if next_call(calls) == 17:
            raise RuntimeError("the power went out")
        return real(batches)

    def next_call(counter):
        return real(counter)

    monkeypatch.setattr(loop_module, "next", dies, raising=False)
    with pytest.raises(RuntimeError, match="power"):
        fit(plan, tmp_path / "broken", quiet=True)
    monkeypatch.undo()
    assert max(losses(tmp_path / "broken")) == 17
    fit(plan, tmp_path / "broken", resume=True, quiet=True)
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    for (name, one), two in zip(
        weights(tmp_path / "whole").items(), weights(tmp_path / "broken").values(), strict=True
    ):
        assert torch.equal(one, two), name


def test_a_run_is_never_overwritten(small, tmp_path):
    fit(small(train__steps=2), tmp_path, quiet=True)
    with pytest.raises(ValueError, match="holds a run already; go on with --resume"):
        fit(small(), tmp_path, quiet=True)


def test_ctrl_c_saves_and_says_how_to_go_on(small, tmp_path, monkeypatch):
    real = checkpoint.save
    state = {"steps": 0}

    def objective(model, batch, **how):
        state["steps"] += 1
        if state["steps"] == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return real_objective(model, batch, **how)

    import regard.recipes.run as run

    real_objective = run.next_token
    monkeypatch.setattr(run, "next_token", objective)
    with pytest.raises(Interrupted, match="step 7, everything is saved; go on with --resume"):
        fit(small(), tmp_path, quiet=True)
    assert [path.name for path in checkpoint.found(tmp_path / "checkpoints")] == ["step-00000007"]
    assert real is checkpoint.save


def test_divergence_names_step_batch_and_cure(small, tmp_path, monkeypatch):
    import regard.recipes.run as run

    real = run.next_token
    counter = {"n": 0}

    def poisoned(model, batch, **how):
        counter["n"] += 1
        loss, count = real(model, batch, **how)
        return (loss * float("nan") if counter["n"] == 13 else loss), count

    monkeypatch.setattr(run, "next_token", poisoned)
    with pytest.raises(ValueError, match=r"loss is nan at step 12 \(epoch \d+, batch \d+, pairs \d+.*lower --train.lr"):
        fit(small(), tmp_path, quiet=True)
    assert checkpoint.found(tmp_path / "checkpoints"), "the checkpoint of step 10 is untouched"


def test_accumulated_batches_equal_one_large_one(small, tmp_path):
    """Gradients are weighted by tokens, not by batches."""
    plan = small(train__steps=1, train__accumulate=3, train__optimizer="adamw", train__clip=0)
    fit(plan, tmp_path, quiet=True)
    row = read_metrics(tmp_path / "metrics.jsonl")[0]
    single = small(train__steps=1, train__optimizer="adamw", train__clip=0)
    fit(single, tmp_path / "one", quiet=True)
    assert row["tokens"] > 2 * read_metrics(tmp_path / "one" / "metrics.jsonl")[0]["tokens"]


def test_average_is_the_mean_of_the_last_checkpoints(small, tmp_path):
    fit(small(train__average=2), tmp_path, quiet=True)
    paths = checkpoint.found(tmp_path / "checkpoints")
    from safetensors.torch import load_file

    stored = [load_file(path / "model.safetensors") for path in paths]
    assert len(stored) == 2
    for name, value in load_model(tmp_path).named_parameters():
        torch.testing.assert_close(value.detach(), (stored[0][name] + stored[1][name]) / 2)


def test_best_weights_are_kept_and_patience_stops(small, tmp_path):
    plan = small(train__steps=200, train__eval_every=1, train__patience=2, train__lr=1.0, train__schedule="constant")
    fitted = fit(plan, tmp_path, quiet=True)
    values = {r["step"]: r["valid_loss"] for r in read_metrics(tmp_path / "metrics.jsonl") if "valid_loss" in r}
    best = min(values, key=values.get)
    assert fitted.step == best + 2 < 200
    assert fitted.valid_loss == values[best]


def test_a_time_budget_ends_the_run(small, tmp_path):
    fitted = fit(small(train__minutes=0.02, train__steps=10**6), tmp_path, quiet=True)
    assert 1 <= fitted.step < 10**6


def test_seeds_change_the_run(small, tmp_path):
    for seed in (0, 1):
        fit(small(train__seed=seed, train__steps=3), tmp_path / str(seed), quiet=True)
    assert losses(tmp_path / "0") != losses(tmp_path / "1")


def command(out, *more):
    fields = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    return [sys.executable, "-m", "regard.cli", "train", "translate", "--out", str(out), "--json", *fields, *more]


def test_full_disk_while_saving_loses_nothing(tmp_path):
    """The operating system refuses to let files grow past 30 kB: one line, and what was there stays readable."""
    fit_small = command(tmp_path / "run", "--train.steps", "10")
    subprocess.run(fit_small, check=True, capture_output=True)
    before = weights(tmp_path / "run")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        command(tmp_path / "run", "--resume"), capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("regard: error:") and os.strerror(errno.EFBIG) in last and "Traceback" not in done.stderr
    after = weights(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not list((tmp_path / "run" / "checkpoints").glob(".draft*"))
    finished = subprocess.run(command(tmp_path / "run", "--resume"), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def kill_at_random(tmp_path, kills, steps, rng):
    """Runs to the end through `kills` SIGKILLs at random moments; returns the losses."""
    out = tmp_path / "killed"
    left = kills
    fields = ["--train.steps", str(steps), "--train.save-every", "3", "--train.eval-every", "5"]
    while True:
        resume = ["--resume"] if (out / "recipe.toml").exists() else []
        run = subprocess.Popen(command(out, *fields, *resume), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if left:
            wait_for_progress(out, run)
            time.sleep(rng.uniform(0, 0.4))
            run.send_signal(signal.SIGKILL)
            left -= 1
        _, errors = run.communicate()
        for path in checkpoint.found(out / "checkpoints"):
            readable(path)
        if (out / "model.safetensors").exists():
            load_model(out)
        if not left and run.returncode == 0:
            return losses(out)
        assert run.returncode in (0, -signal.SIGKILL), errors.decode()


def wait_for_progress(out, run):
    """Until the metrics file has changed, so that kills fall into training and not into importing."""
    path, before = out / "metrics.jsonl", time.time()
    while run.poll() is None and not (path.exists() and path.stat().st_mtime > before):
        time.sleep(0.02)


def readable(path):
    from safetensors.torch import load_file

    load_file(path / "model.safetensors")
    assert (path / "state.json").read_text().endswith("}")


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_sigkill_at_any_moment(tmp_path, kills):
    steps = 100 * kills
    got = kill_at_random(tmp_path, kills, steps, random.Random(kills))
    fields = ["--train.steps", str(steps), "--train.save-every", "3", "--train.eval-every", "5"]
    subprocess.run(command(tmp_path / "whole", *fields), check=True, capture_output=True)
    assert got == losses(tmp_path / "whole")


def test_embedded_epochs_are_fresh(small):
    plan = small()
    assert phrases("train", 5, start=plan.data.epoch_size) != phrases("train", 5)
