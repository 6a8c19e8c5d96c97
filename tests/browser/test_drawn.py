"""What is drawn is what was computed: windows, boxes, strips, a known circuit; and a file says what it has."""

import pytest
import tokenizers
import torch
from playwright.sync_api import expect

from regard.inside.page import Page
from regard.tasks import LanguageModel
from regard.tokens import Tokenizer
from tests.browser.conftest import Watched, drawn
from tests.browser.test_look import colour_rows, said, tokens
from tests.inside.explain.circuit import INDUCTION, PREVIOUS, VOCAB, circuit
from tests.inside.loaded import GENERATION

BOXES = ((255, 255, 255), (76, 201, 240), (122, 229, 130), (242, 140, 200), (255, 224, 102))
"""Of the queries, in their order."""


@pytest.fixture(scope="module")
def server(looked):
    return looked


def at_places(there, number):
    """The window of each place of a layer, and where it stands in it."""
    layer = there.layers[number]
    cuts = there.prepared.grids[layer.name].windows
    count = cuts.grid[0] * cuts.grid[1]
    stands = cuts.split(torch.arange(1.0, count + 1)[None, :, None])[..., 0].long() - 1
    return {int(place): (w, i) for w, row in enumerate(stands) for i, place in enumerate(row) if place >= 0}, stands


@pytest.mark.parametrize("number", [0, 1])  # the second is shifted
def test_lines_stand_where_windows_end(look, page_of, number):
    page, there = look("swin"), page_of("swin")
    page.locator(f'[data-key="head {number} 0"]').click()
    drawn(page, number)
    where, _ = at_places(there, number)
    found, (rows, columns) = (
        there.layers[number].weights(),
        there.prepared.grids[there.layers[number].name].queries.grid,
    )

    def apart(one, other):
        (window, i), (second, j) = where[one], where[other]
        return window != second or float(found[window, 0, i, j]) == 0

    beside = [(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)]
    below = [(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)]
    blue = page.locator("canvas.image").evaluate(
        """(canvas, [beside, below, columns, width]) => {
          const scale = canvas.width / width * 2, pen = canvas.getContext("2d");
          const at = (x, y) => pen.getImageData(Math.round(x), Math.round(y), 1, 1).data[2];
          return [beside.map(([, one]) => at((one % columns) * scale, (Math.floor(one / columns) + 0.4) * scale)),
            below.map(([, one]) => at((one % columns + 0.4) * scale, Math.floor(one / columns) * scale))];
        }""",
        [beside, below, columns, 18],
    )
    # A line is three quarters white; what is dimmed and lit in orange has never so much blue.
    assert [value > 185 for value in blue[0]] == [apart(*pair) for pair in beside]
    assert [value > 185 for value in blue[1]] == [apart(*pair) for pair in below]
    assert any(apart(*pair) for pair in beside) and not all(apart(*pair) for pair in beside)


def test_what_fills_up_a_window_is_nobody(look, page_of):
    page, there = look("swin"), page_of("swin")
    _, stands = at_places(there, 0)
    window = next(w for w, row in enumerate(stands) if (row >= 0).any() and (row < 0).any())
    filled = int((stands[window] < 0).nonzero()[0])
    place = int(stands[window].max())
    picture, rows, columns = page.locator("canvas.image"), 7, 9
    box = picture.bounding_box()
    picture.click(position={
        "x": (place % columns + 0.5) * box["width"] / columns, "y": (place // columns + 0.5) * box["height"] / rows,
    })  # fmt: skip
    name = f"{place // columns},{place % columns} attends most to"
    expect(said(page, "image")).to_contain_text(name)
    matrix = page.locator(".matrix .over")
    side = matrix.bounding_box()["height"] / 16
    for column in (0, filled):
        matrix.click(position={"x": (column + 0.5) * side, "y": (filled + 0.5) * side})
        expect(said(page, "image")).to_contain_text(name)
    own = int((stands[window] == place).nonzero()[0])
    matrix.click(position={"x": (own + 0.5) * side, "y": (own + 0.5) * side})
    expect(said(page, "matrix")).to_contain_text(f"{place // columns},{place % columns} gives")


def test_boxes_are_those_of_the_query_that_is_pointed_at(look, page_of):
    page, there = look("detr"), page_of("detr")
    answer = there.describe()["answer"]
    strip = tokens(page, answer["sequence"])

    def inked():
        """For each query, how many pixels have its colour, and whether each side of its box has one in its middle."""
        return page.locator("canvas.image").evaluate(
            """(canvas, [boxes, colours]) => {
              const pen = canvas.getContext("2d"), { width, height } = canvas, scale = width / 32;
              const { data } = pen.getImageData(0, 0, width, height);
              const is = (x, y, [r, g, b]) => {
                const i = 4 * (Math.round(y) * width + Math.round(x));
                return data[i] === r && data[i + 1] === g && data[i + 2] === b;
              };
              return boxes.map((box, query) => {
                const [left, top, right, bottom] = box.map((side) => side * scale), colour = colours[query];
                let count = 0;
                for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) count += is(x, y, colour);
                const near = [-2, -1, 0, 1], [x, y] = [(left + right) / 2, (top + bottom) / 2];
                return [count, [left, right].every((side) => near.some((step) => is(side + step, y, colour)))
                  && [top, bottom].every((side) => near.some((step) => is(x, side + step, colour)))];
              });
            }""",
            [answer["boxes"], BOXES],
        )

    sure = [score >= 0.5 for score in answer["scores"]]
    assert [count > 0 for count, _ in inked()] == sure
    for query in range(5):
        strip.nth(query).click()
        expect(said(page, "image")).to_contain_text(strip.nth(query).locator(".word").text_content())
        found = inked()
        assert [count > 0 for count, _ in found] == [other == query for other in range(5)]
        assert found[query][1], f"the box of query {query} has a side that is not drawn"


def test_vectors_of_a_text_beside_longer_ones(look, page_of):
    page, there = look("clip"), page_of("clip")
    page.get_by_label("Texts to compare it with").fill("a cat\na red bird sees the black horse")
    page.get_by_role("button", name="Look", exact=True).click()
    alone = page_of("clip", *there.inputs, "a cat")
    names = alone.prepared.sequences[-1].tokens
    expect(tokens(page, len(alone.prepared.sequences) - 1)).to_have_count(len(names))
    page.locator("summary", has_text="What enters").click()
    rows = page.locator("[data-panel=vectors] table").last.locator("tbody tr")
    expect(rows.locator("th")).to_have_text(names)
    sums = alone.model.text.embedding(torch.tensor([alone.prepared.sequences[-1].ids]))[0]
    assert [row.locator(".share").last.text_content() for row in rows.all()] == [f"{one.norm():.2f}" for one in sums]


@pytest.fixture(scope="module")
def repeater():
    """The circuit by hand, with letters as tokens; a text begins with ^."""
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({letter: i for i, letter in enumerate("^abcdefghij")}))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    assert inner.get_vocab_size() == VOCAB
    return LanguageModel(circuit(), Tokenizer(inner), GENERATION | {"bos": None, "eos": None, "forbidden": []})


def test_the_page_shows_the_induction_circuit(browser, repeater, tmp_path):
    text = "^abcdeabcd"
    path = tmp_path / "circuit.html"
    Page(repeater, text).save(path)
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 1000})
    one = Watched(context, path.as_uri())
    page = one.page
    page.goto(one.address)
    drawn(page)
    assert tokens(page).locator(".word").all_text_contents() == list(text)
    for (name, head), wanted in ((PREVIOUS, lambda t: t - 1), (INDUCTION, lambda t: text.index(text[t]) + 1)):
        layer = int(name.split(".")[2])
        page.locator(f'[data-key="head {layer} {head}"]').click()
        drawn(page, layer, head)
        found = colour_rows(page)
        for t in range(6, len(text)):  # the letters that come again
            assert found[t] == wanted(t), (name, t)
    expect(said(page, "ahead")).to_contain_text("It would go on: e")
    assert one.errors == []
    context.close()


def test_a_file_says_what_it_has_and_sends_nothing(offline):
    page, path = offline("gpt")
    note = page.locator("[data-panel=attention] > .panel-body > .note")
    expect(note).to_contain_text("from q and k that this file rounds to 16 bits")
    expect(note).not_to_contain_text("exactly")
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert "form-action 'none'" in policy and "default-src 'none'" in policy


def test_a_kernel_without_weights(look, page_of, offline):
    there = page_of("linformer")
    assert there.view("lens")["view"] == "lens"
    page = look("linformer", heads=False)
    for one in (page, offline("linformer", heads=False)[0]):
        expect(said(one, "opaque")).to_contain_text("The kernel linformer has no weights between tokens to show")
        expect(tokens(one)).to_have_count(len(there.prepared.sequences[-1].ids))
        expect(one.locator("[data-panel=probabilities] .bar")).to_have_count(3)
        assert one.locator("[data-view]").all_text_contents() == ["Lens"]
        one.locator("[data-view=lens]").click()
        expect(said(one, "rests").locator("table")).to_be_visible()
        assert one.locator("[data-panel=attention], [data-panel=numbers]").count() == 0
