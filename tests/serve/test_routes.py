"""The routes that OpenAI does not have, several models, and what operators look at."""

import json
import re
import threading

import pytest
import torch

import regard
from regard.inside.capture.alignments import align
from tests.serve.made import CONTEXT, LABELS
from tests.serve.running import serving, serving_here

TEXTS = ["The cat sat on the mat", "größer, schöner", "  ", "a red bird"]
QUANTIZED = ("gpt", "translate", "embed")


# ---- translations -----------------------------------------------------------------------------------------------


def test_models_are_loaded_by_their_first_request(made):
    with serving_here({name: made[name] for name in QUANTIZED}) as server:
        assert server.get("/health").json == {"status": "ok", "models": dict.fromkeys(QUANTIZED, "not loaded")}
        assert [one["loaded"] for one in server.get("/v1/models").json["data"]] == [False] * 3
        assert server.figures()["regard_model_loaded[gpt]"] == 0
        server.post("/v1/embeddings", model="embed", input="a")
        wanted = {"gpt": "not loaded", "translate": "not loaded", "embed": "loaded"}
        assert server.get("/health").json["models"] == wanted
        assert [one["loaded"] for one in server.get("/v1/models").json["data"]] == [False, False, True]
        assert server.figures()["regard_model_loaded[embed]"] == 1


def test_preloaded_and_quantized(made):
    with serving({name: made[name] for name in QUANTIZED}, "--preload", "--quantize", "int8") as server:
        assert set(server.get("/health").json["models"].values()) == {"loaded"}
        text = server.post("/v1/completions", model="gpt", prompt="The cat", max_tokens=9, temperature=0)
        assert (
            text.json["choices"][0]["text"]
            == regard.load(made["gpt"], "int8").generate(["The cat"], max_new_tokens=9)[0]
        )
        found = server.post("/v1/translations", model="translate", input="The cat", alignment=True)
        assert found.status == 200, "also with its attention"


@pytest.mark.parametrize(
    "how", [{}, dict(beams=1), dict(beams=3, n=3), dict(n=2, length_penalty=0.3), dict(max_tokens=4)]
)
def test_translations_are_those_of_python(server, loaded, how):
    names = {"n": "n_best", "max_tokens": "max_new_tokens"}
    wanted = loaded["translate"].translate(TEXTS, **{names.get(name, name): value for name, value in how.items()})
    found = server.post("/v1/translations", model="translate", input=TEXTS, **how).json
    assert [one["index"] for one in found["data"]] == [0, 1, 2, 3]
    for one, want in zip(found["data"], wanted, strict=True):
        assert [t["text"] for t in one["translations"]] == [t.text for t in want]
        assert [t["score"] for t in one["translations"]] == pytest.approx([t.score for t in want], abs=1e-3)
        assert all(t["alignment"] is None for t in one["translations"])
    assert found["data"][2]["translations"][0]["text"] == "", "a blank text has a blank translation"
    read = sum(len(ids) for ids in loaded["translate"].encode([TEXTS[i] for i in (0, 1, 3)], 999))
    usage, written = found["usage"], sum(len(t.ids) for want in wanted for t in want)
    assert usage == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def test_sampled_translations(server):
    how = dict(model="translate", input="The cat", temperature=1.5, seed=3)
    first, again, other = (server.post("/v1/translations", **how | more).json for more in ({}, {}, dict(seed=4)))
    assert first["data"] == again["data"] != other["data"]
    answer = server.post("/v1/translations", **how, n=2)
    assert answer.status == 400 and "sampling gives one translation" in answer.error["message"]


def test_more_texts_than_the_queue_takes(server, loaded):
    texts = [f"the {number}" for number in range(300)]
    found = server.post("/v1/translations", model="translate", input=texts, beams=1, max_tokens=3)
    assert found.status == 200
    wanted = loaded["translate"].translate(texts, beams=1, max_new_tokens=3)
    assert [one["translations"][0]["text"] for one in found.json["data"]] == [want[0].text for want in wanted]


def test_alignments_while_others_are_written(server, loaded):
    """Recording attention changes no other request, and no other request changes the attention."""
    done, others = threading.Event(), []

    def translate():
        while not done.is_set():
            others.append(server.post("/v1/translations", model="translate", input=TEXTS, beams=2).json["data"])

    threads = [threading.Thread(target=translate) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        found = [server.post("/v1/translations", model="translate", input=TEXTS, n=2, beams=2, alignment=True).json
                 for _ in range(4)]  # fmt: skip
    finally:
        done.set()
        for thread in threads:
            thread.join()
    wanted = loaded["translate"].translate(TEXTS, beams=2, n_best=2)
    for answer in found:
        for text, one, want in zip(TEXTS, answer["data"], wanted, strict=True):
            for translation, its in zip(one["translations"], want, strict=True):
                assert translation["text"] == its.text
                if not text.strip():
                    assert translation["alignment"] is None
                    continue
                told = translation["alignment"]
                weights, source, target = align(loaded["translate"], text, its.ids)
                assert (told["source"], told["target"]) == (source, target) and target[-1] == "<eos>"
                rows = torch.tensor(told["weights"])
                torch.testing.assert_close(rows, weights, atol=2e-4, rtol=0)
                torch.testing.assert_close(rows.sum(dim=1), torch.ones(len(rows)), atol=1e-4, rtol=0)
    best = [want[0].text for want in wanted]
    assert others and all([one["translations"][0]["text"] for one in data] == best for data in others)


# ---- classifications, tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [None, ["one", "two", "three", "four"]])
def test_classifications_are_those_of_python(server, loaded, second):
    texts = [*TEXTS[:2], "a dog", TEXTS[3]]
    found = server.post("/v1/classifications", model="classify", input=texts, second=second).json
    wanted = loaded["classify"].classify(texts, second)
    for index, (one, want) in enumerate(zip(found["data"], wanted, strict=True)):
        assert (one["index"], one["object"], one["label"]) == (index, "classification", want[0].label)
        assert [label["label"] for label in one["labels"]] == [label.label for label in want]
        told = [label["probability"] for label in one["labels"]]
        assert told == pytest.approx([label.probability for label in want], abs=1e-5)
        assert sum(told) == pytest.approx(1, abs=1e-5)
        assert told == sorted(told, reverse=True) and one["probability"] == told[0]
        assert {label["label"] for label in one["labels"]} == set(LABELS)
    assert found["usage"]["prompt_tokens"] == sum(map(len, loaded["classify"].frame(texts, second)))


def test_an_empty_text_has_no_label(server):
    answer = server.post("/v1/classifications", model="classify", input=TEXTS)
    assert answer.status == 400 and answer.error["param"] == "input"
    assert answer.error["message"] == "text 3 of 4 is empty, and there is nothing to classify; leave it out"
    assert "the text is empty" in server.post("/v1/classifications", model="classify", input="\n").error["message"]


def test_pairs_of_unequal_number(server):
    answer = server.post("/v1/classifications", model="classify", input=TEXTS[:2], second="one")
    assert answer.status == 400 and answer.error["param"] == "second"
    assert server.post("/v1/classifications", model="classify", input="a", second="b").status == 200
    long = dict(model="classify", input="a", second="1" * 2 * CONTEXT)
    assert server.post("/v1/classifications", **long).error["code"] == "context_length_exceeded"
    assert server.post("/v1/classifications", **long, truncate=True).status == 200


@pytest.mark.parametrize("model", ["gpt", "translate", "embed", "chat"])
def test_tokens(server, loaded, model):
    text = "größer <eos> 日本\n😀 \t"
    found = server.post("/v1/tokenize", model=model, text=text).json["tokens"]
    tokenizer = loaded[model].tokenizer
    ids = tokenizer.encode(text)
    assert [one["id"] for one in found] == ids and [one["piece"] for one in found] == tokenizer.pieces(ids)
    assert server.post("/v1/tokenize", model=model, text="").json == {"tokens": []}


# ---- operations -------------------------------------------------------------------------------------------------


def test_metrics_count(server):
    names = ("regard_prompt_tokens_total[endless]", "regard_generated_tokens_total[endless]",
             "regard_time_to_first_token_seconds_count[endless]", "regard_engine_steps_total[endless]",
             "regard_http_requests_total[POST][/v1/completions][200]")  # fmt: skip
    before = server.figures()
    usages = [
        server.post("/v1/completions", model="endless", prompt=prompt, max_tokens=20, n=n).json["usage"]
        for prompt, n in (("The cat sat", 1), (["a", "the bird"], 2), ("größer", 3))
    ]
    after = server.figures()
    read, written, first, steps, asked = (after[name] - before.get(name, 0) for name in names)
    assert read == sum(one["prompt_tokens"] for one in usages)
    assert written == sum(one["completion_tokens"] for one in usages) == 20 * (1 + 4 + 3)
    assert (first, asked) == (3, 3) and 60 <= steps <= 80
    assert after["regard_tokens_per_second[endless]"] > 0 and after["regard_cache_pages[endless]"] > 0
    for name in ("regard_batch_size", "regard_requests_waiting", "regard_cache_pages_held"):
        assert after[f"{name}[endless]"] == 0


def test_metrics_have_no_names_that_strangers_made_up(server):
    for path in ("/v1/made/up/1", "/made/up/2", "/static/made-up-3"):
        server.get(path)
    server.ask("MADEUP", "/v1/models")
    server.post("/v1/completions", model="made-up-4", prompt="a")
    assert not [name for name in server.figures() if re.search("made.?up", name.lower())]


# ---- the page, the description ----------------------------------------------------------------------------------


def test_the_page_fetches_nothing_from_elsewhere(server):
    """Every file that the page and the description name is served here; no foreign address is in any of them."""
    seen, todo = {}, ["/", "/docs"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        answer = server.get(path)
        assert answer.status == 200, path
        kind = answer.headers["content-type"].partition(";")[0]
        text = seen[path] = answer.body.decode()
        if "swagger" in path:  # someone else's: the policy of the page keeps it from asking others
            continue
        named = re.findall(r"""(?:src|href)="([^"#]+)"|(?:from|import)\s*\(?\s*["']([^"']+)["']""", text)
        if kind != "image/svg+xml":
            foreign = [one for one in re.findall(r"""(?:https?:)?//[\w.-]+\.\w+""", text) if "w3.org" not in one]
            assert not foreign, (path, foreign)
        for found in (one for pair in named for one in pair if one):
            base = path.rpartition("/")[0]
            parts = (base + "/" + found if not found.startswith("/") else found).split("/")
            clean = []
            for part in parts:
                clean = clean[:-1] if part == ".." else clean if part in ("", ".") else [*clean, part]
            todo.append("/" + "/".join(clean))
    kinds = {path.rpartition(".")[2] for path in seen}
    assert {"js", "css", "svg"} <= kinds and "/static/swagger/swagger-ui-bundle.js" in seen and len(seen) > 15


def test_files_have_their_types(server):
    for path, kind in (("/", "text/html"), ("/static/app.js", "text/javascript"), ("/static/style.css", "text/css"),
                       ("/static/favicon.svg", "image/svg+xml"), ("/openapi.json", "application/json"),
                       ("/health", "application/json"), ("/metrics", "text/plain")):  # fmt: skip
        assert server.get(path).headers["content-type"].startswith(kind), path
    answer = server.get("/static/app.js")
    again = server.get("/static/app.js", **{"If-None-Match": answer.headers["etag"]})
    assert again.status == 304 and not again.body


def test_the_description_names_what_is_there(server):
    told = server.get("/openapi.json").json
    assert told["openapi"].startswith("3.1")
    wanted = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/translations", "/v1/classifications",
              "/v1/audio/transcriptions", "/v1/audio/translations",
              "/v1/tokenize", "/v1/images", "/v1/videos", "/v1/answer", "/v1/models", "/v1/models/{model}", "/health",
              "/metrics"}  # fmt: skip
    assert wanted == set(told["paths"])
    assert "422" not in json.dumps(told["paths"])
