"""Parts at work, in a file of one page: what is drawn is what Python computes."""

import pytest
from playwright.sync_api import expect

from regard.inside.page import Page
from tests.inside.loaded import translator

TEXT = "the bank is open"


@pytest.fixture
def looked_into(browser, tmp_path):
    """A page about a text, opened from a file, and the look that it was written from."""
    look = Page(translator(), TEXT)
    look.save(tmp_path / "page.html")
    page, problems = browser.new_page(), []
    page.on("pageerror", lambda error: problems.append(error))
    page.goto((tmp_path / "page.html").as_uri())
    yield page, look
    assert not problems
    page.close()


def test_the_tree_of_a_search_has_every_candidate(looked_into):
    page, look = looked_into
    page.locator("[data-mechanism=beam]").click()
    found = look.view("beam")
    expect(page.locator(".search .candidate")).to_have_count(sum(map(len, found["steps"])))
    for fate in ("kept", "ended", "dropped"):
        count = sum(one["fate"] == fate for step in found["steps"] for one in step)
        expect(page.locator(f".search .candidate.{fate}")).to_have_count(count)
    expect(page.locator(".search line.best")).to_have_count(len(found["hypotheses"][0]["path"]))
    expect(page.locator(".hypotheses li")).to_have_count(len(found["hypotheses"]) + 1)
    expect(page.locator(".hypotheses [data-kind=greedy]")).to_contain_text("(greedy)")


def test_parts_of_blocks_are_a_table_and_neurons_a_list(looked_into):
    page, look = looked_into
    page.locator("[data-mechanism=ffn]").click()
    found = look.view("ffn")
    expect(page.locator("[data-said=mechanism] tbody tr")).to_have_count(
        sum(len(one["parts"]) for one in found["layers"])
    )
    expect(page.locator(".neurons li")).to_have_count(len(found["neurons"]))
    expect(page.locator(".neurons li").first).to_contain_text(f"neuron {found['neurons'][0]['neuron']}")
