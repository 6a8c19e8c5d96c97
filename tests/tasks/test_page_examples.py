"""The inputs that the page offers: from the run's own data, or the defaults of the task; a plugin's, too."""

import base64
import json
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from regard.modalities.image import IMAGE
from regard.registry import tasks
from regard.tasks import Samples
from regard.tasks.base import Example
from regard.tasks.page_examples import EXAMPLES, examples_of, request_of, save_examples
from regard.tasks.text_heads import QuestionAnswerer, TextClassifier
from regard.tokens import Tokenizer


class Reader(TextClassifier):
    """Reads texts of at most 20 characters."""

    def __init__(self):
        pass

    def read(self, *inputs, **options):
        if len(inputs[0]) > 20:
            raise ValueError("too long")


def test_saved_examples_are_the_fields_of_a_request(tmp_path):
    pairs = [Example(inputs=("one", "two")), Example(inputs=("three",), label="a number")]
    save_examples(Reader(), Samples(examples=pairs), tmp_path)
    expected = [{"label": "one", "input": "one", "second": "two"}, {"label": "a number", "input": "three"}]
    assert examples_of(TextClassifier, tmp_path, None) == expected


def test_what_the_model_cannot_read_is_left_out(tmp_path):
    save_examples(Reader(), Samples(rows=[("x" * 21, "no"), ("short", "yes"), ("", "running text")]), tmp_path)
    assert [row["input"] for row in examples_of(TextClassifier, tmp_path, None)] == ["short"]


def test_an_image_survives_the_way_to_the_page_and_back():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    row = request_of(tasks["match"], Example(inputs=(pixels, "a cat", "a dog"), label="a cat"))
    uri = IMAGE.send(pixels)
    assert np.array_equal(np.asarray(IMAGE.receive(uri)), pixels)
    assert Image.open(BytesIO(base64.b64decode(uri.split(",")[1]))).size == (7, 5)
    assert row == {"label": "a cat", "image": uri, "texts": ["a cat", "a dog"]}


def test_every_text_task_has_defaults(tmp_path):
    for name in tasks:
        kind = tasks[name]
        if kind.inputs == ("text",) and name != "fill":  # whose mask token is its tokenizer's
            rows = examples_of(kind, tmp_path, None)
            assert rows and all(row["label"] and row["input"] for row in rows), name
    assert examples_of(QuestionAnswerer, tmp_path, None)[0]["second"]


def test_what_a_short_context_cannot_read_is_not_offered(tmp_path):
    """The page runs the first example when it opens."""
    Tokenizer.train(texts=["a b c d e f"], kind="char", vocab_size=300).save(tmp_path)
    config = SimpleNamespace(max_len=16)
    assert examples_of(TextClassifier, tmp_path, config) == []
    (tmp_path / EXAMPLES).write_text(json.dumps([{"label": n, "input": "a" * n} for n in (13, 12, 30)]))
    assert [row["label"] for row in examples_of(TextClassifier, tmp_path, config)] == [12]
    (tmp_path / EXAMPLES).unlink()
    save_examples(Reader(), Samples(rows=[("x" * 21, "no")]), tmp_path)
    assert not (tmp_path / EXAMPLES).exists()


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"input": "x"}]'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / EXAMPLES).write_text(text)
    with pytest.raises(ValueError, match=r"examples\.json .*remove it"):
        examples_of(TextClassifier, tmp_path, None)
