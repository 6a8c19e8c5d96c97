"""/v1/pictures: what is said of pictures over HTTP is what is said of their files here."""

import base64

import pytest

import regard
from tests.browser.seen import LABELS, make_seen
from tests.serve.running import serving_here

SEE = ("vit", "swin", "captioner", "detr", "clip")
TEXTS = ["a cat", "a dog on a mat", "größer"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    models, picture = make_seen(tmp_path_factory.mktemp("seen"))
    return {name: models[name] for name in (*SEE, "pixel", "gpt")}, picture


@pytest.fixture(scope="module")
def server(seen):
    with serving_here(seen[0]) as one:
        yield one


@pytest.fixture(scope="module")
def uri(seen):
    return "data:image/png;base64," + base64.b64encode(seen[1].read_bytes()).decode()


def asked(server, **body):
    answer = server.post("/v1/pictures", **body)
    assert answer.status == 200, answer.body
    assert answer.json["object"] == "list" and answer.json["model"] == body["model"]
    rows = answer.json["data"]
    assert [(row.pop("object"), row.pop("index")) for row in rows] == [("picture", i) for i in range(len(rows))]
    return rows


def test_every_kind_says_what_it_was_made_for(server, seen, uri):
    paths, picture = seen
    loaded = {name: regard.load(paths[name]) for name in SEE}
    for name in ("vit", "swin"):
        wanted = {one.label: one.probability for one in loaded[name].classify([picture])[0]}
        for row in asked(server, model=name, input=[uri, uri]):
            assert set(row) == {"labels"} and set(wanted) == set(LABELS)
            assert {one["label"]: one["probability"] for one in row["labels"]} == pytest.approx(wanted, abs=1e-6)
    assert asked(server, model="captioner", input=uri) == [
        {"caption": loaded["captioner"].caption([picture])[0][0].text}
    ]
    wanted = loaded["detr"].detect([picture], threshold=0.0)[0]
    found = asked(server, model="detr", input=uri, threshold=0)[0]["things"]
    assert len(found) == len(wanted) > 1
    for one, other in zip(found, wanted, strict=True):
        assert one["label"] == other.label and one["probability"] == pytest.approx(other.score, abs=1e-6)
        assert one["box"] == pytest.approx(other.box, abs=1e-4)
    assert asked(server, model="detr", input=uri, threshold=1) == [{"things": []}]
    wanted = {one.label: one.probability for one in loaded["clip"].classify([picture], TEXTS)[0]}
    found = asked(server, model="clip", input=uri, labels=TEXTS)[0]["labels"]
    assert {one["label"]: one["probability"] for one in found} == pytest.approx(wanted, abs=1e-6)
    vector = asked(server, model="clip", input=uri)[0]["embedding"]
    assert vector == pytest.approx(loaded["clip"].embed([picture])[0].tolist(), abs=1e-6)


def test_what_each_model_does_is_told(server):
    does = {one["id"]: one["does"] for one in server.get("/v1/models").json["data"]}
    assert all(does[name] == ["see", "look"] for name in SEE) and does["pixel"] == ["look"]
    body = server.get("/openapi.json").json["components"]["schemas"]["PicturesRequest"]
    assert sorted(body["properties"]["model"]["enum"]) == sorted(SEE)


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"model": "gpt"}, "model", "it cannot see; ask vit or swin or captioner or detr or clip"),
        ({"model": "pixel"}, "model", "it cannot see"),
        ({"input": "image.png"}, "input", "no data: URI of an image"),
        ({"input": "/etc/passwd"}, "input", "no data: URI of an image"),
        ({"input": "data:image/png;base64,????"}, "input", "base64"),
        ({"input": "data:image/png;base64,aGVsbG8="}, "input", "the picture is no image in a format that is known"),
        ({"input": []}, "input", ""),
        ({"input": [""] * 33}, "input", ""),
        ({"labels": ["a"]}, "labels", "compares nothing with texts"),
        ({"threshold": 0.3}, "threshold", "finds no things"),
        ({"model": "detr", "threshold": 1.5}, "threshold", ""),
        ({"model": "clip", "labels": ["a", "a"]}, "input", "labels must differ"),
        ({"second": "a"}, "second", ""),
    ],
)
def test_what_is_refused(server, uri, changes, param, message):
    answer = server.post("/v1/pictures", **{"model": "vit", "input": uri} | changes)
    assert answer.status == 400 and message in answer.error["message"], answer.error
    assert answer.error["param"].split(".")[0] == param


def test_pictures_beside_each_other(server, uri):
    """One thread reads; what many ask for at once is the same as what one asks for."""
    from concurrent.futures import ThreadPoolExecutor

    alone = asked(server, model="vit", input=uri)
    with ThreadPoolExecutor(6) as many:
        for found in many.map(lambda _: asked(server, model="vit", input=uri), range(12)):
            assert found == alone
