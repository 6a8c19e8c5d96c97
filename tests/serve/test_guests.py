"""Bad requests and bad clients: each gets a clear error; other clients notice nothing; nothing is logged."""

import json
import socket
from pathlib import Path

import pytest

from regard.serve import answers, run
from tests.serve.made import CONTEXT
from tests.serve.running import eventually, serving, serving_here
from tests.serve.talking import GOOD, LONG_ONE, SLOW, first_event, read_all, refused, still_serves


@pytest.fixture(scope="module")
def slow(made):
    """A slow server that generates four texts at once, and lets four more wait."""
    models = {name: made[name] for name in ("endless", "gpt")}
    with serving(models, "--max-batch", 4, "--queue", 4, before=SLOW) as server:
        yield server


# ---- what is no request -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", b"nothing", b"[1, 2", b'{"model": }', b"\xff\xfe", b'{"model": "gpt\xff", "prompt": "a"}', b"\x00",
        b"[]", b"3", b'"text"', b"null", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"[" * 900 + b"]" * 900,
        b'{"model": "gpt", "prompt": "a", "max_tokens": ' + b"9" * 9000 + b"}",
        b'{"model": "gpt", "prompt": "a", "temperature": 1e999}',
        b'{"model": "gpt", "prompt": "a", "temperature": NaN}',
        b'{"model": "gpt", "prompt": "a", "top_p": -Infinity}',
        b'{"model": "gpt", "prompt": "a", "seed": Infinity}',
        b'{"model": "gpt", "prompt": "a", "logit_bias": NaN}',
        b'{"model": "gpt", "prompt": "half \\ud83d"}',
        b'{"model": "\\udc00", "prompt": "a"}',
        b'{"model": "gpt", "prompt": "a", "stop": "\\ud83d"}',
        b'{"model": "gpt", "prompt": "a", "\\ud83d": 1}',
        b'{"model": "gpt", "prompt": "a", "stream_options": {"\\ud83d": 1}}',
        b'{"model": "gpt", "prompt": "a", "user": {"\\ud83d": 1}}',
        b"\xef\xbb\xbf{}",
    ],
    ids=lambda body: repr(body[:40]),
)  # fmt: skip
def test_bodies_that_are_none(server, body):
    for path in ("/v1/completions", "/v1/chat/completions"):
        refused(server.ask("POST", path, body=body))


def test_types_of_bodies(server):
    good = json.dumps(GOOD["/v1/completions"])
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""):
        said = refused(server.ask("POST", "/v1/completions", good, {"Content-Type": kind}), 415)
        assert "Content-Type: application/json" in said
    for kind in ("application/json; charset=utf-8", "APPLICATION/JSON"):
        assert server.ask("POST", "/v1/completions", good, {"Content-Type": kind}).status == 200
    for path, fields in GOOD.items():
        assert "JSON object" in refused(server.ask("POST", path)), "an empty body"
        assert refused(server.get(path), 405).endswith("use POST"), path
        assert refused(server.ask("DELETE", path), 405) and refused(server.ask("PUT", path, **fields), 405)
    for path in (
        "/v1/nothing",
        "/v1",
        "/v2/models",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/%00",
        "/static/" + "a" * 5000,
        "/.git/config",
        "//v1/models",
        "/static/views/",
        "/static//etc/passwd",
    ):
        assert "no such path" in refused(server.get(path), 404), path
    assert "; did you mean /v1/classifications? /docs" in refused(server.ask("POST", "/v1/classify"), 404)
    assert refused(server.ask("POST", "/health"), 405) and refused(server.ask("POST", "/static/app.js"), 405)


WRONG = [
    None, True, 0, -1, 1.5, 2**70, -(2**70), "", "word", [], {}, [None], [[]], [[[1]]], {"a": {}}, [1.5], [{}], [-1],
]  # fmt: skip


@pytest.mark.parametrize("path", GOOD)
def test_wrong_types_of_every_field(server, path):
    """Whatever a field holds, the response is an answer, or an error that names the field."""
    description = server.get("/openapi.json").json
    body = description["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = [*description["components"]["schemas"][body.rpartition("/")[2]]["properties"]]
    assert {"model", *GOOD[path]} <= set(fields)
    cases = [(name, value) for name in fields for value in WRONG]
    answers = server.post_all(path, [GOOD[path] | {name: value} for name, value in cases])
    for (name, value), answer in zip(cases, answers, strict=True):
        if name == "stream" and value is True:
            assert answer.status == 200 and answer.events
        elif answer.status != 200:
            error = answer.error
            status = 404 if name == "model" and isinstance(value, str) else 400
            assert (answer.status, (error["param"] or "").split(".")[0]) == (status, name), (name, value, error)
        else:
            assert name not in ("model", "messages"), (name, value)
    answers = server.post_all(path, [{key: GOOD[path][key] for key in GOOD[path] if key != name} for name in fields])
    for name, answer in zip(fields, answers, strict=True):
        assert (answer.status == 200) == (name not in ("model", "prompt", "messages", "input", "text")), name


def test_fields_that_are_not_known(server):
    def message_for(path="/v1/completions", **fields):
        answer = server.post(path, **GOOD[path] | fields)
        assert answer.error["param"].partition(".")[0] in fields
        return refused(answer)

    assert message_for(temprature=1) == "unknown field 'temprature'; did you mean 'temperature'?"
    assert message_for("/v1/translations", beam=2) == "unknown field 'beam'; did you mean 'beams'?"
    assert message_for("/v1/chat/completions", top_logprob=2).endswith("did you mean 'top_logprobs'?")
    assert message_for(Temperature=1) == "unknown field 'Temperature'; did you mean 'temperature'?"
    assert message_for(**{"top[p]": 1}).startswith("unknown field 'top[p]'; ")
    assert "known: " in message_for(zzz=1)
    nested = message_for(stream_options={"include_use": True})
    assert (
        nested.startswith("unknown field 'include_use'; did you mean 'include_usage'?") and "stream_options" in nested
    )
    assert "not supported here" in message_for(best_of=3) and "not supported here" in message_for(suffix="a")
    assert "messages.0.role" in message_for("/v1/chat/completions", messages=[{"role": "cat", "content": "a"}])
    assert "messages.0.content" in message_for("/v1/chat/completions", messages=[{"role": "user"}])
    for neutral in (dict(best_of=1, suffix=None, logit_bias={}, presence_penalty=0.0, user="me", frequency_penalty=0),):
        assert server.post("/v1/completions", **GOOD["/v1/completions"] | neutral).status == 200


def test_numbers_out_of_range(server):
    def ask(**fields):
        return server.post("/v1/completions", **GOOD["/v1/completions"] | fields)

    for name, value in dict(max_tokens=-5, n=0, temperature=-1, top_p=1.1, logprobs=21, top_k=0, min_p=2).items():
        assert name in refused(ask(**{name: value}))
    assert "130 texts are asked for" in refused(ask(prompt=["a"] * 65, n=2))
    assert refused(ask(n=129)) and refused(ask(prompt=["a"] * 5000)) and refused(ask(stop=["a"] * 17))
    for huge in (10**9, 2**63, 10**40):
        answer = ask(max_tokens=huge, top_k=huge, temperature=0.5)
        assert answer.status == 200 and answer.json["usage"]["total_tokens"] <= CONTEXT
    for echo in (False, True):
        assert "vocabulary" in refused(ask(prompt=[1, 100_000], echo=echo))
    assert refused(ask(prompt=[[3], [2**31 - 1]], echo=True)) and refused(ask(prompt=[2**31]))
    assert "context is 64" in refused(ask(prompt=[5] * 64))
    assert "prompt 2" in refused(ask(prompt=["a", "1" * 80]))
    for model in ("t5", "translate"):
        path = "/v1/completions" if model == "t5" else "/v1/translations"
        long = {"prompt" if model == "t5" else "input": "1 2 " * 40}
        assert server.post(path, model=model, **long).status in (200, 400)
    assert server.post("/v1/completions", model="t5", prompt=[5, 6, 2]).status == 200
    assert refused(server.post("/v1/completions", model="t5", prompt=[5, 100_000], echo=True))


def test_ten_megabytes(server):
    """With its length told first, in chunks, and within what a body may have."""
    body = json.dumps(GOOD["/v1/completions"] | {"prompt": "a b " * 2_500_000})
    for sent, headers in ((body, {}), (iter([body[i : i + 65536].encode() for i in range(0, len(body), 65536)]), {})):
        answer = server.ask("POST", "/v1/completions", sent, headers)
        assert "4,194,304 bytes" in refused(answer, 413) and answer.error["code"] == "too_large"
    for path, name in (("/v1/completions", "prompt"), ("/v1/embeddings", "input"), ("/v1/translations", "input"),
                       ("/v1/classifications", "input"), ("/v1/tokenize", "text")):  # fmt: skip
        answer = server.post(path, **GOOD[path] | {name: "a b " * 900_000})
        assert "3,600,000 characters" in refused(answer) and answer.error["code"] == "context_length_exceeded"
    messages = [{"role": "user", "content": "a b " * 900_000}]
    assert "characters" in refused(server.post("/v1/chat/completions", model="chat", messages=messages))
    still_serves(server)


def test_more_than_any_server_would_read(server):
    """Told to be a terabyte, or sent without an end: the answer comes, and the connection is closed."""
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1099511627776\r\n\r\n{"
        )
        assert read_all(connection).startswith(b"HTTP/1.1 413")
    connection = server.connect()
    try:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        with pytest.raises(OSError):  # refused sooner or later, although we never stop
            for _ in range(16_000):
                connection.sendall(chunk)
    finally:
        connection.close()
    still_serves(server)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), b"\x00" * 500, b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", b"hello\n" * 20,
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:30]),
)  # fmt: skip
def test_bytes_that_are_no_http(server, garbage):
    with server.connect() as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        found = read_all(connection)
    assert found == b"" or found.startswith(b"HTTP/1.1 4"), found
    still_serves(server)


def test_connections_that_say_nothing_or_half_a_word(server):
    silent = [server.connect() for _ in range(50)]
    halves = [server.connect() for _ in range(50)]
    for connection in halves:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
    still_serves(server)
    for connection in [*silent, *halves]:
        connection.close()
    still_serves(server)


# ---- clients who leave -------------------------------------------------------------------------------------------


def test_a_client_that_leaves_a_stream(slow):
    connection = slow.send("/v1/completions", **LONG_ONE, stream=True, n=3)
    first_event(connection)
    assert slow.figures()["regard_batch_size[endless]"] == 3
    connection.close()
    slow.wait_until_idle("endless")


def test_a_client_that_resets_the_connection(slow):
    connection = slow.send("/v1/completions", **LONG_ONE, stream=True)
    first_event(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    slow.wait_until_idle("endless")


def test_a_client_that_leaves_before_the_response(slow):
    connection = slow.send("/v1/completions", **LONG_ONE, n=2)
    eventually(lambda: slow.figures().get("regard_batch_size[endless]") == 2)
    connection.close()
    slow.wait_until_idle("endless")


def test_a_client_that_leaves_the_queue(slow):
    """Four are written, four wait, one more is refused; those who wait leave first."""
    running = slow.send("/v1/completions", **LONG_ONE, stream=True, n=4)
    first_event(running)
    waiting = [slow.send("/v1/completions", **LONG_ONE, stream=stream, n=2) for stream in (False, True)]
    eventually(lambda: slow.figures()["regard_requests_waiting[endless]"] == 4)
    answer = slow.post("/v1/completions", **LONG_ONE)
    assert "too many requests are waiting" in refused(answer, 429) and answer.headers["retry-after"] == "1"
    assert refused(slow.post("/v1/completions", **LONG_ONE, stream=True), 429)
    for connection in waiting:
        connection.close()
    eventually(lambda: slow.figures()["regard_requests_waiting[endless]"] == 0)
    assert slow.figures()["regard_batch_size[endless]"] == 4, "the others go on"
    running.close()
    slow.wait_until_idle("endless")


def is_open(server, connection: socket.socket) -> bool:
    """Whether the server still holds its end."""
    ends = f":{server.place[1]:04X}", f":{connection.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[3] == "01" for row in rows)


def test_a_client_that_stops_reading(made, monkeypatch):
    """Its response is cut off when its time is over; meanwhile others are served, and nothing is held afterwards."""
    monkeypatch.setattr(answers, "LAST_EVENT_SECONDS", 0.0)

    def listen(settings, listen=run.listen):
        listener = listen(settings)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # little is buffered that nobody reads
        return listener

    monkeypatch.setattr(run, "listen", listen)
    models = {"endless": made["endless"], "gpt": made["gpt"]}
    with serving_here(models, clock=True, timeout=100.0) as server:
        much = LONG_ONE | dict(logprobs=20, n=4, stream=True)
        with server.send("/v1/completions", buffer=4096, **much) as connection:
            first_event(connection)
            for _ in range(3):
                still_serves(server)
            assert is_open(server, connection)
            server.skip(100)
            eventually(lambda: not is_open(server, connection))
            server.wait_until_idle("endless")
            still_serves(server)
            try:
                received = read_all(connection)
            except ConnectionError:
                received = b""
        assert b"data: [DONE]" not in received


def test_five_hundred_at_once(server):
    """All are open before the first one asks; each is answered, or told that there are too many."""
    connections = [server.connect() for _ in range(500)]
    body = json.dumps(GOOD["/v1/completions"]).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    for connection in connections:
        connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    statuses = []
    for connection in connections:
        head, _, text = read_all(connection).partition(b"\r\n\r\n")
        statuses.append(int(head.split()[1]))
        assert ("choices" if statuses[-1] == 200 else "error") in json.loads(text)
        connection.close()
    assert set(statuses) <= {200, 429} and statuses.count(200) >= 256
    server.wait_until_idle("gpt")
