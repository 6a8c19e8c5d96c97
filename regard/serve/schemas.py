"""What requests hold. Types are taken strictly, and what is not known is refused: nothing is dropped silently."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from regard.decode.sample import Sampling

STRICT = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True)
MOST_TEXTS = 2048
"""Inputs of one request."""
MOST_CHOICES = 128
"""Texts written for one request."""


def writable(text: str) -> str:
    """Half a surrogate pair is JSON, but no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("has half a surrogate pair, which is no character; send whole ones") from None
    return text


def neutral(*values: Any) -> AfterValidator:
    """Fields that others have: taken where they change nothing."""

    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError("is not supported here; leave it out")
        return value

    return AfterValidator(check)


Text = Annotated[str, AfterValidator(writable)]
Texts = Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
Stop = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(writable)]
Zero = Annotated[float | None, neutral(None, 0)]
Nothing = Annotated[Any, neutral(None, [], {}, False)]


class Body(BaseModel):
    model_config = ConfigDict(**STRICT, allow_inf_nan=False)

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
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """The same seed gives the same text."""

    def sampling(self, otherwise: float, seed: int) -> Sampling | None:
        """How to draw, or None for the best tokens; what is not told is `otherwise` the temperature, and `seed`."""
        temperature = otherwise if self.temperature is None else self.temperature
        if temperature < 1e-6 or self.top_p == 0:
            return None
        seed = seed if self.seed is None else self.seed % 2**64
        return Sampling(temperature=temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p, seed=seed)


class StreamOptions(BaseModel):
    model_config = ConfigDict(**STRICT)

    include_usage: bool = False
    """One chunk more at the end, with the numbers of tokens."""
    include_obfuscation: Annotated[bool, neutral(False)] = False


class Written(Drawn):
    """What completions and chats have in common."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens to write; a text also ends where the model's context does."""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    """How many texts to write."""
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
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
    prompt: Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS)]
    """One text, several, or token ids."""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """Tell each token's log-probability, and this many of the likeliest beside it."""
    echo: bool | None = None
    """Begin with the prompt."""
    best_of: Annotated[int | None, neutral(None, 1)] = None
    suffix: Nothing = None


class Part(BaseModel):
    model_config = ConfigDict(**STRICT)

    type: Literal["text"]
    text: Text


class Message(BaseModel):
    model_config = ConfigDict(**STRICT)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(min_length=1)]
    name: Text | None = None


class ChatRequest(Written):
    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_TEXTS)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """The newer name of max_tokens."""
    logprobs: bool | None = None
    """Tell each token's log-probability."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """And this many of the likeliest beside it."""
    response_format: Annotated[dict[str, Any] | None, neutral(None, {"type": "text"})] = None
    tools: Nothing = None
    tool_choice: Annotated[Any, neutral(None, "none", "auto")] = None
    store: Nothing = None
    metadata: dict[str, str] | None = None
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


class TokenizationRequest(Body):
    text: Text
