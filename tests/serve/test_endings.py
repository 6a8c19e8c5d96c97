"""Servers that are stopped, servers that cannot start, and models whose files go and come back."""

import json
import shutil
import signal
from contextlib import contextmanager

import pytest

from tests.cli.calling import fails
from tests.serve.running import eventually, serving, serving_here
from tests.serve.talking import GOOD, LONG_ONE, SLOW, first_event, read_all, refused

# ---- the end ----------------------------------------------------------------------------------------------------


@contextmanager
def ending(made, grace, *signals, asked):
    """A server that is stopped while it generates: the rest of its responses."""
    with serving({"endless": made["endless"]}, "--grace", grace, before=SLOW) as server:
        connections = [server.send("/v1/completions", **one) for one in asked]
        eventually(lambda: server.figures().get("regard_prompt_tokens_total[endless]") == len(asked))
        for connection, one in zip(connections, asked, strict=True):
            if one.get("stream"):
                first_event(connection)
        for number in signals:
            server.signal(number)
            eventually(lambda: not accepts(server))
        yield [read_all(connection) for connection in connections]
        for connection in connections:
            connection.close()


def accepts(server) -> bool:
    try:
        server.connect().close()
    except ConnectionError:  # refused, or reset while the socket was being closed
        return False
    return True


def body_of(raw: bytes) -> bytes:
    """The body of a response in chunks, without their sizes."""
    return b"".join(line for line in raw.split(b"\r\n") if line.startswith((b"data:", b"{")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_server_lets_texts_end(made, number):
    one = LONG_ONE | dict(max_tokens=20)
    with ending(made, 300, number, asked=[one | dict(stream=True), one]) as (stream, whole):
        assert b'"finish_reason":"length"' in stream and body_of(stream).endswith(b"data: [DONE]\n\n")
        assert json.loads(body_of(whole))["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize("grace", [0, 1])
def test_after_the_grace_texts_get_a_clear_end(made, grace):
    with ending(made, grace, signal.SIGTERM, asked=[LONG_ONE | dict(stream=True), LONG_ONE]) as (stream, whole):
        *_, last, done = body_of(stream).decode().split("\n\n")[:-1]
        assert done == "data: [DONE]" and json.loads(last.removeprefix("data: "))["error"]["code"] == "closing"
        assert whole.startswith(b"HTTP/1.1 503") and json.loads(body_of(whole))["error"]["code"] == "closing"


def test_ctrl_c_twice_ends_at_once(made):
    with ending(made, 300, signal.SIGINT, signal.SIGINT, asked=[LONG_ONE | dict(stream=True)]) as (stream,):
        assert b'"code":"closing"' in stream and body_of(stream).endswith(b"data: [DONE]\n\n")


# ---- models that are not there, ports that are taken ------------------------------------------------------------


def test_a_directory_that_vanishes_and_comes_back(made, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(made["gpt"], tmp_path / "gpt")
    with serving_here({"gpt": tmp_path / "gpt", "other": made["gpt"]}) as server:
        (tmp_path / "gpt").rename(moved)
        for _ in range(2):
            message = refused(server.post("/v1/completions", **GOOD["/v1/completions"]), 503)
            assert "'gpt' cannot be loaded" in message
        assert server.get("/health").json["models"] == {"gpt": "failed", "other": "not loaded"}
        assert server.get("/v1/models/gpt").json["error"]
        assert server.post("/v1/completions", **GOOD["/v1/completions"] | {"model": "other"}).status == 200
        for name, content in (("model.safetensors", b"nonsense"), ("tokenizer.json", b"{}"), ("config.json", b"{")):
            shutil.copytree(moved, tmp_path / "gpt")
            (tmp_path / "gpt" / name).write_bytes(content)
            message = refused(server.post("/v1/completions", **GOOD["/v1/completions"]), 503)
            assert name in message, message
            shutil.rmtree(tmp_path / "gpt")
        moved.rename(tmp_path / "gpt")
        assert server.post("/v1/completions", **GOOD["/v1/completions"]).status == 200
        assert server.get("/v1/models/gpt").json["error"] is None
        (tmp_path / "gpt").rename(moved)
        assert server.post("/v1/completions", **GOOD["/v1/completions"]).status == 200, "it is in memory"


def test_what_cannot_be_served(server, made, capsys, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.serve", None)  # no server may start
    gpt, port = str(made["gpt"]), server.place[1]
    message = fails(capsys, "serve", gpt, "--port", port)
    assert f"cannot listen on 127.0.0.1:{port}: " in message and message.endswith("--port or --host")
    message = fails(capsys, "serve", gpt, f"gpt={made['chat']}")
    assert message == f"regard: error: two models are called 'gpt'; give one another name: other={made['chat']}"
    assert "no such directory" in fails(capsys, "serve", "./nowhere/at/all")
    for option, value in (("--timeout", "0"), ("--timeout", "nan"), ("--timeout", "inf"), ("--memory-gb", "-1"),
                          ("--memory-gb", "inf"), ("--grace", "-1"), ("--grace", "inf"), ("--max-body-mb", "0"),
                          ("--max-body-mb", "inf"), ("--api-key", " "), ("--allow-origin", "example.org"),
                          ("--host", "no.such.host.invalid"), ("--host", "192.0.2.1")):  # fmt: skip
        assert "error: " in fails(capsys, "serve", gpt, "--port", 0, option, value), (option, value)
