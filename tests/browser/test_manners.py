"""The page for every visitor: by keyboard alone, on a phone, in the dark, and when things go wrong."""

import itertools
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import KEY
from tests.browser.test_page import DONE, VIEWS, pick, setting, status

SMALL = """all => all.filter((each) => each.offsetParent && each.getBoundingClientRect().height < 40)
    .map((each) => each.outerHTML)"""
PHONE = dict(viewport={"width": 360, "height": 740}, has_touch=True)


def tab_to(page, locator, key="Tab"):
    """Walks with Tab until the focus is there, and shows where it is on the way."""
    for _ in range(40):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement !== document.body"), "the focus left the page"
        if locator.evaluate("element => element === document.activeElement"):
            assert locator.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
            return
    raise AssertionError("40 times Tab do not lead there")


def test_by_keyboard_alone(visit):
    page = visit()
    expect(page.locator("nav a")).to_have_count(2)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    tab_to(page, page.get_by_label("Text", exact=True))
    page.keyboard.type("<img src")
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_contain_text(DONE)
    tokens = page.locator(".tokens")
    tab_to(page, tokens)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token").nth(1)).to_have_class(re.compile("current"))
    expect(page.locator(".bubble")).to_be_visible()
    expect(page.locator("#announcer")).to_contain_text("%")
    tab_to(page, page.locator(".result .copy > summary"))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("tab", name="curl"))
    page.keyboard.press("ArrowRight")
    expect(page.locator(".result .copy code")).to_contain_text("from openai import OpenAI")
    tab_to(page, page.locator(".next > summary"))
    page.keyboard.press("Enter")
    bar = page.get_by_role("list", name="Next tokens").get_by_role("button").first
    expect(bar).to_be_visible()
    tab_to(page, bar)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Text", exact=True)).to_have_value("<img src=")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    tab_to(page, page.locator("#model"), "Shift+Tab")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#model")).to_have_value("endless")
    tab_to(page, page.get_by_label("Text", exact=True))
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    expect(status(page)).to_contain_text("Stopped.")
    tab_to(page, page.get_by_role("link", name="Write"), "Shift+Tab")


def test_nothing_overflows_on_a_phone(visit):
    page = visit(**PHONE)
    for model, view in VIEWS.items():
        pick(page, model)
        expect(page.locator("nav a[aria-current=page]")).to_have_text(view.title())
        page.locator("label.text textarea").fill("the red " + "cat" * 25 + "\nthe blue dog")
        page.keyboard.press("Control+Enter")
        expect(page.locator(".result:visible, .turn.assistant").first).to_be_visible()
        page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
        page.locator("#host").get_by_role("tab", name="Python").last.click()
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), view
        targets = page.locator(
            "button, a:not(.skip), select, summary, label.check, input:not([type=radio], [type=checkbox])"
        )
        assert targets.evaluate_all(SMALL) == [], view


def test_a_tap_shows_a_token(visit):
    page = visit(**PHONE)
    page.get_by_label("Text", exact=True).fill("<img src")
    setting(page, "Temperature", 0)
    page.get_by_role("button", name="Write on").tap()
    expect(status(page)).to_contain_text(DONE)
    page.locator(".token").nth(2).tap()
    expect(page.locator(".bubble .bar")).to_have_count(5)
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def luminance(page, selector, field):
    red, green, blue = page.locator(selector).first.evaluate(
        """(element, field) => {
            const pen = new OffscreenCanvas(1, 1).getContext("2d");
            pen.fillStyle = getComputedStyle(element)[field];
            pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        field,
    )
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_can_be_read(visit, scheme):
    page = visit(color_scheme=scheme)
    paper = luminance(page, "body", "backgroundColor")
    assert paper > 0.9 if scheme == "light" else paper < 0.05
    for selector, ground in (("h1", "body"), ("#facts", "body"), ("nav a", "body"), (".primary", ".primary")):
        pair = sorted((luminance(page, selector, "color"), luminance(page, ground, "backgroundColor")))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, selector  # WCAG 2.2, AA
    other = "Dark" if scheme == "light" else "Light"
    page.get_by_label(other).check()
    assert (luminance(page, "body", "backgroundColor") < 0.05) == (other == "Dark")
    page.get_by_label("As the system").check()
    assert luminance(page, "body", "backgroundColor") == paper


def test_errors_are_told_in_words_and_no_text_is_lost(visit):
    page = visit()
    page.get_by_label("Text", exact=True).fill("my text")
    setting(page, "Temperature", 5)
    page.get_by_role("button", name="Write on").click()
    expect(page.get_by_role("alert")).to_contain_text("temperature")
    expect(page.get_by_label("Text", exact=True)).to_have_value("my text")
    page.get_by_label("Temperature").fill("1")
    page.get_by_role("button", name="Retry").click()
    expect(status(page)).to_contain_text(DONE)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.context.set_offline(True)
    page.get_by_role("button", name="Write on").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    pick(page, "chatter")
    page.get_by_label("Message", exact=True).fill("hello")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    expect(page.get_by_label("Message", exact=True)).to_have_value("hello")
    page.context.set_offline(False)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".turn.assistant")).to_have_count(1)
    # The browser itself notes answers that are no success, and addresses that cannot be reached.
    noted = visit.watched[0].errors
    assert len(noted) >= 3 and all(text.startswith("Failed to load resource") for text in noted)
    noted.clear()


def test_no_models_is_said(visit):
    page = visit()
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": []}))
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("holds no model")
    page.unroute("**/v1/models")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_label("Text", exact=True)).to_be_visible()


def test_waiting_for_a_model_is_said_and_can_be_stopped(visit):
    page = visit()
    expect(page.locator("#facts")).to_contain_text("writes")
    fresh = {"id": "writer", "does": ["generate"], "summary": "writes", "loaded": False, "context": 128, "error": None}
    page.route("**/v1/models", lambda route: route.fulfill(json={"object": "list", "data": [fresh]}))
    held = []
    page.route("**/v1/completions", lambda route: held.append(route))
    page.reload()
    page.get_by_label("Text", exact=True).fill("<img src")
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_contain_text("Loading the model…")
    page.keyboard.press("Escape")
    expect(status(page)).to_have_text("Stopped. No tokens.")
    page.unroute("**/v1/completions")
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_contain_text(DONE)
    assert len(held) == 1


def test_a_server_with_a_key(visit, locked):
    page = visit(address=locked.address)
    expect(page.get_by_role("alert")).to_be_visible()
    key = page.locator("#key")
    expect(key).to_be_focused()
    key.fill(KEY)
    page.keyboard.press("Enter")
    expect(key).to_be_hidden()
    page.get_by_label("Text", exact=True).fill("the red cat")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result .bar")).to_have_count(4)
    code = page.locator(".copy code")
    expect(code).to_contain_text('-H "Authorization: Bearer $REGARD_API_KEY"')
    assert KEY not in page.locator("body").text_content()
    assert KEY not in page.evaluate("JSON.stringify(localStorage)")
    assert [text for text in visit.watched[0].errors if "401" not in text] == []
    visit.watched[0].errors.clear()


SPLIT = """async ({ text, size }) => {
    const { events } = await import("./static/api.js");
    const bytes = new TextEncoder().encode(text);
    const source = new ReadableStream({
        start(sink) {
            for (let at = 0; at < bytes.length; at += size) sink.enqueue(bytes.slice(at, at + size));
            sink.close();
        },
    });
    const found = [];
    try {
        for await (const event of events(source)) found.push(event);
    } catch (error) {
        found.push(error.message);
    }
    return found;
}"""


def test_events_may_be_split_anywhere(visit):
    page = visit()
    lines = [": a comment", "", 'data: {"text": "Grüße 🙂"}', "", 'data:{"text":', 'data: "two lines"}', "", ""]
    events = [{"text": "Grüße 🙂"}, {"text": "two lines"}]
    for size, end in itertools.product([1, 2, 3, 7, 1000], ["\n", "\r\n"]):
        whole, read = end.join(lines), lambda text, size=size: page.evaluate(SPLIT, {"text": text, "size": size})
        assert read(whole + f"data: [DONE]{end}{end}data: no JSON{end}{end}") == events
        assert read(whole + f'data: {{"error": {{"message": "was zu lang"}}}}{end}{end}') == [*events, "was zu lang"]
        assert read(whole) == [*events, "The answer broke off before its end."]


def test_statuses_are_told_once(visit):
    """A reader of the screen hears that writing began and ended, and no token in between."""
    page = visit()
    expect(status(page)).to_be_attached()
    page.evaluate("""() => {
        window.told = [];
        const look = (changes) => window.told.push(...changes.map((change) => change.target.textContent));
        for (const region of document.querySelectorAll("[role=status], [aria-live]"))
            new MutationObserver(look).observe(region, { childList: true });
    }""")
    page.get_by_label("Text", exact=True).fill("<img src")
    page.keyboard.press("Control+Enter")
    expect(status(page)).to_contain_text(DONE)
    assert len(page.evaluate("told")) <= 4
    assert not page.locator(".tokens").evaluate("element => element.closest('[aria-live], [role=status], [role=log]')")
    assert re.match(DONE.pattern.replace("tokens", r"\d+ tokens"), page.evaluate("told.at(-1)"))
