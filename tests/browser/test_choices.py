"""Another token, another head, another question: what is chosen on the page, and what stays when something fails."""

import pytest
import torch
from playwright.sync_api import expect

from regard.serve import looks
from tests.browser.seen import TEXT
from tests.browser.test_look import percent, said, tokens, weights
from tests.browser.test_rests import OTHER, cells, choose, texts, written

QUESTION, PASSAGE = "Where is the cat?", "The cat sat on the mat, the red cat sat on the horse."


@pytest.fixture(scope="module")
def server(looked):
    return looked


def ids(page, sequence=0):
    return [int(one) for one in tokens(page, sequence).locator("small").all_text_contents()]


def bars(page):
    return page.locator("[data-panel=probabilities] .bar")


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def shows(page, there):
    """These very tokens, and what comes behind the last one."""
    expect(tokens(page)).to_have_count(len(there.prepared.sequences[-1].ids))
    for _ in range(200):  # another token in the same place changes no count to wait for
        if ids(page) == there.prepared.sequences[-1].ids:
            break
        page.wait_for_timeout(50)
    assert ids(page) == there.prepared.sequences[-1].ids
    wanted = there.logits[-1].softmax(-1).topk(10).values.tolist()
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in wanted])


def test_another_token_inside_the_text_cuts_it_there_and_goes_on(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    place = 3
    assert place < len(there.prepared.sequences[-1].ids) - 1
    tokens(page).nth(place).click()
    best = there.logits[place].softmax(-1).topk(10)
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in best.values.tolist()])
    other = next(i for i, id in enumerate(best.indices.tolist()) if id != there.prepared.sequences[-1].ids[place + 1])
    bars(page).nth(other).click()
    chosen = int(best.indices[other])
    after = page_of("gpt", TEXT, target=[chosen], kept=place + 1)
    assert after.prepared.sequences[-1].ids == [*there.prepared.sequences[-1].ids[: place + 1], chosen]
    shows(page, after)
    choose(page, "lens")  # views are of the same tokens
    assert texts(cells(page))[0] == [words[0] for words in after.view("lens")["layers"][-1]["top"]]
    press(page, "Step")
    further = page_of("gpt", TEXT, target=[chosen, after.ahead[0]], kept=place + 1)
    shows(page, further)
    tokens(page).nth(place + 1).click()  # and from what was chosen, too
    best = further.logits[place + 1].softmax(-1).topk(10)
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in best.values.tolist()])
    bars(page).nth(9).click()
    last = int(best.indices[9])
    shows(page, page_of("gpt", TEXT, target=[chosen, last], kept=place + 1))
    press(page, "Back")
    shows(page, after)
    press(page, "Back")
    shows(page, page_of("gpt", TEXT, target=[], kept=place + 1))
    expect(page.get_by_role("button", name="Back", exact=True)).to_be_disabled()
    press(page, "From the start")
    shows(page, there)
    expect(page.get_by_role("button", name="From the start")).to_be_disabled()
    tokens(page).nth(0).click()
    expect(bars(page).first).to_be_enabled()
    with pytest.raises(ValueError, match=f"keep 1 to {len(there.prepared.sequences[-1].ids)}"):
        page_of("gpt", TEXT, kept=99)
    with pytest.raises(ValueError, match="kept is for language models"):
        page_of("translate", TEXT, kept=2)


def test_a_picture_that_is_painted_pixel_by_pixel_goes_another_way(look, page_of, seen):
    page, there = look("pixel"), page_of("pixel")
    found, row = weights(there, 0, 0), 10  # [start], then 4 × 5 pixels: two rows are given

    def strongest(row):
        place = int(found[row, 1:].argmax())
        return f"{place // 5},{place % 5}, {percent(found[row, 1 + place])}"

    expect(said(page, "image")).to_contain_text(f"1,4 attends most to {strongest(row)}")
    bars = page.locator("[data-panel=probabilities] .bar")
    chances = there.logits[row].softmax(-1).topk(4)
    assert (there.logits[:, -1] == -torch.inf).all()  # no colour
    expect(bars.locator(".label")).to_have_text([f"{int(id)}/3" for id in chances.indices])
    expect(bars.locator(".number")).to_have_text([percent(one) for one in chances.values.tolist()])
    before = page.locator("canvas.image").evaluate("canvas => canvas.toDataURL()")
    bars.nth(3).click()
    after = page_of("pixel", *there.inputs, target=[int(chances.indices[3])])
    assert after.prepared.sequences[-1].ids[: row + 2] == [
        *there.prepared.sequences[-1].ids[: row + 1],
        int(chances.indices[3]),
    ]
    assert (
        len(after.prepared.sequences[-1].ids) == 21
        and after.prepared.sequences[-1].ids != there.prepared.sequences[-1].ids
    )
    expect(bars.locator(".number")).to_have_text(
        [percent(one) for one in after.logits[row].softmax(-1).topk(4).values.tolist()]
    )
    expect(page.locator("canvas.image")).to_have_attribute("data-drawn", "yes")
    page.wait_for_function("before => document.querySelector('canvas.image').toDataURL() !== before", arg=before)
    with pytest.raises(ValueError, match="at most 10 colours below 4 follow the upper half"):
        page_of("pixel", *there.inputs, target=[4])


def test_pixels_that_are_given_cannot_be_chosen(look, page_of):
    page, there = look("pixel"), page_of("pixel")
    picture = page.locator("canvas.image")
    box = picture.bounding_box()

    def pick(row, column):
        place = {"x": (column + 0.5) * box["width"] / 5, "y": (row + 0.5) * box["height"] / 4}
        picture.click(position=place)
        expect(said(page, "probabilities")).to_contain_text(f"Behind {row},{column} (token {1 + 5 * row + column}).")

    pick(0, 2)
    expect(said(page, "probabilities")).to_contain_text("another one can be chosen behind 1,4 (token 10), or later")
    assert all(one.is_disabled() for one in bars(page).all())
    wanted = there.logits[3].softmax(-1).topk(4).values.tolist()
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in wanted])
    pick(2, 1)
    expect(said(page, "probabilities")).not_to_contain_text("is fixed")
    best = there.logits[12].topk(4).indices.tolist()
    bars(page).nth(3).click()
    after = page_of("pixel", *there.inputs, target=[*there.prepared.sequences[-1].ids[11:13], best[3]])
    wanted = after.logits[10].softmax(-1).topk(4).values.tolist()
    expect(said(page, "probabilities")).to_contain_text("Behind 1,4")
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in wanted])
    picture.click(position={"x": 2.5 * box["width"] / 5, "y": 2.5 * box["height"] / 4})
    wanted = after.logits[13].softmax(-1).topk(4).values.tolist()
    expect(bars(page).locator(".number")).to_have_text([percent(one) for one in wanted])


def test_an_answer_has_a_beginning_and_an_end(look, page_of):
    page = look("answer", QUESTION)
    page.get_by_label("Second text").fill(PASSAGE)
    press(page, "Look")
    there = page_of("answer", QUESTION, PASSAGE)
    expect(tokens(page)).to_have_count(len(there.prepared.sequences[-1].ids))
    names = there.prepared.sequences[0].tokens
    assert len(set(names)) < len(names)  # some stand there twice
    assert page.locator("[data-panel=probabilities] h3").all_text_contents() == ["Begins at", "Ends at"]
    for number, scores in enumerate(there.logits):
        best = scores.softmax(-1).topk(10)
        group = page.locator("[data-panel=probabilities] .bars").nth(number)
        expect(group.locator(".label")).to_have_text([f"{names[i]} (token {i})" for i in best.indices.tolist()])
        expect(group.locator(".number")).to_have_text([percent(one) for one in best.values.tolist()])


def test_a_look_that_the_server_forgot_is_looked_at_again(look, page_of, visit, server, monkeypatch):
    monkeypatch.setattr(looks, "ROOM", 0)  # the latest pass alone
    page, there = look("translate"), page_of("translate")
    clip = look("clip")

    def forget():
        assert server.post("/v1/look", model="gpt", input="a cat").status == 200

    forget()
    page.get_by_role("tab", name="Encoder").click()  # its weights were not asked for before
    expect(page.locator(".large h3")).to_have_text("Layer 0, head 0")
    page.locator('[data-matrix="base"][data-drawn="0 0"]').wait_for(state="attached")
    forget()
    page.get_by_role("switch").uncheck()
    gone = page_of("translate", TEXT, off=[(there.layers[0].name, 0)])
    expect(said(page, "switch")).to_contain_text(percent(gone.describe()["change"]))
    forget()
    choose(page, "ablation")
    values = gone.view("ablation")["layers"]  # of the look with the head off
    assert texts(cells(page)) == [[written(value) for value in one["heads"]] for one in values]
    forget()
    clip.get_by_label("Texts to compare it with").fill("a cat\na red bird")
    clip.get_by_role("button", name="Look", exact=True).click()  # the picture is sent once more
    expect(clip.locator("[data-panel=probabilities] .label")).to_have_count(2)
    forget()
    clip.get_by_role("switch").uncheck()
    expect(clip.locator("button.head.off")).to_have_count(1)
    expect(clip.locator("[data-panel=probabilities] .label")).to_have_count(2)
    assert page.get_by_role("alert").count() == clip.get_by_role("alert").count() == 0
    for one in visit.watched:
        one.errors.clear()  # the browser notes each refusal


def test_what_failed_has_changed_nothing(look, visit):
    page = look("gpt")
    page.route("**/v1/look", lambda route: route.abort())
    switch = page.get_by_role("switch")
    switch.click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(switch).to_be_checked()
    expect(page.locator("button.head.off")).to_have_count(0)
    page.unroute("**/v1/look")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("button.head.off")).to_have_count(1)
    expect(switch).not_to_be_checked()
    expect(page.get_by_role("alert")).to_have_count(0)
    visit.watched[-1].errors.clear()  # the browser notes what was lost


def test_a_head_that_is_switched_off_leaves_the_question_as_it_was(look, page_of):
    page, there = look("gpt"), page_of("gpt")
    choose(page, "patch")
    page.get_by_label("Another text").fill(OTHER)
    page.get_by_label("Output", exact=True).select_option("4")
    expect(said(page, "rests")).to_contain_text("Logit of")
    before = said(page, "rests").text_content()
    page.get_by_role("switch").uncheck()
    expect(page.locator("button.head.off")).to_have_count(1)
    expect(page.get_by_label("Another text")).to_have_value(OTHER)
    expect(page.get_by_label("Output", exact=True)).to_have_value("4")
    expect(said(page, "rests")).to_contain_text("Logit of")
    assert said(page, "rests").text_content() != before
    choose(page, "ablation")
    gone = page_of("gpt", TEXT, off=[(there.layers[0].name, 0)])
    loss = gone.view("ablation", at=4)["loss"]
    expect(said(page, "rests")).to_contain_text(f"The loss is {loss:.3f}")


def test_passes_are_kept_by_what_they_take(page_of, monkeypatch):
    kept, small, large = looks.Looks(), page_of("gpt", "a"), page_of("gpt", TEXT)
    assert large.nbytes > small.nbytes > 0
    layer, logits = large.layers[0].calls[0], large.logits
    assert large.nbytes == 2 * 4 * sum(layer[name].numel() for name in "qkv") + 4 * logits.numel()
    monkeypatch.setattr(looks, "BESIDES", 0)
    monkeypatch.setattr(looks, "ROOM", large.nbytes + 10 * small.nbytes)
    names = [kept.add(small) for _ in range(12)]
    assert list(kept.pages) == names  # far more than a handful, while they are small
    last = kept.add(large)
    assert list(kept.pages) == [*names[2:], last]
    monkeypatch.setattr(looks, "ROOM", 0)
    assert list(kept.pages)[-1:] == [last] and kept.add(large) in kept.pages
    assert len(kept.pages) == 1  # the latest stays, however large it is
