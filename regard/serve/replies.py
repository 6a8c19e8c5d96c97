"""What answers hold: for the description at /docs, and for those who check it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Problem(Reply):
    message: str
    """What is wrong, and the cure."""
    type: str
    param: str | None
    """The field that it is about."""
    code: str | None


class Error(Reply):
    error: Problem


class Model(Reply):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["regard"]
    does: list[str]
    """What can be asked of it: generate, chat, translate, embed, classify."""
    loaded: bool
    context: int | None
    """Tokens that it reads and writes at once."""
    error: str | None
    """Why it could not be loaded."""


class Models(Reply):
    object: Literal["list"]
    data: list[Model]


class ReadUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class Usage(ReadUsage):
    completion_tokens: int


class LogProbs(Reply):
    """Lists with an entry for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(Reply):
    index: int
    text: str
    logprobs: LogProbs | None
    finish_reason: Literal["stop", "length"]


class Completion(Reply):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class Likely(Reply):
    token: str
    logprob: float
    bytes: list[int]


class Token(Likely):
    top_logprobs: list[Likely]


class ChatLogProbs(Reply):
    content: list[Token]
    refusal: None


class Said(Reply):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Reply):
    index: int
    message: Said
    logprobs: ChatLogProbs | None
    finish_reason: Literal["stop", "length"]


class Chat(Reply):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Embedding(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(Reply):
    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: ReadUsage


class Label(Reply):
    label: str
    probability: float


class Classification(Label):
    object: Literal["classification"]
    index: int
    labels: list[Label]
    """All of them, the likeliest first."""


class Classifications(Reply):
    object: Literal["list"]
    model: str
    data: list[Classification]
    usage: ReadUsage


class Thing(Label):
    box: list[float]
    """Left, top, right, bottom in pixels."""


class Picture(Reply):
    """One of these, as the model was trained to."""

    object: Literal["picture"]
    index: int
    labels: list[Label] | None = None
    """All of them, the likeliest first."""
    things: list[Thing] | None = None
    """The surest first."""
    caption: str | None = None
    embedding: list[float] | None = None
    """Of length 1."""


class Pictures(Reply):
    object: Literal["list"]
    model: str
    data: list[Picture]


class Alignment(Reply):
    """Which source pieces the model looked at for each target piece: a row each, which sums to 1."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]


class Translated(Reply):
    text: str
    score: float
    alignment: Alignment | None


class Translation(Reply):
    object: Literal["translation"]
    index: int
    translations: list[Translated]
    """The best first."""


class Translations(Reply):
    object: Literal["list"]
    model: str
    data: list[Translation]
    usage: Usage


class Piece(Reply):
    id: int
    piece: str


class Tokens(Reply):
    tokens: list[Piece]


class Health(Reply):
    status: Literal["ok", "closing"]
    models: dict[str, Literal["loaded", "not loaded", "loading", "failed"]]


REFUSALS = {
    400: "Not understood, or not possible", 401: "No key, or a wrong one", 404: "No such model",
    408: "Not done in time", 413: "Too large", 415: "Not JSON", 429: "Too many are waiting", 503: "Not available now",
}  # fmt: skip


def may(reply: type[Reply], *, streams: bool = False, refusals: tuple[int, ...] = tuple(REFUSALS)) -> dict[str, Any]:
    """How a route answers, for its description."""
    told: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": REFUSALS[status]} for status in refusals
    }
    told[200] = {"model": reply, "description": "Done"}
    if streams:
        data = {"type": "string", "description": "What is new, as JSON; [DONE] is the last one"}
        event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
        told[200]["content"] = {"text/event-stream": {"schema": event}}
    return {"responses": told, "response_model": None}
