"""Requests that several tests send, and functions that read raw responses."""

import socket
import struct
import zlib

from tests.serve.made import LONG
from tests.serve.running import Answer

SLOW = """
import time
from regard.decode.engine import Engine
step = Engine.step
def slow(self):
    time.sleep(0.05)
    step(self)
Engine.step = slow
"""
"""Put before a server's own code: a text of LONG tokens takes at least 100 seconds, so that it is open meanwhile."""
GOOD = {
    "/v1/completions": dict(model="gpt", prompt="The cat", max_tokens=3),
    "/v1/chat/completions": dict(
        model="chat", messages=[{"role": "user", "content": "The cat"}], max_completion_tokens=3
    ),
    "/v1/embeddings": dict(model="embed", input="The cat"),
    "/v1/translations": dict(model="translate", input="The cat"),
    "/v1/classifications": dict(model="classify", input="The cat"),
    "/v1/tokenize": dict(model="gpt", text="The cat"),
}
LONG_ONE = dict(model="endless", prompt="a", max_tokens=LONG, temperature=0)


def refused(answer: Answer, status: int = 400) -> str:
    """The message of an error."""
    assert answer.status == status, (answer.status, answer.body[:500])
    return answer.error["message"]


def still_serves(server) -> None:
    assert server.post("/v1/completions", **GOOD["/v1/completions"]).status == 200


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def first_event(connection: socket.socket) -> bytes:
    received = b""
    while b"\n\n" not in received.partition(b"\r\n\r\n")[2]:
        piece = connection.recv(4096)
        assert piece, received
        received += piece
    return received


def palette_png(side: int) -> bytes:
    """A PNG file of few bytes that claims side² pixels: one colour of a palette."""
    squeeze = zlib.compressobj(9)
    data = b"".join(squeeze.compress(bytes(1 + (side + 7) // 8)) for _ in range(side)) + squeeze.flush()

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", side, side, 1, 3, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"PLTE", bytes(6)), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
