"""Servers that are told to stop, and those that cannot start; models that go and come back."""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.serve.running import PATIENCE, eventually, serving
from tests.serve.talking import GOOD, LONG_ONE, SLOW, first_event, read_all, refused

# ---- the end ----------------------------------------------------------------------------------------------------


@contextmanager
def ending(made, grace, *signals, asked):
    """A server that is told to stop while it writes: what is left to read of the answers."""
    with serving({"endless": made["endless"]}, "--grace", grace, before=SLOW) as server:
        connections = [server.send("/v1/completions", **one) for one in asked]
        eventually(lambda: server.figures().get("regard_batch_size[endless]") == len(asked))
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
    except ConnectionError:  # refused, or reset while the door was being closed
        return False
    return True


def body_of(raw: bytes) -> bytes:
    """Of the rest of an answer in chunks, without their sizes."""
    return b"".join(line for line in raw.split(b"\r\n") if line.startswith((b"data:", b"{")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_lets_texts_end(made, number):
    one = LONG_ONE | dict(max_tokens=60)
    with ending(made, 30, number, asked=[one | dict(stream=True), one]) as (stream, whole):
        assert b'"finish_reason":"length"' in stream and body_of(stream).endswith(b"data: [DONE]\n\n")
        assert json.loads(body_of(whole))["usage"]["completion_tokens"] == 60


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
    with serving({"gpt": tmp_path / "gpt", "other": made["gpt"]}) as server:
        (tmp_path / "gpt").rename(moved)
        for _ in range(2):
            said = refused(server.post("/v1/completions", **GOOD["/v1/completions"]), 503)
            assert "'gpt' cannot be loaded" in said
        assert server.get("/health").json["models"] == {"gpt": "failed", "other": "not loaded"}
        assert server.get("/v1/models/gpt").json["error"]
        assert server.post("/v1/completions", **GOOD["/v1/completions"] | {"model": "other"}).status == 200
        for name, content in (("model.safetensors", b"nonsense"), ("tokenizer.json", b"{}"), ("config.json", b"{")):
            shutil.copytree(moved, tmp_path / "gpt")
            (tmp_path / "gpt" / name).write_bytes(content)
            said = refused(server.post("/v1/completions", **GOOD["/v1/completions"]), 503)
            assert name in said, said
            shutil.rmtree(tmp_path / "gpt")
        moved.rename(tmp_path / "gpt")
        assert server.post("/v1/completions", **GOOD["/v1/completions"]).status == 200
        assert server.get("/v1/models/gpt").json["error"] is None
        (tmp_path / "gpt").rename(moved)
        assert server.post("/v1/completions", **GOOD["/v1/completions"]).status == 200, "it is in memory"


def fails(*words: str) -> str:
    """The one line of a command that cannot do what it is told."""
    code = "from regard.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2 and not done.stdout, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def test_a_port_that_is_taken(server, made):
    said = fails(str(made["gpt"]), "--port", str(server.place[1]))
    assert f"cannot listen on 127.0.0.1:{server.place[1]}: " in said and said.endswith("--port or --host")


def test_what_cannot_be_served(made, capsys, monkeypatch):
    """In this process: each start of another takes seconds."""
    monkeypatch.setattr("uvicorn.Server.serve", None)  # nothing of this is to come so far
    from tests.cli.calling import fails as fails_here

    gpt = str(made["gpt"])
    said = fails_here(capsys, "serve", gpt, f"gpt={made['chat']}")
    assert said == f"regard: error: two models are called 'gpt'; give one another name: other={made['chat']}"
    assert "no such directory" in fails_here(capsys, "serve", "./nowhere/at/all")
    for option, value in (("--timeout", "0"), ("--timeout", "nan"), ("--timeout", "inf"), ("--memory-gb", "-1"),
                          ("--memory-gb", "inf"), ("--grace", "-1"), ("--grace", "inf"), ("--max-body-mb", "0"),
                          ("--max-body-mb", "inf"), ("--api-key", " "), ("--allow-origin", "example.org"),
                          ("--host", "no.such.host.invalid"), ("--host", "192.0.2.1")):  # fmt: skip
        assert "error: " in fails_here(capsys, "serve", gpt, "--port", 0, option, value), (option, value)
