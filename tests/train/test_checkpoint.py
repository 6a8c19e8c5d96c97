"""A checkpoint that a disk has lost or changed is found, and the run goes on from the one before."""

import json
import re
import shutil

import pytest
import torch

from regard.recipes import fit
from regard.train import checkpoint
from regard.train.parallel import Parallel
from tests.train.test_loop import losses, weights


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def trained(small, runs):
    """A run of 30 steps, trained once, with checkpoints of steps 20 and 30; the recipe that goes on with it."""
    plan = small(model__dropout=0.1)
    if not (runs / "whole").exists():
        fit(plan, runs / "whole", quiet=True)
    return plan, runs / "whole"


@pytest.fixture
def copy(trained, tmp_path):
    shutil.copytree(trained[1], tmp_path / "run")
    return tmp_path / "run"


def damage(path, kind):
    if kind == "missing":
        return path.unlink()
    content = bytearray(path.read_bytes())
    if kind == "cut":
        del content[-1]
    elif kind == "empty":
        content.clear()
    else:
        content[len(content) * 2 // 3] ^= 4
    path.write_bytes(content)


def steps(out):
    return [path.name for path in checkpoint.saved(out / "checkpoints")]


@pytest.mark.parametrize("kind", ["flipped", "cut", "empty", "missing"])
@pytest.mark.parametrize("name", [*checkpoint.FILES, checkpoint.MANIFEST])
def test_a_damaged_file_is_found_and_the_checkpoint_before_is_taken(trained, copy, capsys, name, kind):
    plan, whole = trained
    if (name, kind) == (checkpoint.MANIFEST, "missing"):
        pytest.skip("such are those of older versions")
    assert steps(copy)[1:] == ["step-00000020", "step-00000030"]
    damage(copy / "checkpoints" / "step-00000030" / name, kind)
    fit(plan, copy, resume=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "step-00000030" in line]
    assert len(lines) == 1 and lines[0].endswith("put aside as damaged-step-00000030, going on from step 20"), lines
    assert name in lines[0] or checkpoint.MANIFEST in lines[0]
    assert losses(copy) == losses(whole) and steps(copy) == steps(whole)
    ours, theirs = weights(copy), weights(whole)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_every_file_has_its_checksum(copy):
    for path in checkpoint.saved(copy / "checkpoints")[1:]:  # the first is kept for the mean only
        names = {each.name for each in path.iterdir()}
        assert json.loads((path / checkpoint.MANIFEST).read_text()).keys() == names - {checkpoint.MANIFEST}


def test_without_a_sound_checkpoint_there_is_one_line(trained, copy):
    for path in checkpoint.saved(copy / "checkpoints")[1:]:  # the first has no such file any more
        damage(path / checkpoint.OPTIMIZER, "flipped")
    before = steps(copy)
    with pytest.raises(ValueError) as raised:
        fit(trained[0], copy, resume=True, quiet=True)
    text = str(raised.value)
    assert re.match(r"no checkpoint in .*checkpoints is sound; restore one from a copy, or start anew", text)
    assert "\n" not in text and "step-00000030/optimizer.safetensors" in text and steps(copy) == before


def test_runs_of_older_versions_resume(trained, copy, capsys):
    """They have no manifest; what cannot be read is passed over all the same."""
    plan, whole = trained
    for path in checkpoint.saved(copy / "checkpoints"):
        (path / checkpoint.MANIFEST).unlink()
    fit(plan, copy, resume=True)
    assert "at step 30" in capsys.readouterr().err
    damage(copy / "checkpoints" / "step-00000030" / checkpoint.WEIGHTS, "cut")
    fit(plan, copy, resume=True)
    assert "going on from step 20" in capsys.readouterr().err and losses(copy) == losses(whole)


def test_a_mean_is_never_taken_of_a_damaged_checkpoint(trained, copy):
    paths = checkpoint.saved(copy / "checkpoints")
    damage(paths[0] / checkpoint.WEIGHTS, "flipped")
    with pytest.raises(ValueError, match=r"step-00000010/model.safetensors .* delete .*step-00000010, then --resume"):
        checkpoint.average(paths, Parallel(torch.nn.Linear(2, 2)))
