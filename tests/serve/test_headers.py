"""Headers are bounded before anything looks at them: in bytes, in number and in time, without a key too."""

import json
import select
from contextlib import suppress

import pytest

from regard.serve.run import MOST_HEADER_BYTES, MOST_HEADERS
from tests.serve.running import serving_here
from tests.serve.talking import read_all

START = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
KEY = b"authorization: Bearer secret\r\n"
ENDLESS = {
    "a header's value": b"x: " + b"a" * (4 * MOST_HEADER_BYTES),
    "a header's name": b"a" * (4 * MOST_HEADER_BYTES),
    "many headers": b"".join(b"x-%d: 1\r\n" % i for i in range(2 * MOST_HEADERS)) + b"\r\n",
    "large headers": b"".join(b"x-%d: %s\r\n" % (i, b"a" * 4000) for i in range(20)) + b"\r\n",
}


@pytest.fixture(scope="module")
def locked(made):
    with serving_here({"gpt": made["gpt"]}, clock=True, api_keys=("secret",)) as server:
        yield server


def send(server, *parts):
    """Return the response to these bytes; a server that has closed the connection reads no more of them."""
    answer = b""
    with server.connect() as connection:
        with suppress(OSError):
            for part in parts:
                connection.sendall(part)
        with suppress(ConnectionResetError):  # after the response
            while data := connection.recv(1 << 16):
                answer += data
    return answer


@pytest.mark.parametrize("key", [b"", KEY], ids=["without a key", "with a key"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_headers_without_end_are_refused_without_a_key(locked, kind, key):
    answer = send(locked, START + key, ENDLESS[kind])
    assert answer.startswith(b"HTTP/1.1 431"), answer[:100]
    assert locked.get("/health").status == 200


def test_the_refusal_names_the_limits(locked):
    answer = send(locked, START + b"".join(b"x-%d: 1\r\n" % i for i in range(MOST_HEADERS)) + b"\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"{MOST_HEADER_BYTES:,} bytes or {MOST_HEADERS} fields" in json.loads(body)["error"]["message"]
    assert b"connection: close" in head


def test_a_path_without_end_is_refused(locked):
    assert send(locked, b"GET /" + b"a" * (4 * MOST_HEADER_BYTES)).startswith(b"HTTP/1.1 431")


def test_headers_within_the_limits_pass(locked):
    many = b"".join(b"x-%d: %s\r\n" % (i, b"a" * 400) for i in range(MOST_HEADERS - 2))
    assert send(locked, START + many + b"connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_trailers_without_end_are_refused(locked):
    chunked = b"POST /v1/tokenize HTTP/1.1\r\nhost: localhost\r\n%stransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    answer = send(locked, chunked % KEY, ENDLESS["a header's value"])
    assert answer.startswith(b"HTTP/1.1 431"), answer[:100]
    assert locked.get("/health").status == 200


def test_slow_headers_end_after_a_kept_connection_as_on_a_new_one(locked):
    for before in (b"", START + b"\r\n"):
        with locked.connect() as connection:
            if before:
                connection.sendall(before)
                answer = b""
                while not answer.endswith(b"}}"):
                    answer += connection.recv(10_000)
            connection.sendall(b"GET /health HTT")
            assert locked.get("/health").status == 200  # the bytes have arrived before those of the next connection
            assert not select.select([connection], [], [], 0)[0], "it is open until then"
            locked.skip(60)
            rest = b""
            try:
                rest = read_all(connection)  # ends: the server has closed it
            except ConnectionResetError:
                pass
            assert not rest
