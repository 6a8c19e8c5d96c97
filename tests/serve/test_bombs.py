"""Small requests that would take gigabytes or minutes are refused by what they claim; others are served meanwhile."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest

from regard.data.readers.audio_files import wav_bytes
from regard.modalities import image as image_modality
from regard.registry import modalities
from regard.serve import answers, guard, inputs, model_store, pools
from regard.serve.errors import Refused
from regard.tokens import tokenizer as tokenizer_module
from tests.browser.seen import make_seen
from tests.serve.made import CONTEXT
from tests.serve.running import PATIENCE, eventually, serving_here
from tests.serve.talking import palette_png, refused, still_serves

MEGABYTES = 4_000_000
TEXT_ROUTES = {
    "/v1/completions": ("gpt", "prompt"), "/v1/tokenize": ("gpt", "text"), "/v1/embeddings": ("embed", "input"),
    "/v1/translations": ("translate", "input"), "/v1/classifications": ("classify", "input"),
}  # fmt: skip


def uri_of(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    models, image = make_seen(tmp_path_factory.mktemp("bombs"))
    with serving_here({name: models[name] for name in ("vit", "gpt")}, preload=True) as server:
        yield server, uri_of(image.read_bytes())


@pytest.fixture(scope="module")
def texts(made):
    models = {name: made[name] for name in ("gpt", "embed", "translate", "classify", "chat", "qa")}
    with serving_here(models, preload=True) as server:
        yield server


@pytest.fixture
def encoded(monkeypatch):
    """The texts that were tokenized; one that contains "wait" is held until `go` is set."""
    seen, go, real = [], threading.Event(), tokenizer_module._encode

    def encode(call, texts):
        seen.extend(texts)
        if any("wait" in text for text in texts):
            go.wait(PATIENCE)
        return real(call, texts)

    monkeypatch.setattr(tokenizer_module, "_encode", encode)
    yield seen, go
    go.set()


@pytest.fixture
def decoded(monkeypatch):
    """The threads that read an image, the most of them at once, and an event that they wait for."""
    threads, at_once, go, real = [], [0], threading.Event(), image_modality.read_image

    def read(file, *args):
        if not isinstance(file, BytesIO):  # decoded already
            return real(file, *args)
        threads.append(threading.current_thread().name)
        at_once.append(at_once[-1] + 1)
        go.wait(PATIENCE)
        result = real(file, *args)
        at_once.append(at_once[-1] - 1)
        return result

    monkeypatch.setattr(image_modality, "read_image", read)
    yield threads, at_once, go
    go.set()


# ---- images -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_are_refused_by_their_headers(seen, decoded):
    """Fourteen files of 16 kB that claim 134 million pixels each: none is decoded."""
    server, _ = seen
    bomb = palette_png(11_585)
    assert len(bomb) < 17_000
    message = refused(server.post("/v1/images", model="vit", input=[uri_of(bomb)] * 14))
    assert f"{14 * 11_585**2:,} pixels" in message and f"{inputs.MOST_PIXELS:,}" in message
    assert "134,212,225 pixels" in refused(server.post("/v1/look", model="vit", image=uri_of(bomb)))
    assert decoded[0] == []


def test_the_budget_is_that_of_the_whole_request(seen, monkeypatch):
    server, uri = seen
    monkeypatch.setattr(inputs, "MOST_PIXELS", 2 * 24 * 40)
    assert server.post("/v1/images", model="vit", input=[uri] * 2).status == 200
    assert "2,880 pixels, one request may have 1,920" in refused(
        server.post("/v1/images", model="vit", input=[uri] * 3)
    )


def test_images_are_decoded_one_at_a_time_beside_the_event_loop(seen, decoded):
    server, uri = seen
    threads, at_once, go = decoded
    with ThreadPoolExecutor(4) as clients:
        waiting = [clients.submit(server.post, "/v1/images", model="vit", input=[uri] * 2) for _ in range(3)]
        waiting.append(clients.submit(server.post, "/v1/look", model="vit", image=uri))
        eventually(lambda: threads)
        assert server.get("/health").status == 200
        assert server.post("/v1/completions", model="gpt", prompt="a", max_tokens=2).status == 200
        go.set()
        assert [answer.result().status for answer in waiting] == [200] * 4
    assert len(threads) == 7 and {name.rsplit("_", 1)[0] for name in threads} == {"regard-worker"}
    assert max(at_once) == 1


# ---- texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", [" ", "\n", "a "])
@pytest.mark.parametrize("path", TEXT_ROUTES)
def test_megabytes_are_refused_before_they_are_tokenized(texts, encoded, path, letter):
    model, name = TEXT_ROUTES[path]
    text = letter * (MEGABYTES // len(json.dumps(letter)[1:-1]))
    answer = texts.post(path, model=model, **{name: text})
    assert f"{len(text):,} characters" in refused(answer) and answer.error["code"] == "context_length_exceeded"
    assert encoded[0] == []


def test_megabytes_in_other_fields(texts, encoded):
    many = " " * MEGABYTES
    assert "characters" in refused(texts.post("/v1/classifications", model="classify", input="a", second=many))
    assert "characters" in refused(texts.post("/v1/answer", model="qa", input=["a"], passages=[many]))
    messages = [{"role": "user", "content": many}]
    assert "characters" in refused(texts.post("/v1/chat/completions", model="chat", messages=messages))
    assert encoded[0] == []


def test_a_text_to_cut_is_cut_before_it_is_tokenized(texts, encoded):
    longest = texts.store.models["embed"].longest_token
    answer = texts.post("/v1/embeddings", model="embed", input="The cat " * (MEGABYTES // 8), truncate=True)
    assert answer.json["usage"]["prompt_tokens"] == CONTEXT
    assert max(map(len, encoded[0])) <= model_store.SPACES * CONTEXT * longest < MEGABYTES // 50
    short = texts.post("/v1/embeddings", model="embed", input="The cat " * CONTEXT, truncate=True)
    assert answer.json["data"] == short.json["data"]


def test_a_long_passage_is_still_read_in_windows(texts):
    passage = "The cat sat on the mat. " * 20
    assert texts.post("/v1/answer", model="qa", input=["Where?"], passages=[passage]).status == 200


def test_the_name_of_a_model_without_end(texts, monkeypatch):
    compared, real = [], model_store.nearest
    monkeypatch.setattr(model_store, "nearest", lambda name, known: compared.append(name) or real(name, known))
    answer = texts.post("/v1/completions", model="g" * MEGABYTES, prompt="a")
    assert "at most 1024 characters" in refused(answer) and len(answer.body) < 500
    answer = texts.get("/v1/models/" + "g" * 30_000)
    assert answer.status == 404 and len(answer.body) < 500
    assert max(map(len, compared)) <= model_store.NAME_SHOWN


def test_too_many_texts(texts, encoded):
    message = refused(texts.post("/v1/embeddings", model="embed", input=["a"] * 100_000))
    assert "at most 2048 items" in message
    assert encoded[0] == []


def test_many_lists_are_refused_before_they_are_parsed(texts):
    for body in (b'{"model":"gpt","prompt":[' + b"[0]," * 1_000_000 + b"[0]]}", b"[" * MEGABYTES, b'{"a":' * 20_000):
        answer = texts.ask("POST", "/v1/completions", body=body)
        assert "lists and objects, at most 16,384" in refused(answer) and answer.error["code"] == "too_large"


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a": []}' * 9000, '\\"[' * 20_000, "\\" * 3 + '"' + "{\\" * 20_000])
def test_brackets_in_a_text_are_text(text):
    guard.check_nesting(json.dumps({"model": "gpt", "prompt": text, "stop": [text]}).encode())
    with pytest.raises(Refused, match="20,001 lists and objects"):
        guard.check_nesting(json.dumps([text, *[[]] * 20_000]).encode())


# ---- others meanwhile -------------------------------------------------------------------------------------------


def test_a_long_text_delays_no_short_one(texts, encoded, monkeypatch):
    """While long texts are tokenized, short ones of every route are; a second long one waits for the first."""
    seen, go = encoded
    monkeypatch.setattr(pools, "LONG_TEXT", 100)
    long = "wait " * 25
    with ThreadPoolExecutor(3) as clients:
        waiting = [clients.submit(texts.post, "/v1/tokenize", model="gpt", text=long) for _ in range(3)]
        eventually(lambda: texts.figures()["regard_tokenizing_waiting"] == 3)
        assert seen == [long]
        for path, (model, name) in TEXT_ROUTES.items():
            assert texts.post(path, model=model, **{name: "The cat"}).status == 200, path
        assert texts.get("/health").status == 200
        go.set()
        assert [answer.result().status for answer in waiting] == [200] * 3
    assert texts.figures()["regard_tokenizing_waiting"] == 0


def test_a_slow_template_delays_only_other_chats(texts, encoded):
    chat = dict(model="chat", messages=[{"role": "user", "content": "wait"}], max_tokens=2)
    with ThreadPoolExecutor(4) as clients:
        waiting = [clients.submit(texts.post, "/v1/chat/completions", **chat) for _ in range(4)]
        eventually(lambda: texts.figures()["regard_tokenizing_waiting"] == 4)
        for path, (model, name) in TEXT_ROUTES.items():
            assert texts.post(path, model=model, **{name: "The cat"}).status == 200, path
        encoded[1].set()
        assert [answer.result().status for answer in waiting] == [200] * 4


def test_the_queue_of_texts_is_bounded(made, encoded, monkeypatch):
    monkeypatch.setattr(pools, "LONG_TEXT", 100)
    with serving_here({"gpt": made["gpt"]}, queue=1, preload=True) as server, ThreadPoolExecutor(1) as clients:
        first = clients.submit(server.post, "/v1/tokenize", model="gpt", text="wait " * 25)
        eventually(lambda: encoded[0])
        assert server.post("/v1/tokenize", model="gpt", text="wait " * 25).status == 429
        still_serves(server)
        encoded[1].set()
        assert first.result().status == 200


def test_bodies_that_many_clients_hold_are_bounded_together(made, monkeypatch):
    monkeypatch.setattr(guard, "HELD", 2)
    start = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    start += b"Content-Length: 900\r\n\r\n"
    with serving_here({"gpt": made["gpt"]}, max_body=1000) as server:
        holding = server.server.config.app
        held = [server.connect(), server.connect()]
        for connection in held:
            connection.sendall(start + b" " * 899)
        eventually(lambda: holding.held == 2 * 899)
        body = json.dumps(dict(model="gpt", prompt="a", max_tokens=2)).ljust(300)
        answer = server.ask("POST", "/v1/completions", body=body)
        assert answer.status == 429 and answer.error["code"] == "queue_full"
        for connection in held:
            connection.close()
        eventually(lambda: holding.held == 0)
        assert server.ask("POST", "/v1/completions", body=body).status == 200
        assert holding.held == 0


def test_answers_are_written_beside_the_event_loop(texts, monkeypatch):
    threads, real = [], answers.to_json
    monkeypatch.setattr(answers, "to_json", lambda row: threads.append(threading.current_thread()) or real(row))
    for path, (model, name) in TEXT_ROUTES.items():
        assert texts.post(path, model=model, **{name: "The cat"}).status == 200
        assert len(threads) > 2 and texts.thread not in threads, path
        threads.clear()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16", "utf-32", "utf-8-sig"])
def test_lists_cannot_hide_in_another_encoding(encoding):
    body = ('{"model":"\\"","x":[' + "[]," * 20_000 + "[]]}").encode(encoding)
    with pytest.raises(Refused, match="not plain UTF-8"):
        guard.check_nesting(body)


# ---- recordings -------------------------------------------------------------------------------------------------


def test_recordings_are_refused_by_their_headers(monkeypatch):
    """What counts is their length, whatever their rate; the last one that fits is read."""
    record, second = modalities["audio"], wav_bytes(np.zeros(8_000, dtype=np.float32), 8_000)
    uri = "data:audio/wav;base64," + base64.b64encode(second).decode()
    monkeypatch.setattr(inputs, "MOST_PIXELS", 2 * 16_000)
    assert [recording.length for recording in inputs.receive(record, [uri] * 2, "audio")] == [8_000] * 2
    with pytest.raises(Refused, match="3 recordings have 48,000 samples, one request may have 32,000"):
        inputs.receive(record, [uri] * 3, "audio")
    with pytest.raises(Refused, match="audio: the audio is no audio"):
        inputs.receive(record, ["data:audio/wav;base64,AAAAAAAAAAAAAAAAAAAA"], "audio")
