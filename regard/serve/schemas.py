"""The schemas of requests. Types are strict and unknown fields are refused: nothing is dropped silently."""

import secrets
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from regard.config import nearest
from regard.decode.sample import Sampling
from regard.modalities import Modality
from regard.registry import modalities

Schema = TypeVar("Schema", bound=BaseModel)

MOST_NAME = 1024
"""Characters of a model's name, at most."""
MOST_TEXTS = 2048
"""Input texts of one request, at most."""
MOST_IMAGES = 32
"""Images of one request, at most."""
MOST_CHOICES = 128
"""Texts generated for one request, at most."""


def encodable(text: str) -> str:
    """The text, unless it has half a surrogate pair, which JSON can hold but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("has half a surrogate pair, which is no character; send whole ones") from None
    return text


def head_of(pair: list[str | int]) -> list[str | int]:
    """The pair, if it is the name of a layer and the number of a head."""
    if not isinstance(pair[0], str) or not isinstance(pair[1], int):
        raise ValueError("is no head; send the name of a layer and a number")
    return pair


class Neutral:
    """Marks a field of OpenAI's API that is accepted only at the values that change nothing."""

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


Text = Annotated[str, AfterValidator(encodable)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(encodable)]
Off = Annotated[list[str | int], Field(min_length=2, max_length=2), AfterValidator(head_of)]
Zero = Annotated[float | None, Neutral(None, 0)]
Nothing = Annotated[Any, Neutral(None, [], {}, False)]


class Strict(BaseModel):
    """A schema without unknown fields or type conversion."""

    model_config = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown(cls, fields: Any) -> Any:
        for unknown in [name for name in fields if name not in cls.model_fields] if type(fields) is dict else ():
            name = unknown[:60].encode(errors="replace").decode()  # it may have half a surrogate pair
            context = {"name": name, "cure": nearest(name, cls.model_fields)}
            raise PydanticCustomError("unknown_field", "unknown field '{name}'; {cure}", context)
        return fields


class Body(Strict):
    model: Annotated[str, Field(max_length=MOST_NAME), AfterValidator(encodable)]
    """One of the names that /v1/models lists."""
    user: str | None = None
    """Accepted and ignored."""


class Sampled(Body):
    """The fields that decide how tokens are chosen."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """0 takes the most probable token, 1 samples from the model's probabilities; higher is more varied."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Sample among the most probable tokens that together reach this probability."""
    top_k: Annotated[int, Field(ge=1)] | None = None
    """Sample among this many of the most probable tokens."""
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Sample among tokens at least this fraction as probable as the best one."""
    seed: int | None = None
    """Requests with equal seeds and settings get equal texts."""

    @property
    def sampling(self) -> Sampling | None:
        """The sampling settings, or None for greedy decoding. Without a seed every text differs."""
        temperature = 1.0 if self.temperature is None else self.temperature
        if temperature < 1e-6 or self.top_p == 0:
            return None
        seed = secrets.randbits(63) if self.seed is None else self.seed % 2**64
        return Sampling(temperature=temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p, seed=seed)


class StreamOptions(Strict):
    include_usage: bool = False
    """Send one more chunk at the end, with the numbers of tokens."""
    include_obfuscation: Annotated[bool, Neutral(False)] = False


class Generated(Sampled):
    """The fields that completions and chats have in common."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens to generate; a text also ends where the model's context does."""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    """The number of texts for each prompt."""
    stop: Stop | Annotated[list[Stop], Field(max_length=16, fail_fast=True)] | None = None
    """The text ends before the first of these strings."""
    stream: bool | None = None
    """Send the text as it is generated, as server-sent events."""
    stream_options: StreamOptions | None = None
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    logit_bias: Nothing = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class CompletionRequest(Generated):
    prompt: Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    """One text, several, or token ids."""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """Return each token's log-probability, and those of this many most probable tokens."""
    echo: bool | None = None
    """Return the prompt before the text."""
    truncate: bool = False
    """Keep only the end of a prompt that is longer than the model's context, instead of refusing it."""
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
        """The message as chat templates read it."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": self.role, "content": text} | ({} if self.name is None else {"name": self.name})


class ChatRequest(Generated):
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The newer name of max_tokens."""
    logprobs: bool | None = None
    """Return each token's log-probability."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """Return the log-probabilities of this many most probable tokens, too."""
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
    """Accepted and ignored."""
    prompt_cache_key: str | None = None
    """Accepted and ignored: common prefixes of prompts are always shared."""
    safety_identifier: str | None = None
    """Accepted and ignored."""


class EmbeddingRequest(Body):
    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    """Numbers, or the bytes of 32-bit floats in base64."""
    dimensions: Nothing = None
    truncate: bool = False
    """Cut a text that is longer than the model's context, instead of refusing it."""


class TranslationRequest(Sampled):
    input: Texts
    beams: Annotated[int, Field(ge=1, le=32)] | None = None
    """The number of beams; 1 is greedy. The default is the model's own."""
    n: Annotated[int, Field(ge=1, le=32)] = 1
    """The number of translations of each text, the best first."""
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = None
    """The power of the length that scores are divided by."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    alignment: bool = False
    """Return the cross-attention of each target token to the source tokens."""


class ClassificationRequest(Body):
    input: Texts
    second: Texts | None = None
    """The second text of each pair, for a model of pairs."""
    truncate: bool = False
    """Cut a text that is longer than the model's context, instead of refusing it."""


class ImagesRequest(Body):
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_IMAGES, fail_fast=True)]
    """Images as data: URIs, `data:image/png;base64,…`."""
    labels: Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS, fail_fast=True)] | None = None
    """Texts that images are compared with, for a model that reads both; without them it embeds the images."""
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    """The least probability of a detected object (0.5)."""


class VideosRequest(Body):
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_IMAGES, fail_fast=True)]
    """Clips as data: URIs of video files or animated GIFs, `data:video/mp4;base64,…`."""


class TokenizationRequest(Body):
    text: Text


FILES = {record.field: record for name in modalities if (record := modalities[name]).files}
"""The modalities whose items are files, by their field in a request."""


def item_field(record: Modality) -> tuple[Any, Any]:
    """The type and the default of the field that holds one item of a modality."""
    kind = Text if record.value is str else record.value
    return kind | None, Field(None, description=f"One input of a model that reads {record.plural}.")


def with_items(schema: type[Schema]) -> type[Schema]:
    """The schema of a request with a field for each modality whose items are files."""
    fields: dict[str, Any] = {field: item_field(record) for field, record in FILES.items()}
    return create_model(schema.__name__, __base__=schema, **fields)


@with_items
class LookRequest(Body):
    """An input to look at; without one, the input that the server was started with."""

    input: Text | None = None
    second: Text | None = None
    """The second text of a pair."""
    texts: Annotated[list[Text], Field(max_length=64, fail_fast=True)] | None = None
    """Texts that an image is compared with."""
    look: str | None = None
    """The id of an earlier look, whose input is used again."""
    target: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=4096, fail_fast=True)] | None = None
    """Token ids behind a text, or of a translation; the default is the model's own output."""
    kept: Annotated[int, Field(ge=1)] | None = None
    """The number of the text's tokens that stay in front of these; the default is all."""
    off: Annotated[list[Off], Field(max_length=4096, fail_fast=True)] = []
    """Ablated heads: pairs of a layer's name and a head's number."""


class LookedRequest(Body):
    look: str
    """The id of a look, from its response."""


class LayerRequest(LookedRequest):
    layer: Annotated[int, Field(ge=0)]


class HeadRequest(LayerRequest):
    head: Annotated[int, Field(ge=0)]
    window: Annotated[int, Field(ge=0)] = 0


class ProbabilitiesRequest(LookedRequest):
    row: Annotated[int, Field(ge=0)]


class ViewRequest(LookedRequest):
    view: Literal["rollout", "gradient", "ablation", "lens", "patch", "agreement", "beam", "ffn"]
    at: Annotated[int, Field(ge=0)] | None = None
    """The index of one output; the default is all."""
    against: Text | None = None
    """For activation patching: another text of as many tokens."""
