"""Ratios of times do not depend on what else a machine does."""

import time

import torch

from regard.claims.checks.times import ratio_of_times


def test_waiting_is_no_time():
    before = torch.get_num_threads()

    def work():
        return sum(range(100_000))

    def interrupted():
        time.sleep(0.1)  # as if other programs had the processor, for many times the time of the work
        return work()

    assert ratio_of_times(interrupted, work, rounds=5) < 3
    assert torch.get_num_threads() == before
