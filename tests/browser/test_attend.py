"""The page of attention worked out by hand computes in the browser what the core computes."""

import pytest
from playwright.sync_api import expect

from regard.inside.explain.worked_attention import load_example, work_out
from regard.inside.page.worked_attention import attention_page


def weights(page):
    return [float(text) for text in page.locator(".weight").all_inner_texts()]


def test_sliders_and_hidden_words_give_the_numbers_of_the_core(browser, tmp_path):
    example = load_example("cat")
    path = tmp_path / "cat.html"
    path.write_text(attention_page(example, mask="window(3)"), encoding="utf-8")
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(error))
    page.goto(path.as_uri())
    assert weights(page) == pytest.approx(work_out(example, mask="window(3)").weights, abs=1e-4)
    for word in range(2):  # those that the window hides
        page.locator("tbody input").nth(word).check()
    page.get_by_label("query", exact=True).select_option("action")
    assert weights(page) == pytest.approx(work_out(example, "action", mask="window(3)").weights, abs=1e-4)
    page.get_by_label("temperature").fill("0.2")
    page.get_by_label("definite").fill("0.5")
    page.locator("tbody input").nth(0).check()
    page.locator("tbody input").nth(1).check()
    worked = work_out(example, [0.1, 0.9, 0.1, 0.5], temperature=0.2)
    expect(page.locator("tbody tr")).to_have_count(6)
    assert weights(page) == pytest.approx(worked.weights, abs=1e-4)
    expect(page.locator(".output")).to_contain_text(f"animal {worked.output[0]:.4f}")
    assert not problems
    page.close()
