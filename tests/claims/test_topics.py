"""The list of the lectures' topics: it is whole, and everything that it names exists."""

import json
from collections import Counter
from pathlib import Path

import pytest

from regard.claims.ledger import ledger, written
from regard.claims.topics import Topic, topic_of, topics
from tests.cli.calling import fails, said

ROOT = Path(__file__).parents[2]
HEADINGS = {"000": 73, "001": 64, "002": 121, "003": 15, "004": 11}
"""Counted in the lectures; a heading that goes over several slides counts once."""


def test_no_heading_was_lost():
    assert Counter(topic.lecture for topic in topics()) == HEADINGS


def test_everything_that_a_topic_names_exists():
    known = {claim.id for claim in ledger()}
    for topic in topics():
        assert set(topic.claims) <= known, topic
        assert all((ROOT / page).is_file() for page in topic.pages), topic


def test_every_claim_of_the_ledger_stands_under_a_topic():
    under = {claim for topic in topics() for claim in topic.claims}
    assert not [claim.id for claim in written() if claim.id not in under]


def test_a_topic_has_an_answer_or_a_reason():
    assert topic_of("002", "t", "002-01 docs/why.md").pages == ("docs/why.md",)
    assert topic_of("002", "t", "no: a title").reason == "a title"
    for given in ({}, {"claims": ("002-01",), "reason": "a title"}):
        with pytest.raises(ValueError, match="topic 't' of lecture 002: give claims and pages, or a reason"):
            Topic(lecture="002", name="t", **given)


def test_the_command(capsys):
    lines = said(capsys, "claims", "--topics", "--lecture", "004")
    assert lines[1].startswith("004  Cross-attention in the decoder: 004-01 004-02 004-03")
    assert lines[-1] == "11 topics; 1 of them without a claim or a page"
    listed = json.loads(said(capsys, "claims", "--topics", "--json")[0])
    assert len(listed) == sum(HEADINGS.values()) and listed[0]["reason"] == "a title"
    assert "no lecture '5'" in fails(capsys, "claims", "--topics", "--lecture", "5")
