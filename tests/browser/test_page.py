"""What visitors do on the page, in Chromium, against a real server."""

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import HTML

DONE = re.compile("tokens · first after")
VIEWS = {"writer": "write", "chatter": "chat", "translator": "translate", "judge": "classify", "it's <b>odd": "compare"}


def pick(page, model):
    page.locator("#model").select_option(model)


def setting(page, label, value):
    page.locator(".settings").evaluate("details => { details.open = true; }")
    page.get_by_label(label).fill(str(value))


def status(page):
    return page.locator(".status").first


def write(page, text, **settings):
    """Writes on from a text, and waits for the end."""
    page.get_by_label("Text", exact=True).fill(text)
    for label, value in settings.items():
        setting(page, label.replace("_", " "), value)
    page.get_by_role("button", name="Write on").click()
    expect(status(page)).to_contain_text(DONE)


def test_a_text_is_written_on(visit):
    page = visit()
    expect(page.locator("#model")).to_have_value("writer")
    write(page, "<img src", Most_tokens=60, Temperature=0)
    text = page.locator(".tokens").text_content()
    assert text.startswith("=x onerror=") and len(text) > 60
    assert page.locator(".token").count() == 60
    expect(status(page)).to_contain_text(re.compile(r"^60 tokens · first after \d+\.\d\d s · \d+\.\d tokens/s$"))


def test_what_a_model_writes_is_text(visit):
    page = visit()
    write(page, HTML + "\n", Most_tokens=30, Temperature=0)
    expect(page.locator(".tokens")).to_contain_text(HTML)
    page.get_by_role("button", name="Add to the text").click()
    assert page.get_by_label("Text", exact=True).input_value().count(HTML) >= 2
    pick(page, "judge")  # a label
    page.get_by_label("Text", exact=True).fill("the red cat is here")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".bar .label", has_text=HTML)).to_have_text(HTML)
    pick(page, "it's <b>odd")  # a name
    expect(page).to_have_title("Compare · it's <b>odd · Regard")
    assert page.locator("main img, main b").count() == 0


def test_tokens_come_as_they_are_written_until_stop(visit, server):
    page = visit("#/write?model=endless")
    setting(page, "Most tokens", 90000)
    setting(page, "Temperature", 0)
    page.get_by_label("Text", exact=True).fill("The")
    page.get_by_role("button", name="Write on").click()
    expect(page.locator(".token").nth(40)).to_be_attached()
    expect(page.locator(".token").nth(page.locator(".token").count() + 100)).to_be_attached()
    expect(status(page)).to_have_text("Writing…")
    assert server.metric("regard_batch_size", "endless") == 1
    page.get_by_role("button", name="Stop").click()
    expect(status(page)).to_contain_text("Stopped.")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    kept = page.locator(".tokens").text_content()
    for _ in range(100):
        if server.metric("regard_batch_size", "endless") == 0:
            break
        page.wait_for_timeout(50)
    assert server.metric("regard_batch_size", "endless") == 0
    assert page.locator(".tokens").text_content() == kept
    setting(page, "Most tokens", 5)
    page.get_by_role("button", name="Write on").click()
    expect(status(page)).to_contain_text(re.compile("^5 tokens"))


def test_a_token_shows_what_else_was_probable(visit):
    page = visit()
    write(page, "<img src", Most_tokens=20, Temperature=0)
    token = page.locator(".token").nth(3)
    token.hover()
    bubble = page.locator(".bubble")
    expect(bubble).to_be_visible()
    assert bubble.locator(".bar").count() == 5
    expect(bubble.locator("li.chosen .label")).to_have_text(token.text_content().replace(" ", "·"))
    numbers = [float(text.strip("<% ")) for text in bubble.locator(".number").all_text_contents()]
    assert numbers == sorted(numbers, reverse=True) and 0 < sum(numbers) <= 100.5
    page.get_by_label("Shade by probability").check()
    shades = page.locator(".token").evaluate_all("all => all.map(each => getComputedStyle(each).backgroundColor)")
    assert len(set(shades)) > 3


def test_writing_with_next_tokens(visit):
    page = visit()
    text = page.get_by_label("Text", exact=True)
    text.fill("<img")
    page.locator(".next > summary").click()
    bars = page.get_by_role("list", name="Next tokens").get_by_role("button")
    expect(bars).to_have_count(10)
    expect(bars.first).to_contain_text("·src")
    bars.first.click()
    expect(text).to_have_value("<img src")
    expect(bars.first).to_contain_text("=")
    expect(bars.first).to_be_focused()
    page.keyboard.press("Enter")
    expect(text).to_have_value("<img src=")
    text.press_sequentially("x")  # asked again without a word
    expect(bars.first).to_contain_text("·on")


def test_translation_with_its_alignment(visit):
    page = visit("#/translate?model=translator")
    page.get_by_label("Text, one sentence a line").fill("the red cat\n\nthe blue dog")
    setting(page, "Translations", 2)
    page.keyboard.press("Control+Enter")
    results = page.locator(".result")
    expect(results).to_have_count(2)
    first = results.first
    assert first.locator(".translation").count() == 2
    assert first.get_by_text(re.compile(r"^Score −?\d")).count() == 2
    drawn = first.locator(".alignment").first
    source, target, lines = drawn.locator("li.piece"), drawn.locator("button.piece"), drawn.locator(".lines path")
    assert "".join(source.all_text_contents()).replace("·", " ").startswith("the red cat")
    assert target.last.text_content() == "<eos>"
    assert lines.count() >= target.count()
    shown = (
        "paths => paths.filter(path => getComputedStyle(path).visibility === 'visible').map(path => path.dataset.row)"
    )
    assert set(lines.evaluate_all(shown)) == {str(row) for row in range(target.count())}
    weight = "pieces => pieces.reduce((sum, piece) => sum + Number(piece.style.getPropertyValue('--weight')), 0)"
    target.nth(1).hover()
    assert set(lines.evaluate_all(shown)) == {"1"}
    assert source.evaluate_all(weight) == pytest.approx(1, abs=1e-3)
    page.locator("h1").hover()
    assert len(set(lines.evaluate_all(shown))) == target.count()
    assert source.evaluate_all(weight) == 0
    target.first.focus()
    page.keyboard.press("End")
    assert set(lines.evaluate_all(shown)) == {str(target.count() - 1)}


def test_chat_goes_on_and_starts_over(visit):
    page = visit("#/chat?model=chatter")
    setting(page, "Most tokens", 8)
    setting(page, "Seed", 3)
    for number, message in enumerate(("colour of the red cat", "colour of the blue dog"), 1):
        page.get_by_label("Message", exact=True).fill(message)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".turn.assistant")).to_have_count(number)
        expect(status(page)).to_contain_text(DONE)
    page.reload()
    expect(page.locator(".turn")).to_have_count(4)
    expect(page.locator(".turn.user p").first).to_have_text("colour of the red cat")
    page.get_by_role("button", name="Start over").click()
    expect(page.locator(".turn")).to_have_count(0)


def test_labels_and_likeness_are_drawn(visit):
    page = visit("#/classify?model=judge")
    page.get_by_label("Text", exact=True).fill("the blue dog is here")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result .bar")).to_have_count(4)
    assert page.locator(".result li.chosen .label").text_content() == page.locator(".result .sentence").text_content()
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("Sentences, one a line").fill("the red cat\nthe blue dog\n\nthe red cat")
    page.keyboard.press("Control+Enter")
    cells = page.locator(".likeness tbody td")
    expect(cells).to_have_count(9)
    values = [float(text.replace("−", "-")) for text in cells.all_text_contents()]
    assert values[0] == values[2] == values[4] == values[8] == 1 and values[1] == values[3] != 1


def test_each_model_opens_its_own_view_and_a_reload_keeps_it(visit):
    page = visit()
    for model, view in VIEWS.items():
        pick(page, model)
        expect(page.locator("nav a[aria-current=page]")).to_have_text(view.title())
        assert page.evaluate("location.hash").startswith(f"#/{view}?model=")
    pick(page, "chatter")
    assert page.locator("nav a").all_text_contents() == ["Chat", "Write", "Look inside"]
    page.get_by_role("link", name="Write").click()
    page.get_by_label("Text", exact=True).fill("kept")
    setting(page, "Seed", 7)
    page.get_by_label("Dark").check()
    page.reload()
    expect(page.locator("#model")).to_have_value("chatter")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Write")
    expect(page.get_by_label("Text", exact=True)).to_have_value("kept")
    expect(page.get_by_label("Seed")).to_have_value("7")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_copied_calls_do_what_was_done(visit, language):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    write(page, "<img src='$HOME `x` \"\\\n!é🙂", Most_tokens=20, Temperature=0)
    written = page.locator(".tokens").text_content()
    page.locator(".result .copy > summary").click()
    page.get_by_role("tab", name=language).click()
    page.locator(".result .copy").get_by_role("button", name="Copy").click()
    expect(page.locator(".result .copy [role=status]")).to_have_text("Copied.")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text == page.locator(".result .copy code").text_content()
    command = ["bash", "-c", text] if language == "curl" else [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    if language == "curl":
        events = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: {")]
        assert "".join(event["choices"][0]["text"] for event in events) == written
    else:
        assert done.stdout == written


@pytest.mark.parametrize("model", ["chatter", "translator", "judge", "it's <b>odd"])
def test_every_view_has_calls_that_run(visit, model):
    page = visit()
    pick(page, model)
    page.locator("label.text textarea").fill('the red cat\'s\nthe "blue" dog')
    page.keyboard.press("Control+Enter")
    copy = page.locator(".copy").last
    copy.locator("summary").click()
    outputs = []
    for language, command in (("curl", ["bash", "-c"]), ("Python", [sys.executable, "-c"])):
        copy.get_by_role("tab", name=language).click()
        done = subprocess.run(
            [*command, copy.locator("code").text_content()], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert '"error"' not in outputs[0] and all(outputs)
