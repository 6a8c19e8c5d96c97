"""The doctor's page of a run looks like the server's page, in both themes and on a phone."""

import pytest

from regard.inside.page.health import page as history_page
from tests.browser.conftest import Watched
from tests.doctor.test_history import FINDING, WATCH, run_of

LOOKS = """() => {
  const style = getComputedStyle(document.body);
  return [style.backgroundColor, style.color, style.fontFamily, style.fontSize];
}"""


@pytest.fixture
def history(browser, tmp_path):
    """Opens the page of a run with everything on it; at the end nothing may have failed, or been asked for."""
    rows = [{"step": i, "loss": 5 / i} for i in range(1, 60)]
    told = [{"step": 9, "watch": WATCH}, {"step": 41, "finding": FINDING}, {"step": 50, "valid_loss": 1.0}]
    path = tmp_path / "history.html"
    path.write_text(history_page(run_of(tmp_path, *rows, *told)), encoding="utf-8")
    contexts, watched = [], []

    def history(**how):
        contexts.append(browser.new_context(offline=True, **how))
        watched.append(Watched(contexts[-1], path.as_uri()))
        watched[-1].page.goto(path.as_uri())
        return watched[-1].page

    yield history
    for context in contexts:
        context.close()
    assert all(one.errors == [] and set(one.requests) == {one.address} for one in watched)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fonts_and_colours_are_those_of_the_page(history, visit, scheme):
    page = history(color_scheme=scheme)
    assert page.evaluate(LOOKS) == visit(color_scheme=scheme).evaluate(LOOKS)
    before = page.evaluate(LOOKS)[0]
    page.get_by_label("Light" if scheme == "dark" else "Dark").check()
    assert page.evaluate(LOOKS)[0] != before
    page.get_by_label("As the system").check()
    assert page.evaluate(LOOKS)[0] == before


def test_nothing_is_clipped_on_a_phone(history):
    page = history(viewport={"width": 390, "height": 844})
    assert page.locator(".panel svg").count() == 3
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    outside = "all => all.filter((one) => one.getBoundingClientRect().left < 0).map((one) => one.textContent)"
    assert page.locator("svg text").evaluate_all(outside) == []
