"""Bodies of requests to every route of a server with tiny models; the first byte chooses the route."""

import asyncio
import atexit
import base64
import json
from functools import cache
from typing import Any

from fuzz.harnesses.images import seeds as images
from fuzz.scratch import FOLDER
from regard.data.readers.preprocessing import Preprocessing
from regard.hub import save_generation, save_model
from regard.hub.preprocessor import save_preprocessing
from regard.models import build, preset
from regard.serve.app import build_app
from regard.serve.model_store import ModelStore
from regard.serve.settings import Settings
from regard.tokens import Tokenizer

NAMES = (
    "schemas",
    "completions",
    "generate",
    "text_routes",
    "verb_routes",
    "inputs",
    "looks",
    "images",
    "guard",
    "errors",
    "answers",
)
READS = tuple(f"regard.serve.{name}" for name in NAMES)
SIZES = dict(dim=8, heads=2, depth=1, ffn_dim=8, vocab_size=270, max_len=24)
MODELS: dict[str, dict[str, Any]] = {
    "gpt": SIZES, "transformer": SIZES, "bert": SIZES | {"task": "classify", "labels": ["a", "b"]},
    "vit": dict(dim=8, heads=2, depth=1, ffn_dim=8, image=8, patch=4, labels=["a", "b"]),
}  # fmt: skip
LOOP = asyncio.new_event_loop()
WORDS = [
    b'"model":',
    b'"stream": true',
    b'"n": 2',
    b'"logprobs": 1',
    b'"stop": ["a"]',
    b'"max_tokens": 3',
    b'"echo": true',
    b'"prompt":',
    b'"input":',
    b'"seed": 1',
    b'"temperature": 0',
]


@cache
def served() -> tuple[Any, ModelStore, list[str]]:
    """Return the application of a server, its models and the routes that take a body."""
    tokenizer = Tokenizer.train(texts=["a red bird sees the black horse"], vocab_size=270, specials=("<mask>",))
    for family, fields in MODELS.items():
        folder = FOLDER / "models" / family
        save_model(build(family, preset(family, "tiny", **fields)), folder)
        if family == "vit":
            save_preprocessing(folder, Preprocessing(size=(8, 8)))
            continue
        tokenizer.save(folder)
        if family != "bert":
            save_generation(folder, bos=0, eos=2, pad=0)
        template = "{% for message in messages %}{{ message.content }}{% endfor %}"
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}), encoding="utf-8")
    settings = Settings(timeout=20)
    store = ModelStore({name: str(FOLDER / "models" / name) for name in MODELS}, settings)
    app = build_app(store, settings)
    atexit.register(store.close)
    description = json.loads(LOOP.run_until_complete(send(app, "GET", "/openapi.json", b""))[1])
    return app, store, sorted(path for path, known in description["paths"].items() if "post" in known)


async def send(
    app: Any, method: str, path: str, body: bytes, content_type: bytes = b"application/json"
) -> tuple[int, bytes]:
    """Return status and body of the answer to one request."""
    waiting, sent = [body], list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": waiting.pop(), "more_body": False}

    async def collect(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = dict(
        type="http",
        asgi={"version": "3.0"},
        http_version="1.1",
        method=method,
        scheme="http",
        path=path,
        raw_path=path.encode(),
    )
    scope |= dict(query_string=b"", root_path="", headers=headers, client=("127.0.0.1", 1), server=("127.0.0.1", 8000))
    await app(scope, receive, collect)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def seeds() -> list[bytes]:
    """Return a body for each route that one of the models can answer."""
    image = "data:image/png;base64," + base64.b64encode(images()[0]).decode()
    talk = [{"role": "user", "content": "a bird"}]
    bodies: list[dict[str, Any]] = [
        dict(model="gpt", prompt="a red", max_tokens=3), dict(model="gpt", messages=talk, max_tokens=2),
        dict(model="bert", input=["a red bird", "a horse"]),
        dict(model="transformer", input="a red bird"), dict(model="vit", input=image), dict(model="gpt",
        input="a red bird"), dict(model="vit", image=image), dict(model="gpt", text="a red"),
        dict(model="bert", text="a red"), dict(model="transformer", text="a red", target="b"), dict(model="gpt",
        prompt=["a", "b"], stream=True, logprobs=2, stop=["x"], max_tokens=2),
    ]  # fmt: skip
    routes = served()[2]
    every = [bytes([number]) + json.dumps(body).encode() for number in range(len(routes)) for body in bodies]
    good = []
    for data in every:
        try:
            run(data)
        except ValueError:
            continue
        good.append(data)
    return good


def run(data: bytes) -> None:
    """Send the body; an answer of 4xx is a refusal, one of 5xx a finding."""
    app, _, routes = served()
    path = routes[data[0] % len(routes)] if data else routes[0]
    status, answer = LOOP.run_until_complete(send(app, "POST", path, data[1:]))
    assert status < 500, f"{path}: {status} {answer[:200]!r}"
    if status >= 400:
        raise ValueError(json.loads(answer)["error"]["message"])
