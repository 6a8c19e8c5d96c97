"""The look page for those who hear it, or walk through it by keyboard."""

import pytest
from playwright.sync_api import expect

from tests.browser.test_rests import choose

FOCUSED = """() => {
  const one = document.activeElement;
  if (one === document.body) return null;
  const marked = one.closest(".theme label") ?? one;
  const [style, box] = [getComputedStyle(marked), marked.getBoundingClientRect()];
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [one.outerHTML.slice(0, 120), outlined && box.width > 0 && box.height > 0];
}"""
"""Who has the focus, and whether that is seen."""


@pytest.fixture(scope="module")
def server(looked):
    return looked


def unnamed(page):
    """What can be focused and has no name, as the browser tells those who read a screen aloud."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        can = any(one["name"] == "focusable" and one["value"].get("value") for one in node.get("properties", ()))
        role = node.get("role", {}).get("value")
        if can and role not in ("RootWebArea", "main") and not node.get("name", {}).get("value", "").strip():
            found.append(role)
    return len(nodes), found


@pytest.mark.parametrize("name", ["translate", "answer", "vit", "captioner", "pixel"])
def test_everything_has_a_name_and_the_focus_is_seen(look, name):
    page = look(name)
    page.locator("details.panel").evaluate_all("all => all.forEach(one => { one.open = true; })")
    if page.locator("[data-view]").count():
        choose(page, page.locator("[data-view]").first.get_attribute("data-view"))
    expect(page.locator("[data-panel=probabilities] .bar").first).to_be_visible()
    count, found = unnamed(page)
    assert count > 50 and found == []
    hidden = "canvas => canvas.closest('[aria-hidden=true]') || canvas.getAttribute('aria-label')?.trim()"
    canvases = page.locator("canvas")
    assert canvases.count() > 2
    assert canvases.evaluate_all(f"all => all.filter(one => !({hidden})(one)).length") == 0
    page.locator(".skip").focus()
    walked = []
    for _ in range(60):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at is None:
            break
        walked.append(at)
    assert len(walked) > 12
    assert [where for where, outlined in walked if not outlined] == []
