"""What requests hold. Types are taken strictly, and what is not known is refused: nothing is dropped silently."""

import secrets
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from regard.config import nearest
from regard.decode.sample import Sampling

MOST_TEXTS = 2048
"""Inputs of one request."""
MOST_PICTURES = 32
"""Pictures of one request."""
MOST_CHOICES = 128
"""Texts written for one request."""


def writable(text: str) -> str:
    """Half a surrogate pair is JSON, but no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("has half a surrogate pair, which is no character; send whole ones") from None
    return text


def head_of(pair: list[str | int]) -> list[str | int]:
    """A layer and a head."""
    if not isinstance(pair[0], str) or not isinstance(pair[1], int):
        raise ValueError("is no head; send the name of a layer and a number")
    return pair


class Neutral:
    """Of a field that others have: it is taken where it changes nothing."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def check(self, value: Any) -> Any:
        if not any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in self.values):
            raise ValueError("is not supported here; leave it out")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"enum": list(self.values)}


Text = Annotated[str, AfterValidator(writable)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(writable)]
Off = Annotated[list[str | int], Field(min_length=2, max_length=2), AfterValidator(head_of)]
Zero = Annotated[float | None, Neutral(None, 0)]
Nothing = Annotated[Any, Neutral(None, [], {}, False)]


class Strict(BaseModel):
    """Takes what it knows, as it is. It stops at the first mistake: to list all of a large body takes minutes."""

    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown(cls, fields: Any) -> Any:
        unknown = (
            next((name for name in fields if name not in cls.model_fields), None) if type(fields) is dict else None
        )
        if unknown is not None:
            name = unknown[:60].encode(errors="replace").decode()  # it may be no text
            told = {"name": name, "cure": nearest(name, cls.model_fields)}
            raise PydanticCustomError("unknown_field", "unknown field '{name}'; {cure}", told)
        return fields


class Body(Strict):
    model: Text
    """One of the names that /v1/models lists."""
    user: str | None = None
    """Taken, and not used."""


class Drawn(Body):
    """How tokens are chosen."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 takes the best token, 1 draws as the model says; below it is more cautious, above more varied."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Draws among the best tokens that together reach this probability."""
    top_k: Annotated[int, Field(ge=1)] | None = None
    """Draws among this many of the best tokens."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Draws among tokens at least this fraction as probable as the best one."""
    seed: int | None = None
    """The same seed gives the same text."""

    @property
    def sampling(self) -> Sampling | None:
        """How to draw, or None for the best tokens. Texts that nobody gave a seed are to differ."""
        temperature = 1.0 if self.temperature is None else self.temperature
        if temperature < 1e-6 or self.top_p == 0:
            return None
        seed = secrets.randbits(63) if self.seed is None else self.seed % 2**64
        return Sampling(temperature=temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p, seed=seed)


class StreamOptions(Strict):
    include_usage: bool = False
    """One chunk more at the end, with the numbers of tokens."""
    include_obfuscation: Annotated[bool, Neutral(False)] = False


class Written(Drawn):
    """What completions and chats have in common."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens to write; a text also ends where the model's context does."""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    """How many texts to write."""
    stop: Stop | Annotated[list[Stop], Field(max_length=16, fail_fast=True)] | None = None
    """A text ends before the first of these."""
    stream: bool | None = None
    """Send the text as it is written, as server-sent events."""
    stream_options: StreamOptions | None = None
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    logit_bias: Nothing = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(Written):
    prompt: Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    """One text, several, or token ids."""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """Tell each token's log-probability, and this many of the likeliest beside it."""
    echo: bool | None = None
    """Begin with the prompt."""
    truncate: bool = False
    """Read the end of a prompt that is longer than the model's context, instead of refusing it."""
    best_of: Annotated[int | None, Neutral(None, 1)] = None
    suffix: Nothing = None


class Part(Strict):
    type: Literal["text"]
    text: Text


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    name: Text | None = None
    refusal: Nothing = None
    tool_calls: Nothing = None
    function_call: Nothing = None
    audio: Nothing = None
    annotations: Nothing = None

    @property
    def plain(self) -> dict[str, str]:
        """As chat templates know messages."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text} | ({} if self.name is None else {"name": self.name})


class ChatRequest(Written):
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The newer name of max_tokens."""
    logprobs: bool | None = None
    """Tell each token's log-probability."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """And this many of the likeliest beside it."""
    response_format: Annotated[dict[str, Any] | None, Neutral(None, {"type": "text"})] = None
    tools: Nothing = None
    tool_choice: Annotated[Any, Neutral(None, "none", "auto")] = None
    functions: Nothing = None
    function_call: Annotated[Any, Neutral(None, "none", "auto")] = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[Any, Neutral(None, ["text"])] = None
    audio: Nothing = None
    prediction: Nothing = None
    reasoning_effort: Nothing = None
    verbosity: Nothing = None
    web_search_options: Nothing = None
    service_tier: Annotated[Any, Neutral(None, "auto", "default")] = None
    store: Nothing = None
    metadata: dict[str, Any] | None = None
    """Taken, and not used."""
    prompt_cache_key: str | None = None
    """Taken, and not used: what texts have in common is always read once."""
    safety_identifier: str | None = None
    """Taken, and not used."""


class EmbeddingRequest(Body):
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or the bytes of 32-bit floats in base64."""
    dimensions: Nothing = None
    truncate: bool = False
    """Cut what is longer than the model's context, instead of refusing it."""


class TranslationRequest(Drawn):
    input: Texts
    beams: Annotated[int, Field(ge=1, le=32)] | None = None
    """1 is greedy; without, as the model was made for."""
    n: Annotated[int, Field(ge=1, le=32)] = 1
    """How many translations of each text, best first."""
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    """Scores are divided by length to this power."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    alignment: bool = False
    """Tell which source tokens the model looked at for each target token."""


class ClassificationRequest(Body):
    input: Texts
    second: Texts | None = None
    """For a model of pairs: the second text of each."""
    truncate: bool = False
    """Cut what is longer than the model's context, instead of refusing it."""


class PicturesRequest(Body):
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_PICTURES, fail_fast=True)]
    """Pictures as data: URIs, `data:image/png;base64,…`."""
    labels: Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)] | None = None
    """Texts that pictures are compared with, for a model that knows both; without, each becomes a vector."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least probability of a thing that is found (0.5)."""


class TokenizationRequest(Body):
    text: Text


class LookRequest(Body):
    """An input to look into; without one, what the server was opened with."""

    input: Text | None = None
    second: Text | None = None
    """The second text of a pair."""
    image: Text | None = None
    """A data: URI, for image models."""
    texts: Annotated[list[Text], Field(max_length=64, fail_fast=True)] | None = None
    """Texts that an image is compared with."""
    look: str | None = None
    """An earlier look: the same input again."""
    target: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=4096, fail_fast=True)] | None = None
    """Tokens chosen behind a text, or of a translation; without, the model's own."""
    kept: Annotated[int, Field(ge=1)] | None = None
    """The number of a text's tokens that stay in front of these; without, all."""
    off: Annotated[list[Off], Field(max_length=4096, fail_fast=True)] = []
    """Ablated heads: names of layers, and numbers."""


class LookedRequest(Body):
    look: str
    """The name of a look, from its answer."""


class LayerRequest(LookedRequest):
    layer: Annotated[int, Field(ge=0)]


class HeadRequest(LayerRequest):
    head: Annotated[int, Field(ge=0)]
    window: Annotated[int, Field(ge=0)] = 0


class ProbabilitiesRequest(LookedRequest):
    row: Annotated[int, Field(ge=0)]


class ViewRequest(LookedRequest):
    view: Literal["rollout", "gradient", "ablation", "lens", "patch", "agreement"]
    at: Annotated[int, Field(ge=0)] | None = None
    """One output; without, all."""
    against: Text | None = None
    """For a patch: another text of as many tokens."""
