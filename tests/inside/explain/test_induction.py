"""A model that learned to repeat what followed last time: three views name its head."""

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
    looks, before, effects, shares = found.values()
    best, partner = script.ranked(looks)[0], script.ranked(before)[0]
    assert (best[0], partner[0]) == ("decoder.blocks.1.attention", "decoder.blocks.0.attention")
    assert script.ranked(shares)[0] == best and set(script.ranked(effects)[:2]) == {best, partner}
    assert min(looks[best[0]][best[1]], shares[best[0]][best[1]]) > 0.8
    assert min(effects[name][head] for name, head in (best, partner)) > 1
