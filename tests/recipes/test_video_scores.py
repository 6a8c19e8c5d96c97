"""Scores of models of clips, beside the same model on one frame. Minutes each.

pytest --slow tests/recipes/test_video_scores.py
"""

import pytest

from regard.eval.scores import evaluate
from regard.recipes import fit


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_motion_is_what_is_learned(tmp_path):
    fit("video", out=tmp_path / "run", quiet=True)
    scored = evaluate(tmp_path / "run", {})
    assert scored.scores["accuracy"] >= 95, scored.scores
    assert scored.baselines["linear on one frame"]["accuracy"] <= 20  # chance is 14.3


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_of_one_frame_nothing_is_learned(tmp_path):
    fit("video", out=tmp_path / "run", quiet=True, **{"data.frames": 1, "train.steps": 200})
    assert evaluate(tmp_path / "run", {}).scores["accuracy"] <= 20
