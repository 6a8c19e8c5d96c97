"""/v1/images: the answers for images over HTTP are those of Python for their files."""

import base64

import pytest

import regard
from regard.serve import images
from tests.browser.seen import LABELS, make_seen
from tests.serve.running import serving_here

IMAGE_MODELS = ("vit", "swin", "captioner", "detr", "clip")
TEXTS = ["a cat", "a dog on a mat", "größer"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    models, image = make_seen(tmp_path_factory.mktemp("seen"))
    return {name: models[name] for name in (*IMAGE_MODELS, "pixel", "gpt")}, image


@pytest.fixture(scope="module")
def server(seen):
    with serving_here(seen[0]) as one:
        yield one


@pytest.fixture(scope="module")
def uri(seen):
    return "data:image/png;base64," + base64.b64encode(seen[1].read_bytes()).decode()


def asked(server, **body):
    answer = server.post("/v1/images", **body)
    assert answer.status == 200, answer.body
    assert answer.json["object"] == "list" and answer.json["model"] == body["model"]
    rows = answer.json["data"]
    assert [(row.pop("object"), row.pop("index")) for row in rows] == [("image", i) for i in range(len(rows))]
    return rows


def test_every_task_answers(server, seen, uri):
    paths, image = seen
    loaded = {name: regard.load(paths[name]) for name in IMAGE_MODELS}
    for name in ("vit", "swin"):
        wanted = {one.label: one.probability for one in loaded[name].classify([image])[0]}
        for row in asked(server, model=name, input=[uri, uri]):
            assert set(row) == {"labels"} and set(wanted) == set(LABELS)
            assert {one["label"]: one["probability"] for one in row["labels"]} == pytest.approx(wanted, abs=1e-6)
    best = loaded["captioner"].caption([image])[0][0]
    captions = [{"text": best.text, "score": pytest.approx(best.score, abs=1e-5)}]
    assert asked(server, model="captioner", input=uri) == [{"caption": best.text, "captions": captions}]
    wanted = loaded["detr"].detect([image], threshold=0.0)[0]
    found = asked(server, model="detr", input=uri, threshold=0)[0]["objects"]
    assert len(found) == len(wanted) > 1
    for one, other in zip(found, wanted, strict=True):
        assert one["label"] == other.label and one["probability"] == pytest.approx(other.score, abs=1e-6)
        assert one["box"] == pytest.approx(other.box, abs=0.01)
    assert asked(server, model="detr", input=uri, threshold=1) == [{"objects": []}]
    wanted = {one.label: one.probability for one in loaded["clip"].classify([image], TEXTS)[0]}
    found = asked(server, model="clip", input=uri, labels=TEXTS)[0]["labels"]
    assert {one["label"]: one["probability"] for one in found} == pytest.approx(wanted, abs=1e-6)
    vector = asked(server, model="clip", input=uri)[0]["embedding"]
    assert vector == pytest.approx(loaded["clip"].embed([image])[0].tolist(), abs=1e-6)


def test_the_engine_of_a_captioner_has_the_limits_of_the_server(seen, uri):
    with serving_here({"captioner": seen[0]["captioner"]}, max_batch=5, queue=3, memory=2**20) as server:
        assert asked(server, model="captioner", input=[uri] * 8)
        engine = server.store.models["captioner"].task.engine
        assert (engine.max_batch, engine.queue) == (5, 3) and engine.steps > 0


def test_abilities(server):
    does = {one["id"]: one["does"] for one in server.get("/v1/models").json["data"]}
    assert all(does[name] == ["images", "look"] for name in IMAGE_MODELS) and does["pixel"] == ["look"]
    body = server.get("/openapi.json").json["components"]["schemas"]["ImagesRequest"]
    assert sorted(body["properties"]["model"]["enum"]) == sorted(IMAGE_MODELS)


def test_only_text_models_tokenize(server):
    for name in ("vit", "pixel"):
        answer = server.post("/v1/tokenize", model=name, text="a")
        assert answer.status == 400 and "not tokenize; ask clip or gpt" in answer.error["message"]
    assert server.post("/v1/tokenize", model="clip", text="a cat").json["tokens"]


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"model": "gpt"}, "model", "can generate and look, not images; ask vit or swin or captioner or detr or clip"),
        ({"model": "pixel"}, "model", "can look, not images"),
        ({"input": "image.png"}, "input", "no data: URI of an image"),
        ({"input": "/etc/passwd"}, "input", "no data: URI of an image"),
        ({"input": "data:image/png;base64,????"}, "input", "base64"),
        ({"input": "data:image/png;base64,aGVsbG8="}, "input", "no image in a format that is known"),
        ({"input": []}, "input", ""),
        ({"input": [""] * 33}, "input", ""),
        ({"labels": ["a"]}, "labels", "model 'vit' takes no labels; leave it out"),
        ({"threshold": 0.3}, "threshold", "model 'vit' takes no threshold; leave it out"),
        ({"model": "detr", "threshold": 1.5}, "threshold", ""),
        ({"model": "clip", "labels": ["a", "a"]}, "input", "labels must differ"),
        ({"second": "a"}, "second", ""),
    ],
)
def test_what_is_refused(server, uri, changes, param, message):
    answer = server.post("/v1/images", **{"model": "vit", "input": uri} | changes)
    assert answer.status == 400 and message in answer.error["message"], answer.error
    assert answer.error["param"].split(".")[0] == param


def test_images_beside_each_other(server, uri):
    """Many requests at once get the same answers as one."""
    from concurrent.futures import ThreadPoolExecutor

    alone = asked(server, model="vit", input=uri)
    with ThreadPoolExecutor(6) as many:
        for found in many.map(lambda _: asked(server, model="vit", input=uri), range(12)):
            assert found == alone


def test_the_old_route_still_works_and_says_so_once(server, uri, caplog):
    images.log_deprecation.cache_clear()
    for _ in range(2):
        answer = server.post("/v1/pictures", model="detr", input=uri, threshold=0)
        assert answer.status == 200 and answer.headers["deprecation"].startswith("@")
        assert answer.headers["link"] == '</v1/images>; rel="successor-version"'
        (row,) = answer.json["data"]
        assert row.keys() == {"object", "index", "things"} and row["object"] == "picture"
        assert row["things"] == asked(server, model="detr", input=uri, threshold=0)[0]["objects"]
    lines = [record.message for record in caplog.records if "/v1/pictures" in record.message]
    assert lines == ["/v1/pictures is deprecated; use /v1/images"]
