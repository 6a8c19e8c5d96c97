"""A model that learned to repeat what followed last time: three views name the same head."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "induction.py"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_views_name_the_induction_head(tmp_path):
    """Trains for about a minute of one core."""
    spec = importlib.util.spec_from_file_location("induction_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.train(tmp_path / "run")
    found = script.score(tmp_path / "run")
    looks, _, effects, shares = (layers["decoder.blocks.1.attention"] for layers in found.values())
    head = int(looks.argmax())
    assert looks[head] > 0.8 and int(effects.argmax()) == int(shares.argmax()) == head
    assert effects[head] > 1 and shares[head] > 0.8
    before = found["looks at the letter before"]["decoder.blocks.0.attention"]
    assert int(found["loss rises without it"]["decoder.blocks.0.attention"].argmax()) == int(before.argmax())
