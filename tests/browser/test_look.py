"""Inside five kinds of models, on the server's page: everything is driven, and what is drawn is what was computed."""

import json
import re

import pytest
import torch
from playwright.sync_api import expect

from regard.inside.draw.document import modules
from regard.inside.page import TEMPERATURES
from tests.browser.conftest import Watched, drawn
from tests.browser.seen import TEXT

KINDS = ("gpt", "translate", "classify", "vit", "captioner")


@pytest.fixture(scope="module")
def server(looked):
    return looked


def said(page, name):
    return page.locator(f'[data-said="{name}"]')


def percent(share):
    return "<0.1 %" if 0 < 100 * share < 0.1 else f"{100 * share:.{0 if share >= 0.9995 else 1}f} %"


def tokens(page, sequence=0):
    return page.locator(f'[data-key^="token {sequence} "]')


def weights(page_there, layer, head):
    """As they were captured."""
    return page_there.layers[layer].weights((head,))[0, 0]


def colour_rows(page):
    """For each row of the drawn matrix, the column whose colour is farthest from the sheet's."""
    return page.locator('[data-matrix="base"]').evaluate("""canvas => {
      const [left, top, cell, T, S] = JSON.parse(canvas.dataset.frame);
      const dense = canvas.width / canvas.clientWidth, pen = canvas.getContext("2d");
      return Array.from({ length: T }, (_, t) => {
        const depth = Array.from({ length: S }, (_, s) => {
          const [x, y] = [left + (s + 0.5) * cell, top + (t + 0.5) * cell].map(one => Math.floor(one * dense));
          const [r, g, b] = pen.getImageData(x, y, 1, 1).data;
          return 765 - r - g - b;
        });
        return depth.indexOf(Math.max(...depth));
      });
    }""")


def is_drawn(page, found):
    """The deepest colour of each row is where its largest weight is, or one that looks the same."""
    columns = torch.tensor(colour_rows(page))
    assert len(columns) == len(found)
    assert (found.gather(1, columns[:, None])[:, 0] >= found.amax(-1) - 0.01).all()


def inked(page, selector):
    """Pixels that are not transparent."""
    return page.locator(selector).evaluate("""canvas => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
      return count;
    }""")


def test_tokens_heads_matrix_and_lines_of_a_gpt(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    told = there.describe()
    (text,) = told["sequences"]
    assert tokens(page).locator(".word").all_text_contents() == text["tokens"]
    assert tokens(page).locator("small").all_text_contents() == [str(id) for id in text["ids"]]
    heads = page.locator("button.head")
    assert heads.count() == 6 and page.get_by_role("tab").count() == 0
    expect(page.locator("button.head canvas[data-drawn]")).to_have_count(6)
    is_drawn(page, weights(there, 0, 0))
    heads.nth(4).click()  # layer 1, head 1
    drawn(page, 1, 1)
    expect(heads.nth(4)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".large h3")).to_have_text("Layer 1, head 1")
    found = weights(there, 1, 1)
    is_drawn(page, found)
    assert inked(page, '[data-lines="over"]') == 0 < inked(page, '[data-lines="base"]')
    tokens(page).nth(3).hover()
    best = int(found[3].argmax())
    expect(said(page, "tokens")).to_contain_text(
        f"{text['tokens'][3]} reads {text['tokens'][best]} {percent(found[3, best])}"
    )
    first = int(found[:, 3].argmax())
    expect(said(page, "tokens")).to_contain_text(f"is read by {text['tokens'][first]} {percent(found[first, 3])}")
    assert inked(page, '[data-lines="over"]') > 100
    expect(page.locator(".tok.current")).to_have_count(1)
    assert tokens(page).nth(best).evaluate("one => one.style.getPropertyValue('--reads')") != ""
    page.mouse.move(2, 2)
    expect(page.locator(".tok.current")).to_have_count(0)
    tokens(page).first.focus()
    page.keyboard.press("ArrowRight")
    expect(tokens(page).nth(1)).to_be_focused()
    expect(page.locator("#announcer")).to_contain_text(f"{text['tokens'][1]} reads")
    heads.nth(4).focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    drawn(page, 0, 1)


def test_the_steps_of_a_head_end_in_its_weights(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    page.locator("summary", has_text="Step by step").click()
    tokens(page).nth(5).click()
    found, told = weights(there, 0, 0)[5], there.layers[0].numbers(0)
    rows = page.locator(".steps tbody tr")
    expect(rows).to_have_count(min(24, len(found)))
    expect(page.locator(".steps strong")).to_have_text(there.describe()["sequences"][0]["tokens"][5])
    read = [float(text) for text in rows.locator(".share").all_text_contents()]
    assert read == pytest.approx(found.tolist(), abs=6e-5)
    products = [float(row.locator("td").nth(1).text_content().replace("−", "-")) for row in rows.all()]
    assert products == pytest.approx((told["k"] @ told["q"][5]).tolist(), abs=6e-4)
    assert rows.nth(len(found) - 1).locator("td").nth(3).text_content() == "−∞"
    mixed = json.loads(said(page, "mixed").text_content().replace("−", "-").replace(", …", ""))
    assert mixed == pytest.approx((found @ told["v"])[:6].tolist(), abs=6e-4)
    page.locator("summary", has_text="How the tokenizer").click()
    slider = page.get_by_label("Merges of the text")
    slider.focus()
    page.keyboard.press("Home")
    assert "".join(page.locator(".symbols span").all_text_contents()) == TEXT.replace(" ", "·")
    page.keyboard.press("End")
    expect(page.locator(".symbols span")).to_have_count(len(found) - len(load_front(there)))
    page.locator("summary", has_text="What enters").click()
    expect(page.locator("[data-panel=vectors] tbody tr")).to_have_count(len(found))
    norm = there.model.embedding(torch.tensor([there.prepared.sequences[-1].ids]))[0, 2].norm()
    assert page.locator("[data-panel=vectors] tbody tr").nth(2).locator(".share").last.text_content() == f"{norm:.2f}"


def load_front(there):
    return there.task.front


def test_chances_move_with_the_temperature_and_generation_goes_another_way(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    bars = page.locator("[data-panel=probabilities] .bar")
    expect(bars).to_have_count(10)
    slider = page.get_by_label("Temperature")
    slider.focus()
    for key, temperature in (("Home", TEMPERATURES[0]), ("End", TEMPERATURES[-1])):
        page.keyboard.press(key)
        wanted = (there.logits[-1] / temperature).softmax(-1).topk(10).values.tolist()
        expect(bars.locator(".number")).to_have_text([percent(one) for one in wanted])
    expect(said(page, "ahead")).to_contain_text("It would go on:")
    count, best = tokens(page).count(), int(there.logits[-1].argmax())
    step = page.get_by_role("button", name="Step", exact=True)
    step.click()
    expect(tokens(page)).to_have_count(count + 1)
    expect(tokens(page).last.locator("small")).to_have_text(str(best))
    expect(step).to_be_focused()
    expect(slider).to_have_value(str(len(TEMPERATURES) - 1))
    after = page_of("gpt", TEXT, target=[best])
    third = int(after.logits[-1].topk(3).indices[2])
    bars.nth(2).click()
    expect(tokens(page)).to_have_count(count + 2)
    expect(tokens(page).last.locator("small")).to_have_text(str(third))
    page.get_by_role("button", name="Back", exact=True).click()
    expect(tokens(page)).to_have_count(count + 1)
    page.get_by_role("button", name="Go on", exact=True).click()
    expect(tokens(page)).not_to_have_count(count + 1)
    assert [int(one) for one in tokens(page).locator("small").all_text_contents()][count + 1] == after.ahead[0]


def test_a_head_is_switched_off_and_the_answer_changes(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    name = there.layers[0].name
    page.get_by_role("switch").uncheck()
    gone = page_of("gpt", TEXT, off=[(name, 0)])
    change = gone.describe()["change"]
    assert change > 0.001
    expect(said(page, "switch")).to_have_text(f"One head is off: {percent(change)} of the answer is another one.")
    expect(page.locator("button.head.off")).to_have_count(1)
    expect(page.locator("[data-panel=probabilities] .label").first).to_contain_text("(was ")
    wanted = gone.logits[-1].softmax(-1).topk(10).values.tolist()
    assert page.locator("[data-panel=probabilities] .number").all_text_contents() == [percent(one) for one in wanted]
    page.get_by_role("button", name="All on").click()
    expect(page.locator("button.head.off")).to_have_count(0)
    page.get_by_role("button", name="Try each head").click()
    effects = there.effects()
    most = max(max(row) for row in effects)
    expect(said(page, "effects")).to_contain_text(percent(most))
    assert effects[0][0] == pytest.approx(change, abs=1e-5)
    expect(page.locator("button.head").first).to_have_attribute("aria-label", re.compile("changes .* of the answer"))


def test_an_encoder_decoder_has_three_tabs_and_is_led_another_way(look, page_of):
    page, there = look("translate"), page_of("translate")
    tabs = page.get_by_role("tab")
    assert tabs.all_text_contents() == ["Encoder", "Decoder", "Cross-attention"]
    expect(tabs.nth(2)).to_have_attribute("aria-selected", "true")
    kinds = [layer.kind for layer in there.layers]
    number = kinds.index("cross")
    is_drawn(page, weights(there, number, 0))
    tabs.nth(2).focus()
    page.keyboard.press("ArrowLeft")
    drawn(page, kinds.index("decoder"))
    is_drawn(page, weights(there, kinds.index("decoder"), 0))
    tabs.nth(0).click()
    drawn(page, 0)
    target = there.prepared.sequences[1].ids
    assert [int(one) for one in tokens(page, 1).locator("small").all_text_contents()] == target
    page.get_by_role("button", name="Try each head").click()
    best = there.best_alignment()
    place = [i for i, kind in enumerate(kinds) if kind == "cross"].index(best["layer"])
    expect(said(page, "effects")).to_contain_text(f"Best alignment: cross layer {place}, head {best['head']}")
    tokens(page, 1).nth(1).click()
    wanted = there.logits[1].softmax(-1).topk(10)
    expect(page.locator("[data-panel=probabilities] .number")).to_have_text(
        [percent(one) for one in wanted.values.tolist()]
    )
    other = int(wanted.indices[1])
    page.locator("[data-panel=probabilities] .bar").nth(1).click()
    expect(tokens(page, 1)).to_have_count(3)
    expect(tokens(page, 1).last.locator("small")).to_have_text(str(other))
    expect(said(page, "ahead")).to_contain_text("It would go on:")


def test_a_translation_is_written_step_by_step(look, page_of):
    page, there = look("translate"), page_of("translate")
    step = page.get_by_role("button", name="Step", exact=True)
    for count in (2, 3):
        step.click()
        expect(tokens(page, 1)).to_have_count(count)
        expect(tokens(page, 1).last.locator("small")).to_have_text(str(there.prepared.sequences[-1].ids[count - 1]))


def test_a_bert_and_a_pair(look, page_of):
    page, there = look("classify"), page_of("classify")
    chances = there.logits[0].softmax(-1)
    bars = page.locator("[data-panel=probabilities] .bar")
    expect(bars.locator(".label")).to_have_text(
        [there.prepared.names([int(i)])[0] for i in chances.argsort(descending=True)]
    )
    expect(bars.locator(".number")).to_have_text(
        [percent(one) for one in chances.sort(descending=True).values.tolist()]
    )
    is_drawn(page, weights(there, 0, 0))
    page.get_by_label("Second text").fill("a red bird")
    page.get_by_role("button", name="Look", exact=True).click()
    expect(tokens(page)).to_have_count(len(page_of("classify", TEXT, "a red bird").prepared.sequences[-1].ids))
    page.get_by_role("switch").uncheck()
    expect(said(page, "switch")).to_contain_text("of the answer is another one")


def test_places_of_a_picture_are_pointed_at(look, page_of):
    page, there = look("vit"), page_of("vit")
    picture = page.locator("canvas.image")
    expect(picture).to_have_attribute("data-drawn", "yes")
    found = weights(there, 0, 0)  # the class token, then 3 × 5 places

    def strongest(row):
        place = int(found[row, 1:].argmax())
        return f"{place // 5},{place % 5}, {percent(found[row, 1 + place])}"

    expect(said(page, "image")).to_contain_text(f"[class] attends most to {strongest(0)}")
    before = picture.evaluate("canvas => canvas.toDataURL()")
    box = picture.bounding_box()
    picture.hover(position={"x": 2.5 * box["width"] / 5, "y": 1.5 * box["height"] / 3})
    expect(said(page, "image")).to_contain_text(f"1,2 attends most to {strongest(1 + 7)}")
    assert picture.evaluate("canvas => canvas.toDataURL()") != before
    picture.focus()
    page.keyboard.press("ArrowRight")
    expect(said(page, "image")).to_contain_text(re.compile(r"^\d,\d attends most"))
    expect(page.locator("button.head canvas[data-drawn]")).to_have_count(4)
    expect(page.locator("[data-panel=probabilities] .bar")).to_have_count(3)
    page.locator("summary", has_text="What enters").click()
    rows = page.locator("[data-panel=vectors] tbody tr")
    expect(rows.locator("th")).to_have_text(
        ["[class]", *(f"{row},{column}" for row in range(3) for column in range(5))]
    )
    model, pixels = there.model, there.prepared.inputs["pixels"]
    patches, sums = model.patches(pixels)[0].flatten(1).mT, model.tokens(pixels)[0]
    places = [sums[0] - model.first[0], *(sums[1:] - patches)]
    for index, parts in enumerate(zip([model.first[0], *patches], places, sums, strict=True)):
        assert rows.nth(index).locator(".share").all_text_contents() == [f"{part.norm():.2f}" for part in parts]
    page.get_by_role("switch").uncheck()
    expect(said(page, "switch")).to_contain_text("of the answer is another one")


def test_a_caption_word_by_word(look, page_of):
    page, there = look("captioner"), page_of("captioner")
    number = [layer.kind for layer in there.layers].index("cross")
    names = there.prepared.sequences[1].tokens
    words = page.locator(".word-view")
    expect(words.locator("span")).to_have_text(names[1:])
    found = weights(there, number, 0)
    words.nth(2).hover()
    place = int(found[2].argmax())
    expect(said(page, "image")).to_contain_text(
        f"{names[2]} attends most to {place // 5},{place % 5}, {percent(found[2, place])}"
    )
    expect(words.nth(2)).to_have_class(re.compile("current"))
    assert len(set(words.locator("canvas").evaluate_all("all => all.map(one => one.toDataURL())"))) > 1
    tokens(page, 1).nth(1).click()
    wanted = [percent(one) for one in there.logits[1].softmax(-1).topk(10).values.tolist()]
    expect(page.locator("[data-panel=probabilities] .number")).to_have_text(wanted)
    page.get_by_role("tab", name="Decoder").click()
    drawn(page, [layer.kind for layer in there.layers].index("decoder"))


def test_mistakes_are_told(look, visit, server):
    page = look("gpt")
    page.get_by_label("Text", exact=True).fill("cat " * 60)
    visit.watched[-1].errors.clear()
    page.get_by_role("button", name="Look", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("the model's context is 64")
    visit.watched[-1].errors.clear()  # the browser notes the refusal


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_follow_the_theme(look, theme):
    page = look("gpt")
    page.get_by_label("Light" if theme == "light" else "Dark").check()
    sheet = page.locator('[data-matrix="base"]').evaluate("""canvas => {
      const [left, top, cell, T, S] = JSON.parse(canvas.dataset.frame), dense = canvas.width / canvas.clientWidth;
      const place = [left + (S - 0.5) * cell, top + 0.5 * cell].map(one => one * dense);
      return [...canvas.getContext("2d").getImageData(...place, 1, 1).data];
    }""")  # what the first token may not see
    assert (sum(sheet[:3]) > 600) == (theme == "light")


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_its_own_shows_the_same(offline, page_of, name):
    (page, _), there = offline(name), page_of(name)
    number = next((i for i, layer in enumerate(there.layers) if layer.kind == "cross"), 0)
    is_drawn(page, weights(there, number, 0))
    expect(page.locator("button.head canvas[data-drawn]").first).to_be_attached()
    page.locator("button.head").nth(1).click()
    drawn(page, number, 1)
    page.locator("summary", has_text="Step by step").click()
    expect(page.locator(".steps tbody tr").first).to_be_visible()
    read = sum(float(text) for text in page.locator(".steps .share").all_text_contents())
    assert read == pytest.approx(1, abs=0.01)
    row = there.describe()["answer"]["row"]
    best = there.logits[row].softmax(-1).max().item()
    expect(page.locator("[data-panel=probabilities] .number").first).to_have_text(percent(best))
    effect = there.effects()[number][1]
    expect(said(page, "switch")).to_have_text(f"Off alone, it changes {percent(effect)} of the answer.")
    assert page.get_by_role("switch").count() == 0


def test_a_file_is_small(offline, page_of):
    text = "The cat sat on the mat and a red bird sees the black horse in May, " * 3
    ids = load_ids(page_of, text)
    there = page_of("wide", ids)
    assert len(there.prepared.sequences[-1].ids) == 64 and len(there.layers) == 6 and there.layers[0].heads == 8
    page, path = offline("wide", ids)
    assert path.stat().st_size <= 3e6
    expect(page.locator("button.head")).to_have_count(48)
    page.locator("summary", has_text="Step by step").click()
    expect(page.locator(".steps tbody tr")).to_have_count(24)


def load_ids(page_of, text):
    """The beginning of a text that has 64 tokens."""
    tokenizer, front = page_of("wide", "a").task.tokenizer, page_of("wide", "a").task.front
    return next(text[:end] for end in range(20, len(text)) if len(front) + len(tokenizer.encode(text[:end])) == 64)


def test_in_a_notebook(browser, page_of):
    context = browser.new_context(offline=True)
    one = Watched(context, "about:blank")
    one.page.set_content(page_of("gpt")._repr_html_())
    frame = one.page.frame_locator("iframe")
    expect(frame.locator("button.head")).to_have_count(6)
    expect(frame.locator("[data-matrix][data-drawn]")).to_be_attached()
    assert one.errors == []
    context.close()


def test_the_file_has_every_module_that_it_needs():
    found = modules()
    names = {name for text in found.values() for name in re.findall(r'from "regard/([^"]+)"', text)}
    assert names | {"offline.js"} == set(found)
    assert not any(re.search(r'(from|import) "\.', text) for text in found.values())
