"""The loop: what it keeps, how it stops, and that a broken run goes on as if nothing had happened."""

import errno
import inspect
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from regard.hub.checkpoint import load_model
from regard.recipes import fit, recipe
from regard.runs.fit import build_new, prepare
from regard.runs.recipe import Recipe
from regard.train import checkpoint
from regard.train import loop as loop_module
from regard.train.loop import Interrupted, read_metrics
from regard.train.progress import Line
from tests.cli.calling import call
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


@pytest.mark.parametrize("changes", [{}, {"train__optimizer": "adamw"}, {"model": "seq2seq", "model__cell": "lstm"}])
def test_resumes_bit_for_bit(small, tmp_path, monkeypatch, changes):
    """A run that stops after step 17, past its last checkpoint, ends with the very same losses and weights."""
    plan = small(**changes, model__dropout=0.1)
    fit(plan, tmp_path / "whole", quiet=True)
    break_off(plan, tmp_path / "broken", monkeypatch)
    fit(plan, tmp_path / "broken", resume=True, quiet=True)
    same_runs(tmp_path / "whole", tmp_path / "broken")


def test_a_run_from_before_counted_dropout_goes_on_with_the_generators(small, tmp_path, monkeypatch):
    """Its recipe says nothing of `noise`; with counted numbers the losses would be others."""
    plan = small(train__noise="generator", model__dropout=0.1)
    fit(plan, tmp_path / "whole", quiet=True)
    break_off(plan, tmp_path / "broken", monkeypatch)
    stored = tmp_path / "broken" / "recipe.toml"
    lines = stored.read_text().splitlines(keepends=True)
    kept = [line for line in lines if line != 'noise = "generator"\n']
    assert len(kept) == len(lines) - 1
    stored.write_text("".join(kept))
    fit(Recipe.load(stored), tmp_path / "broken", resume=True, quiet=True)
    same_runs(tmp_path / "whole", tmp_path / "broken")
    fit(small(model__dropout=0.1, train__steps=2, train__warmup=1), tmp_path / "counted", quiet=True)
    assert losses(tmp_path / "counted")[1] != losses(tmp_path / "whole")[1]


def break_off(plan, out, monkeypatch):
    """A run that stops after step 17, past its last checkpoint."""
    steps = iter(range(100))

    def dies(batches):
        if inspect.isgenerator(batches) and next(steps) == 17:  # type checks call `next` too
            raise RuntimeError("the power went out")
        return next(batches)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power"):
        patch.setattr(loop_module, "next", dies, raising=False)
        fit(plan, out, quiet=True)
    assert max(losses(out)) == 17


def same_runs(one, two):
    """Two runs have the very same losses and weights."""
    assert losses(one) == losses(two)
    for (name, value), other in zip(weights(one).items(), weights(two).values(), strict=True):
        assert torch.equal(value, other), name


def test_a_run_is_never_overwritten(small, tmp_path):
    fit(small(train__steps=2), tmp_path, quiet=True)
    with pytest.raises(ValueError, match="holds a run already; go on with --resume"):
        fit(small(), tmp_path, quiet=True)


def test_two_processes_do_not_train_in_one_place(small, tmp_path):
    fit(small(train__steps=2), tmp_path, quiet=True)
    holds = "import sys; from regard.files import held\nwith held(sys.argv[1]): print('held', flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", holds, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match="another process trains in .*; wait for its end, or choose another --out"):
        fit(small(train__steps=4), tmp_path, resume=True, quiet=True)
    other.kill()  # whoever dies lets go
    other.communicate()
    assert fit(small(train__steps=4), tmp_path, resume=True, quiet=True).step == 4


def test_ctrl_c_saves_and_says_how_to_go_on(small, tmp_path, monkeypatch):
    state = {"steps": 0}

    def objective(model, batch, **how):
        state["steps"] += "smoothing" in how
        if state["steps"] == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return real_objective(model, batch, **how)

    import regard.recipes.translate as run

    real_objective = run.next_token
    monkeypatch.setattr(run, "next_token", objective)
    with pytest.raises(Interrupted, match="step 7, everything is saved; go on with --resume"):
        fit(small(), tmp_path, quiet=True)
    assert [path.name for path in checkpoint.saved(tmp_path / "checkpoints")] == ["step-00000007"]


def test_divergence_names_step_batch_and_cure(small, tmp_path, monkeypatch):
    import regard.recipes.translate as run

    real = run.next_token
    counter = {"n": 0}

    def poisoned(model, batch, **how):
        counter["n"] += "smoothing" in how  # in training, not in validation
        loss, count = real(model, batch, **how)
        return (loss * float("nan") if counter["n"] == 12 else loss), count

    monkeypatch.setattr(run, "next_token", poisoned)
    with pytest.raises(ValueError, match=r"loss is nan at step 12 \(epoch \d+, batch \d+, examples \d+.*lower"):
        fit(small(), tmp_path, quiet=True)
    assert checkpoint.saved(tmp_path / "checkpoints"), "the checkpoint of step 10 is untouched"


def test_accumulated_batches_equal_one_large_one(small, tmp_path):
    """All pairs in one batch, or in several whose gradients are summed: gradients weigh by tokens, not by batches."""
    pairs = "".join(f"number {'x' * (i % 7 + 1)} {i}\tZahl {'y' * (i % 5 + 1)} {i}\n" for i in range(60))
    (tmp_path / "p.tsv").write_text(pairs)
    same = dict(
        data__pairs=str(tmp_path / "p.tsv"),
        train__steps=1,
        train__average=1,
        train__optimizer="adamw",
        model__dropout=0,
    )
    whole = small(**same, train__batch_tokens=10_000)
    fit(whole, tmp_path / "one", quiet=True)
    one = read_metrics(tmp_path / "one" / "metrics.jsonl")[0]
    for accumulate in range(2, 12):  # as many batches as an epoch has
        out = tmp_path / str(accumulate)
        fit(small(**same, train__batch_tokens=200, train__accumulate=accumulate), out, quiet=True)
        row = read_metrics(out / "metrics.jsonl")[0]
        if row["tokens"] == one["tokens"]:
            assert row["norm"] == pytest.approx(one["norm"], rel=1e-4)
            assert row["loss"] == pytest.approx(one["loss"], rel=1e-5)
            return
    raise AssertionError("no number of batches made an epoch")


def test_average_is_the_mean_of_the_last_checkpoints(small, tmp_path):
    fit(small(train__average=2), tmp_path, quiet=True)
    paths = checkpoint.saved(tmp_path / "checkpoints")
    stored = [load_file(path / "model.safetensors") for path in paths]
    assert len(stored) == 2
    for name, value in load_model(tmp_path).named_parameters():
        torch.testing.assert_close(value.detach(), (stored[0][name] + stored[1][name]) / 2)


def test_best_weights_are_kept_and_patience_stops(small, tmp_path):
    plan = small(
        train__steps=200, train__eval_every=1, train__patience=2, train__lr=1.0, train__schedule="constant",
        train__average=1,
    )  # fmt: skip
    fitted = fit(plan, tmp_path, quiet=True)
    values = {r["step"]: r["valid_loss"] for r in read_metrics(tmp_path / "metrics.jsonl") if "valid_loss" in r}
    best = min(values, key=values.get)
    assert fitted.step == best + 2 < 200
    assert fitted.valid_loss == values[best]
    newest = checkpoint.saved(tmp_path / "checkpoints")[-1]
    kept, last = weights(tmp_path)["target_embedding.weight"], load_file(newest / "model.safetensors")
    assert not torch.equal(kept, last["target_embedding.weight"]), "the published weights are the best, not the last"


def test_a_time_budget_ends_the_run(small, tmp_path):
    fitted = fit(small(train__minutes=0.02, train__steps=10**6), tmp_path, quiet=True)
    assert 1 <= fitted.step < 10**6


def test_seeds_change_the_run(small, tmp_path):
    for seed in (0, 1):
        fit(small(train__seed=seed, train__steps=3), tmp_path / str(seed), quiet=True)
    assert losses(tmp_path / "0") != losses(tmp_path / "1")


@pytest.fixture
def command(pairs):
    """The words of a run in a process of its own."""
    return lambda out, *more: words_of(out, "--data.pairs", str(pairs), *more)


def words_of(out, *more):
    fields = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    return [sys.executable, "-m", "regard.cli", "train", "translate", "--out", str(out), "--json", *fields, *more]


def call_here(command):
    """Run a command's words in this process, which has imported torch already; a failure raises."""
    call(*command[command.index("regard.cli") + 1 :])


def test_full_disk_while_saving_loses_nothing(command, tmp_path):
    """The operating system refuses to let files grow past 30 kB: one line, and what was there stays readable."""
    call_here(command(tmp_path / "run", "--train.steps", "10"))
    before = weights(tmp_path / "run")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        command(tmp_path / "run", "--resume"), capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("regard: error: could not ") and os.strerror(errno.EFBIG) in last
    assert "free some space" in last and "Traceback" not in done.stderr
    after = weights(tmp_path / "run")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not list((tmp_path / "run" / "checkpoints").glob(".draft*"))
    call_here(command(tmp_path / "run", "--resume"))
    assert max(losses(tmp_path / "run")) == SMALL["train.steps"]


def kill_at_random(command, tmp_path, kills, steps, rng):
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
        for path in checkpoint.saved(out / "checkpoints"):
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
    load_file(path / "model.safetensors")
    assert (path / "state.json").read_text().endswith("}")


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_sigkill_at_any_moment(command, tmp_path, kills):
    steps = 100 * kills
    got = kill_at_random(command, tmp_path, kills, steps, random.Random(kills))
    fields = ["--train.steps", str(steps), "--train.save-every", "3", "--train.eval-every", "5"]
    call_here(command(tmp_path / "whole", *fields))
    assert got == losses(tmp_path / "whole")


def test_embedded_epochs_are_fresh(tmp_path):
    plan = recipe("translate", SMALL | {"data.epoch_size": 300})
    stream = prepare(plan.data, plan, tmp_path, False, Line(quiet=True)).stream
    first, second = stream.epoch(0), stream.epoch(1)
    assert len(first) == len(second) == plan.data.epoch_size
    known = {tuple(pair.source) for pair in first}
    assert sum(tuple(pair.source) in known for pair in second) < 0.5 * len(known)


def test_a_failed_resume_changes_nothing(small, tmp_path):
    fit(small(train__steps=2), tmp_path, quiet=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for change in ({"model__dim": 32}, {"train__optimizer": "adamw"}, {"train__seed": 3}, {"data__max_len": 99}):
        with pytest.raises(ValueError, match="was trained with another model, data, optimizer or seed"):
            fit(small(train__steps=4, **change), tmp_path, resume=True, quiet=True)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


def test_minutes_have_several_validations_whatever_the_speed(small, tmp_path, monkeypatch):
    ticks = itertools.count()  # a clock on which everything takes a second
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    fit(small(train__minutes=2.0, train__steps=10**6, train__eval_every=10**6), tmp_path, quiet=True)
    rows = [row for row in read_metrics(tmp_path / "metrics.jsonl") if "valid_loss" in row]
    assert len(rows) == 5 and [row["seconds"] // 24 for row in rows] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("again", "left"), [(0.0, 110), (1.0, 230)])
def test_the_time_left_includes_a_second_training(small, tmp_path, monkeypatch, again, left):
    plan, shown, ticks = small(train__minutes=2.0, train__eval_every=10**6), [], itertools.count()
    job = prepare(plan.data, plan, tmp_path, False, Line(quiet=True))
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: 5.0 * next(ticks)))
    monkeypatch.setattr(Line, "show", lambda self, text: shown.append(text))
    loop_module.fit(
        build_new(job.recipe),
        job.stream,
        job.valid,
        job.objective,
        job.recipe.train,
        tmp_path,
        publish=lambda: None,
        again=again,
    )
    minutes, seconds = map(int, shown[0].split()[-2].split(":"))
    assert 60 * minutes + seconds == pytest.approx(left, abs=1)
