"""A model opens with an example that has run; images are chosen by thumbnail, dropped, pasted, or drawn."""

import base64
import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import drawn
from tests.browser.test_manners import PHONE, SMALL
from tests.browser.test_page import DONE, pick, setting, status

BRIGHT = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let sum = 0;
  for (let at = 0; at < data.length; at += 4) sum += data[at] + data[at + 1] + data[at + 2];
  return sum / data.length;
}"""

GIVE = """([zone, uri, kind]) => {
  const bytes = Uint8Array.from(atob(uri.split(",")[1]), (one) => one.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "given.png", { type: "image/png" }));
  const how = { bubbles: true, cancelable: true };
  const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, ...how })
    : new DragEvent("drop", { dataTransfer: data, ...how });
  document.querySelector(zone).dispatchEvent(event);
}"""

NARROW = PHONE | {"viewport": {"width": 390, "height": 844}}
CLIPPED = """all => all.filter((one) => {
  const box = one.getBoundingClientRect();
  const outside = box.width && (box.right > innerWidth + 1 || box.left < -1);
  return outside && !one.closest(".scroll, .heads, .matrix, .lines-box, .words");
}).map((one) => one.outerHTML.slice(0, 80))"""
"""What stands beyond the edges, and not in a box that scrolls by itself."""


@pytest.fixture(scope="module")
def shown(looked):
    """The address of the models to look into."""
    return looked.address


def chips(page):
    return page.get_by_role("group", name="Examples").get_by_role("button")


def sent(page):
    """The bodies of what the page posts, by path, in a list that grows."""
    found = []
    page.on("request", lambda one: one.method == "POST" and found.append((one.url, json.loads(one.post_data))))
    return found


def test_a_writer_opens_with_an_example_that_has_run(visit):
    page = visit(examples=True)
    expect(status(page)).to_contain_text(DONE)
    expect(chips(page)).to_have_count(3)
    text = page.get_by_label("Text", exact=True)
    expect(text).to_have_value("Once upon a time")
    expect(chips(page).first).to_have_attribute("aria-pressed", "true")
    setting(page, "Most tokens", 7)
    chips(page).nth(1).click()
    expect(status(page)).to_contain_text(re.compile("^7 tokens"))
    expect(text).to_have_value("The capital of France is")
    text.fill("mine")
    expect(chips(page).nth(1)).to_have_attribute("aria-pressed", "false")
    page.reload()  # what somebody wrote is neither replaced nor run
    expect(chips(page)).to_have_count(3)
    expect(text).to_have_value("mine")
    expect(page.locator(".result")).to_be_hidden()


def test_every_view_opens_with_its_example_and_another_model_with_its_own(visit):
    page = visit("#/translate?model=translator", examples=True)
    expect(page.locator(".result")).to_have_count(1)
    pick(page, "judge")
    expect(page.locator(".result .bar")).to_have_count(4)
    expect(page.get_by_label("Text", exact=True)).to_have_value(re.compile("wonderful film"))
    pick(page, "it's <b>odd")
    expect(page.locator(".likeness tbody td")).not_to_have_count(0)
    sentences = page.get_by_label("Sentences, one a line").input_value().splitlines()
    assert len(sentences) in (4, 6), "the default ones, or three held-out pairs where the run keeps its own"
    expect(page.locator(".likeness tbody td")).to_have_count(len(sentences) ** 2)
    pick(page, "chatter")
    expect(page.locator(".turn.user p")).to_have_count(1)
    expect(status(page)).to_contain_text(DONE)
    page.get_by_role("link", name="Write").click()
    expect(status(page)).to_contain_text(DONE)
    pick(page, "writer")
    expect(page.get_by_label("Text", exact=True)).to_have_value("Once upon a time")


def test_the_first_own_message_ends_the_example(visit):
    page = visit("#/chat?model=chatter", examples=True)
    setting(page, "Most tokens", 8)
    expect(page.locator(".turn.assistant")).to_have_count(1)
    expect(status(page)).to_contain_text(DONE)
    posted = sent(page)
    for number, message in enumerate(("colour of the red cat", "colour of the blue dog"), 1):
        page.get_by_label("Message", exact=True).fill(message)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".turn.assistant")).to_have_count(number)
        expect(page.locator(".turn.user p").first).to_have_text("colour of the red cat")
        expect(status(page)).to_contain_text(DONE)
    assert [len(body["messages"]) for _, body in posted] == [1, 3]


def test_examples_can_be_kept_from_running(visit):
    page = visit(examples=True)
    expect(status(page)).to_contain_text(DONE)
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Run an example when a model is opened").uncheck()
    page.get_by_role("button", name="Close").click()
    page.evaluate("sessionStorage.clear()")
    page.reload()
    expect(chips(page)).to_have_count(3)
    expect(page.get_by_label("Text", exact=True)).to_have_value("")


def test_beams_and_greedy_are_named(visit):
    page = visit("#/translate?model=translator")
    page.get_by_label("Text, one sentence a line").fill("the red cat")
    page.keyboard.press("Control+Enter")
    result = page.locator(".result")
    expect(result.locator("h3")).to_have_text(["Beam search with 4 beams", "Greedy"])
    best = result.locator(".translation .sentence").text_content()
    greedy = page.request.post(
        f"{visit.watched[0].address}/v1/translations", data={"model": "translator", "input": "the red cat", "beams": 1}
    ).json()
    text = greedy["data"][0]["translations"][0]["text"]
    words = "The same translation" if text == best else text
    expect(result.locator(".greedy")).to_contain_text(words)
    setting(page, "Beams", 1)
    page.keyboard.press("Control+Enter")
    expect(result.locator("h3")).to_have_text(["Greedy"])


def test_thumbnails_of_images_are_looked_at(visit, shown):
    page = visit("#/look?model=vit", address=shown, examples=True)
    drawn(page)
    expect(chips(page)).not_to_have_count(0)
    assert chips(page).locator("img").evaluate_all("all => all.every(one => one.naturalWidth > 0)")
    assert chips(page).locator("img").count() == chips(page).count()
    posted = sent(page)
    chips(page).nth(1).click()
    expect(chips(page).nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".status").first).to_have_text("")
    assert posted[0][1]["image"] == chips(page).nth(1).locator("img").get_attribute("src")


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_file_is_dropped_or_pasted(visit, shown, seen, kind):
    page = visit("#/look?model=captioner", address=shown)
    expect(page.get_by_label("Image", exact=True)).to_be_visible()
    posted = sent(page)
    uri = "data:image/png;base64," + base64.b64encode(seen[1].read_bytes()).decode()
    page.evaluate(GIVE, [".drop", uri, kind])
    drawn(page)
    assert posted[0][1]["image"] == uri


def test_an_image_is_drawn_by_hand_and_by_keyboard(visit, shown):
    page = visit("#/look?model=pixel", address=shown)
    pad = page.locator("[data-key=pad]")
    expect(pad).to_be_visible()
    posted = sent(page)
    empty = pad.evaluate(BRIGHT)
    box = pad.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 120, steps=4)
    page.mouse.up()
    drawn(page)
    hand = pad.evaluate(BRIGHT)
    assert hand > empty  # digits are bright on a dark ground
    assert len(posted[0][1]["image"]) > 200 and posted[0][1]["model"] == "pixel"
    page.get_by_role("button", name="Clear").click()
    assert pad.evaluate(BRIGHT) == empty
    pad.focus()
    before = len(posted)
    for key in ("Space", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert pad.evaluate(BRIGHT) > empty
    with page.expect_request("**/v1/look"):
        page.keyboard.press("Space")
    assert len(posted) > before


def test_the_overlay_has_a_slider(visit, shown):
    page = visit("#/look?model=vit", address=shown, examples=True)
    drawn(page)
    slider, canvas = page.get_by_label("Overlay of attention over the image"), page.locator("canvas.image")
    images = {}
    for percent in ("0", "100"):
        slider.fill(percent)
        expect(page.locator(".image-box .degree")).to_have_text(f"{percent} %")
        for layer, head in ((0, 0), (1, 1)):
            page.locator(f'[data-key="head {layer} {head}"]').click()
            drawn(page, layer, head)
            images[percent, head] = canvas.evaluate("canvas => canvas.toDataURL()")
    assert images["0", 0] == images["0", 1]  # the image alone
    assert len({images["0", 0], images["100", 0], images["100", 1]}) == 3
    page.reload()
    drawn(page)
    expect(slider).to_have_value("100")


@pytest.mark.parametrize("name", ["gpt", "translate", "classify", "vit", "captioner", "detr", "clip", "pixel"])
def test_nothing_of_a_look_is_clipped_on_a_phone(visit, shown, name):
    page = visit(f"#/look?model={name}", address=shown, examples=True, **NARROW)
    drawn(page)
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.locator("main :is(button, input, select, canvas, p, h2, h3)").evaluate_all(CLIPPED) == []
    assert page.locator(".chip, .go, .pad button").evaluate_all(SMALL) == []
    whole = "all => all.every((one) => one.scrollWidth <= one.clientWidth)"
    assert page.locator(".matrix, .lines-box:visible").evaluate_all(
        whole
    )  # no matrix of so few tokens has to be scrolled
