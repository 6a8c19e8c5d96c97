"""Keys, hosts, origins and limits: who may send requests, from where, how large, and how long they may take."""

import hmac
import json
import select
import socket
import threading

import pytest

from regard.serve import answers, guard
from regard.serve.settings import Settings
from regard.tasks import LanguageModel
from tests.serve.made import LONG
from tests.serve.running import PATIENCE, eventually, serving, serving_here
from tests.serve.talking import first_event, read_all

ASKED = dict(model="gpt", prompt="The cat", max_tokens=3)
LONG_ONE = dict(model="endless", prompt="a", max_tokens=LONG)
ORIGIN = "https://example.org"
HEADERS = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(made):
    with serving_here({"gpt": made["gpt"], "endless": made["endless"]}) as server:
        yield server


@pytest.fixture(scope="module")
def locked(made):
    """With two keys, and a site that may ask."""
    with serving_here({"gpt": made["gpt"]}, api_keys=("one", "two"), origins=(ORIGIN,)) as server:
        yield server


# ---- where it listens, and by which name ------------------------------------------------------------------------


def test_only_this_machine_reaches_it(plain):
    assert Settings().host == "127.0.0.1" and plain.place[0] == "127.0.0.1"
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in own - {f"127.0.{a}.{b}" for a in range(2) for b in range(256)}:
        with pytest.raises(OSError), socket.create_connection((address, plain.place[1]), timeout=5):
            pass


@pytest.mark.parametrize("path", ["/", "/v1/models", "/static/app.js", "/health", "/metrics", "/docs", "/v1/nothing"])
def test_a_name_that_is_not_its_own(plain, path):
    """A page elsewhere can point its own name at this machine, and read what it answers."""
    for name in ("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::2]"):
        answer = plain.get(path, Host=name)
        said = "this server is not called" if name else "names no host"
        assert answer.status == 400 and said in answer.error["message"], name
    for name in ("localhost", f"127.0.0.1:{plain.place[1]}", "LOCALHOST:1", "[::1]:9"):
        assert plain.get("/health", Host=name).status == 200


def test_names_that_are_allowed(made):
    with serving_here({"gpt": made["gpt"]}, hosts=("Models.example",)) as server:
        assert server.get("/health", Host="models.example:443").status == 200
        assert server.get("/health").status == 200
        assert server.get("/health", Host="other.example").status == 400
    with serving_here({"gpt": made["gpt"]}, host="127.0.0.2") as server:
        assert server.place[0] == "127.0.0.2" and server.get("/health").status == 200
        assert server.get("/health", Host="evil.example").status == 400
    with serving_here({"gpt": made["gpt"]}, host="0.0.0.0") as server:
        server.address = server.address.replace("0.0.0.0", "127.0.0.1")
        assert server.get("/health", Host="any.example").status == 200, "whoever opens it to all has many names"


# ---- keys -------------------------------------------------------------------------------------------------------


def test_keys(locked):
    closed = ("/v1/models", "/v1/models/gpt", "/metrics", "/v1/nothing", "/v1/completions", "/metrics/")
    for path in closed:
        for sent in (
            "",
            "Bearer",
            "Bearer ",
            "Bearer three",
            "Bearer one two",
            "Basic one",
            "one",
            "Bearer ONE",
            "Bearer \xe9",
        ):
            answer = locked.get(path, **({"Authorization": sent} if sent else {}))
            assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer", (path, sent)
            assert answer.error["type"] == "authentication_error" and answer.error["code"] == "invalid_api_key"
    for key in ("one", "two"):
        for word in ("Bearer", "bearer"):
            assert locked.get("/v1/models", Authorization=f"{word} {key}").status == 200
        assert locked.ask("POST", "/v1/completions", headers={"Authorization": f"Bearer {key}"}, **ASKED).status == 200
        assert locked.get("/metrics", Authorization=f"Bearer {key}").status == 200
    assert locked.ask("POST", "/v1/completions", body="{" * 100).status == 401, "nothing is read before"
    for path in ("/", "/health", "/static/app.js", "/docs", "/openapi.json"):
        assert locked.get(path).status == 200


def test_keys_are_compared_in_constant_time(locked, monkeypatch):
    """All keys, whole and of equal length, whatever was sent."""
    seen, real = [], hmac.compare_digest

    def compare(given, known):
        seen.append((len(given), len(known)))
        return real(given, known)

    monkeypatch.setattr(guard.hmac, "compare_digest", compare)
    for key, status in (("one", 200), ("two", 200), ("x", 401), ("one" * 99, 401), ("", 401)):
        seen.clear()
        assert locked.get("/v1/models", Authorization=f"Bearer {key}").status == status
        assert seen == [(32, 32)] * 2


def test_keys_from_the_environment(made):
    with serving({"gpt": made["gpt"]}, REGARD_API_KEY="first second") as server:
        assert server.get("/v1/models").status == 401
        assert server.get("/v1/models", Authorization="Bearer second").status == 200
        assert "first" not in server.log


# ---- other sites ------------------------------------------------------------------------------------------------


def cors(answer):
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}


PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}


def test_no_other_site_may_ask(plain):
    for answer in (
        plain.get("/v1/models", Origin=ORIGIN),
        plain.ask("POST", "/v1/completions", headers={"Origin": ORIGIN}, **ASKED),
        plain.ask("OPTIONS", "/v1/completions", headers=PREFLIGHT | {"Origin": ORIGIN}),
    ):
        assert cors(answer) == {}
    assert answer.status == 405


def test_one_other_site_may_ask(locked):
    key = {"Authorization": "Bearer one"}
    answer = locked.ask("OPTIONS", "/v1/completions", headers=PREFLIGHT | {"Origin": ORIGIN})
    assert answer.status == 200 and cors(answer)["access-control-allow-origin"] == ORIGIN
    allowed = cors(answer)["access-control-allow-headers"].lower()
    assert "POST" in cors(answer)["access-control-allow-methods"] and "authorization" in allowed
    answer = locked.ask("POST", "/v1/completions", headers=key | {"Origin": ORIGIN}, **ASKED)
    assert answer.status == 200 and cors(answer) == {"access-control-allow-origin": ORIGIN}
    refused = locked.ask("POST", "/v1/completions", headers=key | {"Origin": ORIGIN}, model="gpt")
    assert refused.status == 400 and cors(refused) == {"access-control-allow-origin": ORIGIN}
    for other in ("https://example.org.evil.example", "http://example.org", "null", "https://evil.example"):
        assert "access-control-allow-origin" not in cors(locked.get("/v1/models", Origin=other, **key))
        answer = locked.ask("OPTIONS", "/v1/completions", headers=PREFLIGHT | {"Origin": other})
        assert answer.status == 400 and "access-control-allow-origin" not in cors(answer)


def test_that_site_can_read_why_it_was_refused(locked):
    """A browser hides an answer without the header: nobody would learn that the key is wrong."""
    answer = locked.get("/v1/models", Origin=ORIGIN)
    assert answer.status == 401 and cors(answer) == {"access-control-allow-origin": ORIGIN}


# ---- headers ----------------------------------------------------------------------------------------------------


def test_headers_on_every_answer(locked, plain):
    answers = [
        *(plain.get(path) for path in ("/", "/docs", "/health", "/metrics", "/openapi.json", "/static/app.js")),
        *(plain.get(path) for path in ("/static/swagger/swagger-ui.css", "/static/none.js", "/none", "/v1/models")),
        plain.get("/v1/completions"), plain.ask("POST", "/v1/completions", body="{"), plain.get("/", Host="evil.org"),
        plain.post("/v1/completions", **ASKED), plain.post("/v1/completions", **ASKED, stream=True),
        plain.ask("POST", "/v1/completions", body="a" * 2**23), plain.ask("HEAD", "/"), locked.get("/v1/models"),
        locked.ask("OPTIONS", "/v1/models", headers=PREFLIGHT | {"Origin": ORIGIN}),
    ]  # fmt: skip
    assert {answer.status for answer in answers} == {200, 400, 401, 404, 405, 413}
    for answer in answers:
        assert HEADERS.items() <= answer.headers.items()
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ") and "frame-ancestors 'none'" in policy
        assert "server" not in answer.headers and "unsafe-eval" not in policy
        assert ("unsafe-inline" in policy) == (answer is answers[1]), "only the description's page"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")


# ---- time, size, queue ------------------------------------------------------------------------------------------


def test_time(made, monkeypatch):
    monkeypatch.setattr(answers, "LAST_EVENT_SECONDS", 1e6)
    with serving_here({"endless": made["endless"]}, clock=True) as server:
        with server.held("endless"), server.send("/v1/completions", **LONG_ONE) as connection:
            eventually(lambda: server.figures()["regard_batch_size[endless]"] == 1)
            server.skip(600)
            head, _, body = read_all(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408") and json.loads(body)["error"]["code"] == "timeout"
        assert "not done after 600 seconds" in json.loads(body)["error"]["message"]
        with server.held("endless"), server.send("/v1/completions", **LONG_ONE, stream=True) as connection:
            received = first_event(connection)
            server.skip(600)
            received += read_all(connection)
        assert received.startswith(b"HTTP/1.1 200") and b'"code":"timeout"' in received and b"[DONE]" in received
        server.wait_until_idle("endless")


def test_the_time_of_a_template_counts(made, monkeypatch):
    begun, end = threading.Event(), threading.Event()

    def rendered(task, messages):
        begun.set()
        end.wait(PATIENCE)
        return [1]

    monkeypatch.setattr(LanguageModel, "encode_chat", rendered)
    asked = dict(model="chat", messages=[{"role": "user", "content": "hi"}])
    with serving_here({"chat": made["chat"]}, clock=True) as server:
        with server.send("/v1/chat/completions", **asked) as connection:
            assert begun.wait(PATIENCE)
            assert server.get("/health").status == 200, "others are answered meanwhile"
            server.skip(600)
            head, _, body = read_all(connection).partition(b"\r\n\r\n")
        end.set()
    assert head.startswith(b"HTTP/1.1 408") and json.loads(body)["error"]["code"] == "timeout"


def test_bodies_that_do_not_arrive(made):
    start = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    health = b""
    with serving_here({"gpt": made["gpt"]}, clock=True) as server, server.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not health.endswith(b"}}"):  # so that the server has the connection
            health += connection.recv(4096)
        connection.sendall(start + b"Content-Length: 50\r\n\r\n{")
        eventually(lambda: server.skip(60) or select.select([connection], [], [], 0.01)[0])
        received = read_all(connection)
    assert received.startswith(b"HTTP/1.1 408") and b"did not arrive within 60 seconds" in received


def test_size(made):
    with serving_here({"gpt": made["gpt"]}, max_body=200) as server:
        assert server.post("/v1/completions", **ASKED).status == 200
        fits, larger = (json.dumps(ASKED | {"user": ""}) for _ in range(2))
        fits = fits.replace('""', '"' + "a" * (200 - len(fits)) + '"')
        larger = fits.replace("a", "aa", 1)
        assert (len(fits), len(larger)) == (200, 201)
        assert server.ask("POST", "/v1/completions", body=fits).status == 200
        for body in (larger, iter([larger[:150].encode(), larger[150:].encode()])):
            answer = server.ask("POST", "/v1/completions", body=body)
            assert answer.status == 413 and "more than 200 bytes" in answer.error["message"]


def test_the_queue_of_the_worker(made):
    """Encoders work one after the other; a full queue is an error."""
    with serving_here({"embed": made["embed"]}, queue=1) as server:
        asked = dict(model="embed", input="The cat")
        assert server.post("/v1/embeddings", **asked).status == 200
        go, real = threading.Event(), server.store.models["embed"].task.embed

        def slow(texts):
            go.wait(PATIENCE)
            return real(texts)

        server.store.models["embed"].task.embed = slow
        first = threading.Thread(target=server.post, args=("/v1/embeddings",), kwargs=asked)
        first.start()
        eventually(lambda: server.figures()["regard_readings_waiting"] == 1)
        answer = server.post("/v1/embeddings", **asked)
        go.set()
        first.join()
        assert answer.status == 429 and answer.headers["retry-after"] == "1"
        assert server.post("/v1/embeddings", **asked).status == 200


def test_settings_that_are_none():
    for wrong in (dict(timeout=0.0), dict(timeout=float("nan")), dict(timeout=float("inf")), dict(grace=float("inf")),
                  dict(grace=-1.0), dict(queue=0), dict(port=70000), dict(api_keys=("",)), dict(api_keys=("ü",)),
                  dict(origins=("example.org",)), dict(memory=0), dict(max_body=0), dict(max_batch=0)):  # fmt: skip
        with pytest.raises(ValueError):
            Settings(**wrong)
