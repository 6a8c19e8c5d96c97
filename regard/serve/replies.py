"""The schemas of responses, for the description at /docs and for those who check it."""

from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

Row = TypeVar("Row")


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Problem(Reply):
    message: str
    """The error, and its cure."""
    type: str
    param: str | None
    """The field of the request that is wrong."""
    code: str | None


class Error(Reply):
    error: Problem


class Model(Reply):
    id: str
    object: Literal["model"]
    created: int
    owned_by: Literal["regard"]
    does: list[str]
    """Its abilities, each with a route: generate, chat, translate, embed, classify, images, …"""
    summary: str
    """Its task in words: labels images, …"""
    inputs: list[str]
    """The modalities that it reads: text, image, …"""
    loaded: bool
    memory: int
    """Bytes of its weights in memory and of its key/value cache; 0 if it is not loaded."""
    evictions: int
    """The number of times that it left the memory for another model."""
    context: int | None
    """The number of tokens that it can attend to at once."""
    error: str | None
    """Why it could not be loaded."""
    field: str
    """The field of a request that holds one input."""
    widget: Literal["text", "file"]
    """The control of the page that takes an input."""
    accept: str
    """The files that this control offers."""


class Models(Reply):
    object: Literal["list"]
    data: list[Model]


class ReadUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class Usage(ReadUsage):
    completion_tokens: int


class ListOf(Reply, Generic[Row]):
    """A row for each input."""

    object: Literal["list"]
    model: str
    data: list[Row]


class ListAndUsage(ListOf[Row], Generic[Row]):
    usage: ReadUsage


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


class TokenLogProb(Reply):
    token: str
    logprob: float
    bytes: list[int]


class Token(TokenLogProb):
    top_logprobs: list[TokenLogProb]


class ChatLogProbs(Reply):
    content: list[Token]
    refusal: None


class AssistantMessage(Reply):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Reply):
    index: int
    message: AssistantMessage
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


class Label(Reply):
    label: str
    probability: float


class Classification(Label):
    object: Literal["classification"]
    index: int
    labels: list[Label]
    """All labels, the most probable first."""


class DetectedObject(Label):
    box: list[float]
    """Left, top, right, bottom in pixels."""


class Caption(Reply):
    text: str
    score: float


class Image(Reply):
    """The answer of a model for one image, in the fields of its task."""

    object: Literal["image"]
    index: int
    labels: list[Label] | None = None
    """All labels, the most probable first."""
    objects: list[DetectedObject] | None = None
    """The most probable first."""
    caption: str | None = None
    """The best caption."""
    captions: list[Caption] | None = None
    embedding: list[float] | None = None
    """A vector of length 1."""


class Video(Reply):
    """The answer of a model for one clip, in the fields of its task."""

    object: Literal["video"]
    index: int
    labels: list[Label] | None = None
    """All labels, the most probable first."""
    label: str | None = None
    """The most probable label."""
    embedding: list[float] | None = None
    """A vector of length 1."""


class Answer(BaseModel):
    """The answer of a model for one input; its other fields depend on the verb."""

    index: int


class Seconds(Reply):
    type: Literal["duration"]
    seconds: float


class Transcription(BaseModel):
    """The transcript of a recording; verbose_json adds task, language, duration and segments."""

    text: str
    usage: Seconds


class Alignment(Reply):
    """The cross-attention of each target token to the source tokens: a row each, which sums to 1."""

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


class Translations(ListOf[Translation]):
    usage: Usage


class Piece(Reply):
    id: int
    piece: str


class Tokens(Reply):
    tokens: list[Piece]


class Health(Reply):
    status: Literal["ok", "closing"]
    models: dict[str, Literal["loaded", "not loaded", "loading", "failed"]]


ERRORS = {
    400: "Not understood, or not possible", 401: "No key, or a wrong one", 404: "No such model",
    408: "Not done in time", 413: "Too large", 415: "Not JSON", 429: "Too many requests are waiting",
    503: "Not available now",
}  # fmt: skip


def documented(
    reply: type[BaseModel], *, streams: bool = False, errors: tuple[int, ...] = tuple(ERRORS)
) -> dict[str, Any]:
    """Arguments of a route that describe its responses; they are not validated when they are sent."""
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": ERRORS[status]} for status in errors
    }
    responses[200] = {"model": reply, "description": "Done"}
    if streams:
        data = {"type": "string", "description": "The new tokens, as JSON; [DONE] is the last event"}
        event = {"type": "object", "properties": {"data": data}, "required": ["data"]}
        responses[200]["content"] = {"text/event-stream": {"schema": event}}
    return {"responses": responses, "response_model": None}
