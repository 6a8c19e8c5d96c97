"""The doctor's shortlist."""

import pytest

from regard.doctor.findings import Finding, as_dict, shortlist


def test_the_strongest_of_each_cause_comes_first():
    weak, strong = Finding("a", "s.", "c", 0.2), Finding("a", "s.", "c", 0.6, step=3)
    other = Finding("b", "t.", "d", 0.4)
    assert shortlist([weak, other, strong]) == [strong, other]
    assert shortlist([]) == []


def test_a_finding_reads_as_one_sentence_and_becomes_json():
    found = Finding("a frozen layer", "blocks.1 got no gradient.", "let it train", 0.9, step=4)
    assert str(found) == "a frozen layer: blocks.1 got no gradient; let it train"
    assert as_dict(found) == dict(
        cause="a frozen layer", sentence="blocks.1 got no gradient.", cure="let it train", weight=0.9, step=4
    )


def test_a_weight_is_a_share():
    with pytest.raises(ValueError, match="weight=2.0"):
        Finding("a", "b", "c", 2.0)
