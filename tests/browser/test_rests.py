"""What an output rests on, on the page: every view is driven, and what is drawn is what `explain` says."""

import os
import subprocess
import sys
from functools import cache

import pytest
import torch
from playwright.sync_api import expect

from regard.inside.views.explanations import EXPLANATIONS, explain, relative, short
from regard.serve import looks
from tests.browser.conftest import Watched, drawn
from tests.browser.seen import TEXT
from tests.browser.test_look import percent, said, tokens

OTHER = "The horse sat on the mat."
"""It has as many tokens, and leads elsewhere."""


@pytest.fixture(scope="module")
def server(looked):
    return looked


@pytest.fixture(scope="module")
def told(page_of):
    """What Python says of the same tokens: the page translates greedily."""

    page_once = cache(page_of)

    def told(name, view, against=None, **how):
        there = page_once(name)
        other = None if against is None else page_once(name, against).prepared
        return explain(there.prepared, view, against=other, **how)[0]

    return told


def choose(page, view):
    page.locator(f"[data-view={view}]").click()
    if view != "patch":
        expect(said(page, "rests").locator("table, [role=alert]").first).to_be_visible()


def cells(page, number=0):
    """Of a table, row by row: what each cell says, what stands in it, and how deep it is."""
    table = said(page, "rests").locator("table").nth(number)
    return table.evaluate("""table => [...table.tBodies[0].rows].map(row => [...row.cells].slice(1)
      .filter(cell => !cell.classList.contains("none")).map(cell => {
        const depth = Number(cell.style.getPropertyValue("--weight")), label = cell.firstElementChild ?? cell;
        return [label.ariaLabel, cell.textContent, cell.classList.contains("less") ? -depth : depth];
      }))""")


def labels(found):
    return [[cell[0] for cell in row] for row in found]


def texts(found):
    return [[cell[1] for cell in row] for row in found]


def depths(found):
    return torch.tensor([[cell[2] for cell in row] for row in found])


def written(value):
    return short(value).replace("-", "−")


def check_tokens(page, found):
    drawn, weights = cells(page), torch.tensor(found["weights"])
    value = percent if found["view"] == "rollout" else "{:.3f}".format
    assert labels(drawn) == [
        [f"“{output}” depends on {token}: {value(one)}" for token, one in zip(found["tokens"], row, strict=True)]
        for output, row in zip(found["outputs"], found["weights"], strict=True)
    ]
    torch.testing.assert_close(depths(drawn), weights / weights.amax(1, keepdim=True), atol=1e-4, rtol=0)


def check_heads(page, layers):
    drawn = cells(page)
    assert texts(drawn) == [[written(value) for value in one["heads"]] for one in layers]
    values = torch.tensor([one["heads"] for one in layers])
    torch.testing.assert_close(depths(drawn), values / values.abs().max(), atol=1e-4, rtol=0)
    row, head = divmod(int(values.argmax()), values.shape[1])
    expect(said(page, "rests")).to_contain_text(f"head {head} ({written(values[row, head].item())});")


def check_lens(page, found):
    drawn, layers = cells(page), found["layers"][::-1]
    assert texts(drawn) == [[words[0] for words in one["top"]] for one in layers]
    wanted = torch.tensor([[best[0] for best in one["probabilities"]] for one in layers])
    torch.testing.assert_close(depths(drawn), wanted, atol=1e-4, rtol=0)
    assert all(f"itself {percent(layers[0]['right'][i])}" in cell[0] for i, cell in enumerate(drawn[0]))


def check_agreement(page, found):
    expect(said(page, "meaning")).to_have_text(found["meaning"])
    strips = torch.stack([relative(torch.tensor(found["weights"][view])) for view in found["views"]])
    torch.testing.assert_close(depths(cells(page)), strips, atol=1e-4, rtol=0)
    assert texts(cells(page, 1)) == [[f"{rho:.2f}".replace("-", "−") for rho in row] for row in found["correlations"]]


CHECKS = {
    "rollout": check_tokens, "gradient": check_tokens, "lens": check_lens, "agreement": check_agreement,
    "ablation": lambda page, found: check_heads(page, found["layers"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ["gpt", "translate"])
def test_each_view_is_drawn_as_it_was_computed(look, told, visit, name):
    page = look(name)
    assert [one.get_attribute("data-view") for one in page.locator("[data-view]").all()] == list(EXPLANATIONS)
    assert not said(page, "rests").text_content()  # nothing is computed before it is asked for
    for view, check in CHECKS.items():
        choose(page, view)
        expect(page.locator(f"[data-view={view}]")).to_have_attribute("aria-pressed", "true")
        check(page, told(name, view))
    found = told(name, "patch", against=OTHER)
    choose(page, "patch")
    box = page.get_by_label("Another text")
    expect(box).to_be_focused()
    expect(box).to_have_value(TEXT)
    box.fill(OTHER)
    page.keyboard.press("Enter")
    first, other = found["choices"]
    expect(said(page, "rests")).to_contain_text(f"Logit of “{first}” less that of “{other}”")
    check_heads(page, found["layers"])
    for number, stack in enumerate(found["positions"], 1):
        shares = torch.tensor(stack["shares"][::-1])
        torch.testing.assert_close(depths(cells(page, number)), shares.clamp(-1, 1), atol=1e-4, rtol=0)
    box.fill(TEXT)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("there is no difference to trace")
    visit.watched[-1].errors.clear()  # the browser notes the refusal


def test_a_head_that_is_picked_is_enlarged_and_one_output_can_be_asked_about(look, told, page_of):
    page, there = look("translate"), page_of("translate")
    choose(page, "ablation")
    table = said(page, "rests").get_by_role("grid")
    table.locator("button[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    one = table.locator("tbody tr").nth(1).locator("button").nth(1)
    expect(one).to_be_focused()
    expect(said(page, "cell")).to_have_text(one.get_attribute("aria-label"))
    page.keyboard.press("Enter")
    drawn(page, 1, 1)
    assert there.layers[1].kind == "encoder"
    expect(page.get_by_role("tab", name="Encoder")).to_have_attribute("aria-selected", "true")
    expect(page.locator("button.head[aria-pressed=true]")).to_have_attribute("data-key", "head 1 1")
    expect(one).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Output", exact=True).select_option("2")
    expect(said(page, "rests")).to_contain_text(f"The loss is {told('translate', 'ablation', at=2)['loss']:.3f}")
    check_heads(page, told("translate", "ablation", at=2)["layers"])


def test_tokens_that_were_chosen_and_heads_that_are_off_are_those_of_the_view(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    count = tokens(page).count()
    page.get_by_role("button", name="Step", exact=True).click()
    expect(tokens(page)).to_have_count(count + 1)
    page.get_by_role("switch").uncheck()
    expect(page.locator("button.head.off")).to_have_count(1)
    choose(page, "rollout")
    after = page_of("gpt", TEXT, target=[int(there.logits[-1].argmax())], off=[(there.layers[0].name, 0)])
    assert len(after.view("rollout")["tokens"]) == count + 1
    check_tokens(page, after.view("rollout"))


def test_a_picture_is_lit_where_the_label_rests(look, told):
    page = look("vit")
    choose(page, "gradient")
    found = told("vit", "gradient")
    shown = cells(page)
    assert [cell[0] for row in shown for cell in row] == [
        f"“{found['outputs'][0]}” depends on {place // 5},{place % 5}: {one:.3f}"
        for place, one in enumerate(found["weights"][0][1:])
    ]
    lit = page.locator("canvas[data-lit]")
    expect(lit).to_have_attribute("data-drawn", "yes")
    best = max(range(15), key=lambda place: found["weights"][0][1 + place])
    said(page, "rests").locator("tbody td").nth(best).hover()
    expect(said(page, "cell")).to_have_text(shown[best // 5][best % 5][0])
    warm = lit.evaluate("""canvas => Array.from({ length: 15 }, (_, place) => {
      const [x, y] = [place % 5 + 0.5, Math.floor(place / 5) + 0.5].map(one => Math.floor(one * canvas.width / 5));
      const [red, , blue] = canvas.getContext("2d").getImageData(x, y, 1, 1).data;
      return red - blue;
    })""")
    assert warm[best] > sum(warm) / 15
    choose(page, "agreement")
    expect(page.locator("canvas[data-lit][data-drawn]")).to_have_count(4)


def test_words_of_a_caption_light_their_places(look, told, page_of):
    page, there = look("captioner"), page_of("captioner")
    choose(page, "gradient")
    found = there.view("gradient")
    lit = page.locator("canvas[data-lit]")
    expect(lit).to_have_count(len(found["outputs"]))
    assert [one.get_attribute("data-lit") for one in lit.all()] == found["outputs"]
    page.get_by_label("Output", exact=True).select_option("0")
    expect(lit).to_have_count(1)


@pytest.mark.parametrize("name", ["swin", "detr", "clip"])
def test_others_that_see_open_without_an_error(look, told, page_of, name):
    page, there = look(name), page_of(name)
    assert page.locator("button.head").count() > 0
    expect(page.locator("canvas.image[data-drawn]")).to_be_visible()
    whole = ["Rollout", "Gradient", "Heads off"] if name == "detr" else ["Heads off"]  # others have several grids
    assert page.locator("[data-view]").all_text_contents() == whole
    choose(page, "ablation")
    values = told(name, "ablation")["layers"]
    assert texts(cells(page)) == [[written(value) for value in one["heads"]] for one in values]
    assert [one["layer"] for one in values] == [layer.name for layer in there.layers]  # of CLIP, the picture's alone
    if name == "detr":
        choose(page, "rollout")
        expect(page.locator("canvas[data-lit][data-drawn]")).to_have_count(len(told(name, "rollout")["outputs"]))
        expect(page.locator("[data-panel=probabilities] .bar")).to_have_count(3)
        assert tokens(page, len(there.prepared.sequences) - 1).count() == 5
    if name == "clip":
        page.get_by_label("Texts to compare it with").fill("a cat\na red bird")
        page.get_by_role("button", name="Look", exact=True).click()
        expect(page.locator("[data-panel=probabilities] .label")).to_have_count(2)
        page.get_by_role("tab", name="Text").click()
        expect(tokens(page, 1)).to_have_count(len(page_of(name, *there.inputs, "a cat").prepared.sequences[-1].ids))


def test_a_file_has_the_views_that_need_no_other_text(offline, told):
    page, _ = offline("gpt")
    for view, check in CHECKS.items():
        choose(page, view)
        check(page, told("gpt", view))
    expect(page.locator('[data-view="patch"]')).to_have_count(0)
    expect(page.get_by_label("Output", exact=True)).to_be_hidden()
    page, _ = offline("vit")
    choose(page, "rollout")
    expect(page.locator("canvas[data-lit][data-drawn]")).to_have_count(1)


def test_what_the_server_refuses(server, monkeypatch):
    def ask(**fields):
        answer = server.post("/v1/look/view", **{"model": "gpt", "look": seen} | fields)
        return answer.status, answer.error["message"]

    seen = server.post("/v1/look", model="gpt", input=TEXT).json["look"]
    assert server.post("/v1/look/view", model="gpt", look=seen, view="lens").status == 200
    assert ask(view="lens", look="gone")[0] == 404
    assert "a patch compares two texts" in ask(view="patch")[1]
    assert "9 tokens, the other 3" in ask(view="patch", against="a cat")[1]
    assert ask(view="heads")[0] == 400
    assert "no output 99" in ask(view="rollout", at=99)[1]
    assert ask(view="patch", against="cat " * 10_000)[0] == 400
    monkeypatch.setattr(looks, "MOST_COPIES", 5)
    assert ask(view="ablation") == (400, "this view tries the input 6 times, at most 5; give a shorter one")


def test_the_command_serves_the_page(browser, seen):
    """`regard look RUN TEXT`, where there is no window to open."""
    quiet = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "regard.cli", "look", str(seen[0]["gpt"]), TEXT], stderr=subprocess.PIPE, text=True,
        env=os.environ | quiet,
    )  # fmt: skip
    try:
        lines = iter(process.stderr.readline, "")
        address = next(line.split()[1] for line in lines if line.startswith("page "))
        context = browser.new_context()
        one = Watched(context, address)
        one.page.goto(address)
        drawn(one.page)
        assert "".join(tokens(one.page).locator(".word").all_text_contents()).endswith(TEXT.replace(" ", "·"))
        assert one.errors == []
        context.close()
    finally:
        process.terminate()
        assert process.wait(240) == 0
        process.stderr.close()
