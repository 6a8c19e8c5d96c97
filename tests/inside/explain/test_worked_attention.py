"""Attention worked out by hand: the lectures' numbers, exact and as rounded there, and what is refused."""

import json
import math

import pytest
import torch

from regard.inside.explain.worked_attention import EXAMPLES, all_weights, load_example, work_out
from regard.inside.explain.worked_figure import draw_worked
from tests.cli.calling import said


def rounded(values, digits):
    return [round(value, digits) for value in values]


def test_cat_exact_and_as_on_the_blackboard():
    example = load_example("cat")
    exact = work_out(example)
    assert rounded(exact.output, 4) == [0.2213, 0.1333, 0.2334, 0.5756]
    assert round(exact.total, 3) == 7.096
    q, k, v = (torch.tensor(rows, dtype=torch.float64) for rows in ([exact.q], example.keys, example.values))
    torch_own = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]
    assert exact.output == pytest.approx(torch_own.tolist(), abs=1e-12)
    by_hand = work_out(example, digits=2)
    for name, printed in example.lecture.items():
        assert rounded(getattr(by_hand, name), 3) == printed, name


def test_scores_of_the_lectures_are_no_weights_yet():
    for name in ("library", "students", "scores"):
        example = load_example(name)
        weights = work_out(example).weights
        assert sum(weights) == pytest.approx(1)
        assert weights == pytest.approx(torch.tensor(example.scores[0], dtype=torch.float64).softmax(0).tolist())
        assert rounded(weights, 2) != example.lecture["weights"]
    sign = load_example("sign")
    assert [f"{w:.3g}" for w in work_out(sign).weights] == ["1.84e-08", "0.991", "1.67e-05", "0.00866"]
    turned = torch.tensor([-score for score in sign.scores[0]]).softmax(0)
    assert turned.tolist() == pytest.approx(sign.lecture["weights"], rel=0.005)


def test_the_table_is_masked_and_normalised_again():
    example, given = load_example("table"), torch.tensor(EXAMPLES["table"]["weights"])
    assert torch.allclose(all_weights(example), given / given.sum(1, keepdim=True), atol=1e-6)
    past = given.tril()
    assert torch.allclose(all_weights(example, mask="causal"), past / past.sum(1, keepdim=True), atol=1e-6)


def test_temperature_goes_from_hard_lookup_to_even():
    example = load_example("cat")
    assert max(work_out(example, temperature=0.01).weights) > 0.999
    assert work_out(example, temperature=1e6).weights == pytest.approx([1 / 6] * 6, abs=1e-6)
    assert work_out(example, "action").weights.index(max(work_out(example, "action").weights)) == 2  # "sat"


def test_words_of_a_file_attend_to_each_other(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('words = ["a", "b", "c"]\nvectors = [[1, 0], [0, 1], [1, 1]]\n')
    example = load_example(str(path))
    assert example.own and work_out(example, "c", mask="causal & window(0)").weights == [0, 0, 1]
    assert work_out(example, [2.0, 0.0]).query == "2, 0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"words": ["a", "b"], "vectors": [[1, 2]]}, "2 words and 1 vectors"),
        ({"words": ["a", "b"], "keys": [[1], [2]], "queries": [[1, 2]]}, "queries have 2 numbers and keys 1"),
        ({"words": ["a", "b"], "scores": [1, 2, 3]}, "2 words and 3 scores"),
        ({"words": ["a", "b"], "vectors": [[1, 2], [1]]}, "row 1 of vectors has 1 numbers"),
        ({"words": ["a"], "vectors": [["x"]]}, "is no list of finite numbers"),
        ({"words": ["a"], "vectors": [[math.nan]]}, "finite numbers"),
        ({"words": ["a"], "vector": [[1]]}, "did you mean 'vectors'"),
        ({"words": ["a"]}, "needs queries and keys"),
        ({"words": []}, "needs words"),
        ({"words": ["a"], "weights": [[0]]}, "must be above 0"),
        ([], "holds no fields"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as error:
        load_example(str(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_wrong_queries_masks_and_names_are_refused():
    example = load_example("cat")
    for query, message in (
        ("bird", "no query 'bird'"),
        ("7", "no query 7"),
        ("1,2", "the keys have 4"),
        ("1,x", "no vector"),
    ):
        with pytest.raises(ValueError, match=message):
            work_out(example, query)
    with pytest.raises(ValueError, match="hides every word"):
        work_out(example, mask="~everything")
    with pytest.raises(ValueError, match="temperature=0"):
        work_out(example, temperature=0.0)
    with pytest.raises(ValueError, match="no example 'cta', and no .toml or .json file of one; did you mean 'cat'"):
        load_example("cta")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_printed_drawn_and_paged(tmp_path, capsys, name):
    page, figure = tmp_path / "x.html", tmp_path / "x.png"
    assert any("weight" in line for line in said(capsys, "attend", name, "--out", page))
    (line,) = said(capsys, "attend", name, "--json", "--mask", "causal")
    result = json.loads(line)
    assert sum(result["weights"]) == pytest.approx(1) and "</html>" in page.read_text()
    example = load_example(name)
    draw_worked(example, work_out(example), figure)
    assert figure.stat().st_size > 5_000
