"""Mixed requests at once, with clients that leave, models that are evicted, and a server that is stopped meanwhile."""

import os
import statistics

import pytest

from tests.serve.running import check_log
from tests.serve.storm import make_served, storm


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return make_served(tmp_path_factory.mktemp("storm"))


def check(raging, end, requests):
    assert raging.wrong == [] and raging.outcomes.total() == requests
    assert end["held"] == {} and end["code"] == 0
    check_log(end["log"])
    assert end["evictions"] > 0 and sum(end["ends"].values()) > 0


def test_every_answer_of_a_storm_is_the_one_of_a_quiet_server(served):
    raging, end = storm(*served, requests=400, clients=8, seconds=3600)
    check(raging, end, 400)
    kinds = {name.removeprefix("equal: ") for name in raging.outcomes if name.startswith("equal: ")}
    assert len(kinds) >= 5, kinds


@pytest.mark.slow
def test_minutes_of_it(served):
    """REGARD_STORM_SECONDS=3600 makes it an hour, after which the memory has to be level; minutes are its warm-up."""
    seconds = float(os.environ.get("REGARD_STORM_SECONDS", "120"))
    raging, end = storm(*served, requests=10**9, clients=16, seconds=seconds, seed=1)
    check(raging, end, raging.outcomes.total())
    if seconds >= 3600:
        tenth = len(raging.memory) // 10
        early, late = (statistics.median(part) for part in (raging.memory[tenth : 2 * tenth], raging.memory[-tenth:]))
        assert abs(late / early - 1) < 0.05
