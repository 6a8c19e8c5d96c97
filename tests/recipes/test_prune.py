"""Heads removed from a run: those that matter least, and nothing else changes."""

import json

import pytest
import torch

from regard.eval.prune import Head, head_losses, held_out_loss, least, prune, removable, render
from regard.files import own_tensors
from regard.inside.capture.ablation import without
from regard.tasks import load
from tests.cli.calling import call, fails, rows
from tests.inside.seeing import mvit
from tests.recipes.tiny import shared


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return shared(tmp_path_factory).run("t5")


def chosen(found) -> list[Head]:
    return [(one["layer"], one["head"]) for one in found["removed"]]


@torch.no_grad()
def test_a_pruned_run_is_the_run_with_its_least_heads_switched_off(run, tmp_path):
    out = tmp_path / "pruned"
    found = prune(run, 3, out, {}, quiet=True)
    effects = {(one["layer"], one["head"]): one["loss_rises"] for one in found["effects"]}
    old, new = load(run), load(out)
    loss = held_out_loss(run, {})
    assert len(effects) == found["heads"] == 6 and chosen(found)[0] == least(effects, 1)[0]
    gone = chosen(found)[:1]  # the second is the least where the first is gone already
    assert chosen(found)[1] == least(head_losses(old.model, lambda: loss(old.model), gone), 1)[0]
    assert loss(old.model) == pytest.approx(found["loss_before"], abs=1e-6)
    assert loss(new.model) == pytest.approx(found["loss_after"], abs=1e-6)
    with without(old.model, chosen(found)):
        assert loss(old.model) == pytest.approx(found["loss_after"], abs=1e-5)
    assert json.loads((out / "pruned.json").read_text()) == found
    assert {n: t.shape for n, t in own_tensors(old.model).items()} == {
        n: t.shape for n, t in own_tensors(new.model).items()
    }
    changed = [
        name for name, one in own_tensors(new.model).items() if not torch.equal(one, own_tensors(old.model)[name])
    ]
    assert changed and all(name.endswith(".out.weight") for name in changed)
    assert "3 of 6 heads removed" in render(found)


def test_random_heads_and_the_command_line(run, tmp_path, capsys):
    (first,), (again,), (other,) = (
        rows(capsys, "prune", run, "--heads", 2, "--random", seed, "--out", tmp_path / name, "--quiet")
        for name, seed in (("a", 0), ("b", 0), ("c", 5))
    )  # fmt: skip
    assert chosen(first) == chosen(again) != chosen(other)
    call("eval", tmp_path / "a", "--limit", "3")
    call("translate", tmp_path / "a", "colour: red cat")
    capsys.readouterr()
    assert "is not empty; choose another --out" in fails(capsys, "prune", run, "--heads", 2, "--out", tmp_path / "a")
    for wrong in (0, 6, -1):
        message = fails(capsys, "prune", run, "--heads", wrong, "--out", tmp_path / "d")
        assert f"--heads {wrong}: {run} has 6 heads; remove 1 to 5 of them" in message
    (tmp_path / "a" / "recipe.toml").unlink()
    assert "has no recipe.toml" in fails(capsys, "prune", tmp_path / "a", "--heads", 1, "--out", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_shared_block_counts_once():
    from tests.inside.loaded import encoder, recurrent

    assert removable(encoder(shared=True).model) == [("encoder.blocks.0.attention", head) for head in range(3)]
    with pytest.raises(ValueError, match="LSTM has no attention"):
        removable(recurrent().model)


def test_a_head_that_its_queries_stand_beside_cannot_go_alone():
    """Zeros in the output projection would remove the queries that MViT adds, which no head that is off does."""
    with pytest.raises(ValueError, match="MViT has no heads that can be removed alone"):
        removable(mvit())
    assert len(removable(mvit(residual=False))) == 6


def test_heads_are_listed_by_number():
    removed = [{"layer": "blocks.0", "head": head} for head in (10, 2, 1)]
    assert "1 2 10" in render({"removed": removed, "heads": 12, "loss_before": 1.0, "loss_after": 1.0})
