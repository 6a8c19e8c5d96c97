"""Requests that cost a server more than they should: how long each takes, and /health meanwhile, and the memory.

    pip install 'regard[serve,test]'
    python benchmarks/bombs.py [--json]

Tiny models are served on loopback. Every bomb is a body of at most 4 MB; while it is answered, /health is asked again
and again. docs/security.md names the bound that each of them meets.
"""

import argparse
import base64
import http.client
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
SIZE = 4_190_000
"""Bytes of the largest bombs, just below the limit of a body."""


def bombs(png: bytes) -> dict[str, tuple[str, bytes]]:
    """Bodies by name, each with its path."""
    uri = "data:image/png;base64," + base64.b64encode(png).decode()

    def body(**fields: Any) -> bytes:
        return json.dumps(fields).encode()

    return {
        "14 palette PNGs of 11,585²": ("/v1/images", body(model="vit", input=[uri] * 14)),
        "one of them to look at": ("/v1/look", body(model="vit", image=uri)),
        "4 MB of white space to tokenize": ("/v1/tokenize", body(model="gpt", text=" " * SIZE)),
        "4 MB of white space to cut": ("/v1/embeddings", body(model="embed", input=" " * SIZE, truncate=True)),
        "a model's name of 4 MB": ("/v1/completions", body(model="g" * SIZE, prompt="a")),
        "100,000 texts": ("/v1/embeddings", body(model="embed", input=["a"] * 100_000)),
        "a million lists": ("/v1/completions", b'{"model":"gpt","prompt":[' + b"[0]," * 1_000_000 + b"[0]]}"),
    }


def ask(place: tuple[str, int], method: str, path: str, body: bytes | None = None) -> tuple[int, float]:
    """The status of an answer, and the seconds that it took."""
    connection, begin = http.client.HTTPConnection(*place, timeout=600), time.perf_counter()
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status, time.perf_counter() - begin
    finally:
        connection.close()


def measure(server: Any, path: str, body: bytes) -> dict[str, Any]:
    """Send one bomb; return its status and time, the slowest /health beside it and the peak of the memory."""
    from tests.serve.storm import resident

    results: list[tuple[int, float]] = []
    sender = threading.Thread(target=lambda: results.append(ask(server.place, "POST", path, body)))
    sender.start()
    waits, memory = [ask(server.place, "GET", "/health")[1]], [resident(server.process.pid)]
    while sender.is_alive():
        waits.append(ask(server.place, "GET", "/health")[1])
        memory.append(resident(server.process.pid))
        time.sleep(0.002)
    ((status, seconds),) = results
    return {"status": status, "seconds": seconds, "health": max(waits), "MB": max(memory) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from tests.serve.running import Process
    from tests.serve.storm import make_served
    from tests.serve.talking import palette_png

    with tempfile.TemporaryDirectory() as folder:
        models, _ = make_served(Path(folder))
        server = Process({name: models[name] for name in ("vit", "gpt", "embed")}, "--preload")
        try:
            ask(server.place, "POST", "/v1/tokenize", b'{"model": "gpt", "text": "a"}')  # what is built once
            rows = {name: measure(server, *bomb) for name, bomb in bombs(palette_png(11_585)).items()}
        finally:
            server.process.kill()
    if arguments.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    print(f"{'':34} status  seconds  /health      MB")
    for name, row in rows.items():
        print(f"{name:34} {row['status']:6} {row['seconds']:8.2f} {row['health']:8.3f} {row['MB']:7.0f}")


if __name__ == "__main__":
    main()
