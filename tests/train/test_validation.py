"""Validation: its metrics, the weights that are kept, and budgets that scale with the run."""

import pytest
from sklearn.metrics import accuracy_score

from regard.recipes import fit, recipe
from regard.runs.fit import with_steps
from regard.tasks import load
from regard.train.checkpoint import Progress
from regard.train.config import TrainConfig
from regard.train.loop import read_metrics
from regard.train.schedule import warmup_steps


def test_a_warm_up_below_one_is_a_share_of_the_run():
    assert TrainConfig(steps=50, warmup=0.1).warmup_steps == 5
    assert TrainConfig(steps=50, warmup=7).warmup_steps == 7
    timed = TrainConfig(minutes=1.0, warmup=0.1)
    assert warmup_steps(timed, 30, 0.05) == pytest.approx(60)  # thirty steps in, half of the warm-up is done


def test_few_batches_are_passed_over_until_the_least_number_of_updates(small):
    class Stream:
        def count(self):
            return 4

    plan = small(train__epochs=3.0)
    assert with_steps(plan, Stream()).train.steps == 12
    assert with_steps(small(train__epochs=3.0, train__min_steps=100), Stream()).train.steps == 100


@pytest.mark.parametrize("select, kept", [("loss", [True, True, False, False]), ("metric", [True, False, True, False])])
def test_the_best_validation_is_chosen_by_loss_or_by_metric(select, kept):
    """A tie of the metric is decided by the loss."""
    state, better = Progress(), []
    for loss, metric in [(1.0, 50.0), (0.8, 40.0), (0.9, 60.0), (0.95, 60.0)]:
        state, best = state.validated(loss, {"accuracy": metric, "other": 0.0}, select)
        better.append(best)
    assert better == kept
    assert state.waited == 2 if select == "loss" else state.waited == 1


def test_the_metric_of_a_validation_is_that_of_the_held_out_examples(tmp_path):
    plan = recipe("vit", {"train.steps": 20, "train.eval_every": 10, "train.save_every": 20})
    fit(plan, tmp_path / "run", quiet=True)
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "valid_loss" in row]
    best = min(rows, key=lambda row: row["valid_loss"])
    images = plan.data.split()[1]
    labels = [row[0].label for row in load(tmp_path / "run").classify_arrays(images.pixels)]
    expected = 100 * accuracy_score([images.names[i] for i in images.labels], labels)
    assert best["accuracy"] == pytest.approx(expected, abs=0.01)
