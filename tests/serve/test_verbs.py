"""POST /v1/VERB for verbs without a route of their own: those of our tasks, and those of a plugin's."""

import base64
import io

import pytest
from PIL import Image

import regard
from regard import registry
from regard.hub import save_model
from regard.models.bert import Bert
from regard.models.vit import ViT
from regard.tasks.base import Option, Task, Verb, register_task
from tests.inside.seeing import vit
from tests.serve.made import CONTEXT, model_of, tokenizer
from tests.serve.running import serving_here

PASSAGE = "a red bird sees the black horse in May"


def scan(task):
    """A verb for any modality: the size of each input, times a factor."""

    def load(cls, path, model):
        self = cls()
        self.model, self.tokenizer = model, tokenizer() if "text" in cls.inputs else None
        return self

    def sizes(self, inputs, *, factor=1, unit="px", words=(), weights=None):
        if "too much" in inputs:
            raise ValueError(f"text {inputs.index('too much') + 1} is too much; say less")
        pairs = zip(inputs, weights or [None] * len(inputs), strict=True)
        size = {"text": len, "image": lambda image: image.size[0] * image.size[1]}[self.inputs[0]]
        return [{"size": size(x) * factor, "unit": unit, "words": list(words), "weight": w} for x, w in pairs]

    task.load, task.sizes = classmethod(load), sizes
    return task


OPTIONS = (
    Option(name="factor", kind=int, default=1, limits=(1, 9), help="Multiplies each size."),
    Option(name="unit", default="px"),
    Option(name="words", kind=tuple),
    Option(name="weights", each=True),
)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """Two families with tasks of their own, registered as a user's file would; both are forgotten afterwards."""
    before = {known: dict(known._entries) for known in (registry.models, registry.tasks)}
    register_task("size-of-texts")(scan(type("TextSizes", (Task,), dict(
        verbs=(Verb(name="sizes", does="measures texts", help="Sizes of texts.", options=OPTIONS, blank=True),)
    ))))  # fmt: skip
    register_task("size-of-images")(scan(type("ImageSizes", (Task,), dict(
        inputs=("image",), verbs=(Verb(name="sizes", does="measures images", options=OPTIONS[:1]),)))))  # fmt: skip
    folder = tmp_path_factory.mktemp("plugin")
    families = {"texts": (Bert, "size-of-texts"), "images": (ViT, "size-of-images")}
    for name, (family, task) in families.items():
        registry.register_model(f"own-{name}")(type(f"Own{name}", (family,), {"task": task}))
    yield folder
    for known, entries in before.items():
        known._entries = entries


@pytest.fixture(scope="module")
def server(plugin, made):
    readers = dict(max_len=CONTEXT, position="learned")
    source = {"texts": model_of("bert", 1, task="none", **readers), "images": vit()}
    for name, model in source.items():
        model.__class__ = registry.models[f"own-{name}"]
        save_model(model, plugin / name)
    with serving_here({name: plugin / name for name in source} | {"qa": made["qa"], "gpt": made["gpt"]}) as thread:
        yield thread


def test_a_verb_of_our_own(server, made):
    qa = regard.load(made["qa"])
    questions, passages = ["which bird", "when"], [PASSAGE, "the cat sat"]
    answer = server.post("/v1/answer", model="qa", input=questions, passages=passages)
    assert answer.status == 200, answer.body
    assert answer.json["object"] == "list" and answer.json["model"] == "qa"
    for index, (row, want) in enumerate(zip(answer.json["data"], qa.answer(questions, passages), strict=True)):
        assert row.pop("score") == pytest.approx(want.score, abs=1e-5)
        assert row == {"index": index, "text": want.text, "start": want.start, "end": want.end}
    (row,) = server.post("/v1/answer", model="qa", input="which bird", passages=PASSAGE).json["data"]
    assert row["index"] == 0


def test_a_plugins_verb(server):
    answer = server.post("/v1/sizes", model="texts", input=["a", "abc"], factor=2, words=["x"], weights=["1", "2"])
    assert answer.json == {"object": "list", "model": "texts", "data": [
        {"index": 0, "size": 2, "unit": "px", "words": ["x"], "weight": "1"},
        {"index": 1, "size": 6, "unit": "px", "words": ["x"], "weight": "2"},
    ]}  # fmt: skip
    texts = ["a" * number for number in range(70)]
    rows = server.post("/v1/sizes", model="texts", input=texts, weights=[str(number) for number in range(70)]).json
    assert [(row["index"], row["size"], row["weight"]) for row in rows["data"]] == [(n, n, str(n)) for n in range(70)]
    file = io.BytesIO()
    Image.new("RGB", (5, 7)).save(file, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    (row,) = server.post("/v1/sizes", model="images", input=uri, factor=3).json["data"]
    assert row["size"] == 3 * 5 * 7


def test_a_plugins_verb_is_described(server):
    does = {row["id"]: (row["does"], row["inputs"]) for row in server.get("/v1/models").json["data"]}
    assert does["texts"] == (["sizes", "look"], ["text"]) and does["images"] == (["sizes", "look"], ["image"])
    description = server.get("/openapi.json").json
    assert {"/v1/sizes", "/v1/answer"} <= set(description["paths"])
    fields = description["components"]["schemas"]["SizesRequest"]["properties"]
    assert fields["model"]["enum"] == ["texts", "images"] and fields["unit"]["default"] == "px"
    factor = fields["factor"]
    assert (factor["type"], factor["minimum"], factor["maximum"], factor["default"]) == ("integer", 1, 9, 1)
    assert factor["description"] == "Multiplies each size."
    assert description["paths"]["/v1/sizes"]["post"]["description"]


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"model": "gpt"}, "model", "model 'gpt' can generate and look, not sizes; ask texts or images"),
        ({"factr": 2}, "factr", "unknown field 'factr'; did you mean 'factor'?"),
        ({"factor": 10}, "factor", "factor should be less than or equal to 9"),
        ({"factor": "2"}, "factor", "factor should be a valid integer"),
        ({"words": "x"}, "words", "words should be a valid list"),
        ({"input": []}, "input", ""),
        ({"input": "1" * 10_000}, "input", "input has 10,000 characters, far more than the context"),
        ({"input": "too much"}, "input", "text 1 is too much; say less"),
        ({"input": ["a"] * 40 + ["too much"]}, "input", "inputs 33 to 41: text 9 is too much; say less"),
        ({"weights": ["1"]}, "weights", "2 of input but 1 of weights; send one for each"),
        ({"model": "images", "input": "a.png"}, "input", "input: no data: URI of an image"),
        ({"model": "images", "input": ["a"] * 33}, "input", "33 images in one request; send at most 32"),
        ({"model": "images", "unit": "cm"}, "unit", "model 'images' takes no unit; leave it out"),
    ],
)
def test_what_is_refused(server, changes, param, message):
    answer = server.post("/v1/sizes", **{"model": "texts", "input": ["a", "b"]} | changes)
    assert answer.status == 400 and message in answer.error["message"], answer.error
    assert answer.error["param"].split(".")[0] == param
    assert "give one for each" in server.post("/v1/answer", model="qa", input="who").error["message"]
