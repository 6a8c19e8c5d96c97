"""The models of a server, each loaded when it is first asked for."""

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from regard.config import nearest
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.hub.chat import find_chat_template
from regard.hub.checkpoint import load_generation, peek_model
from regard.hub.remote import find
from regard.inside.capture.alignments import twin_of
from regard.models import T5
from regard.serve.errors import Refused, closing, full
from regard.serve.settings import Settings
from regard.tasks import Translator
from regard.tasks.image_encoder import ImageEncoder
from regard.tasks.language_model import LanguageModel
from regard.tasks.loading import kind_of, load
from regard.tokens.pixels import PIXELS

VERBS = {
    "generate": "write", "chat": "chat", "translate": "translate", "embed": "embed", "classify": "classify",
    "see": "see", "look": "be looked into",
}  # fmt: skip
"""What can be asked of a model over HTTP."""

Result = TypeVar("Result")
log = logging.getLogger("regard.serve")


class Served:
    """One model: what it does is known at once, its weights are there from the first request on; or it is `loaded`."""

    def __init__(self, name: str, where: str, settings: Settings, loaded: Any = None) -> None:
        self.name, self.path, self.settings, self.loaded = name, find(where), settings, loaded
        model = peek_model(self.path)
        self.does = abilities(self.path, model)
        # Of pictures, no number of tokens says what fits.
        self.reads = hasattr(model.config, "vocab_size") and not (self.path / PIXELS).is_file()
        self.context: int | None = getattr(model.config, "max_len", None) if self.reads else None
        self.since = int(time.time())
        self.error: str | None = None
        self.speaker: Any = None
        self.engine: Engine | None = None
        self.loading: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        if self.speaker is not None:
            return "loaded"
        return "loading" if self.loading is not None else "failed" if self.error is not None else "not loaded"

    async def load(self) -> None:
        """Returns when it is ready to work. Whoever asks meanwhile waits for the same; after a failure it is tried
        anew."""
        if self.speaker is None:
            if self.loading is None:
                self.loading = asyncio.create_task(self._load())
            await asyncio.shield(self.loading)  # others wait for it, even if this one goes

    async def _load(self) -> None:
        begin = time.monotonic()
        try:
            speaker = self.loaded or await asyncio.to_thread(load, self.path, self.settings.quantize)
            if {"generate", "translate"} & set(self.does):
                how = self.settings
                self.engine = speaker.engine = await asyncio.to_thread(
                    Engine, speaker, max_batch=how.max_batch, memory=how.memory, queue=how.queue, threads=how.threads
                )
            self.speaker, self.error = speaker, None
            log.info("loaded %s in %.1f s", self.name, time.monotonic() - begin)
        except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
            self.error = str(error)
            log.error("%s cannot be loaded: %s", self.name, error)
            raise Refused(503, f"model {self.name!r} cannot be loaded: {error}", code="model_unavailable") from None
        finally:
            self.loading = None

    @cached_property
    def twin(self) -> Any:
        """The model once more over the same weights, to look into while the engine works."""
        return twin_of(self.speaker.model)

    @cached_property
    def watched(self) -> Any:
        """The speaker with that twin."""
        other = copy.copy(self.speaker)
        other.model = self.twin
        return other

    @cached_property
    def longest_token(self) -> int:
        """In characters."""
        return max(map(len, self.speaker.tokenizer.inner.get_vocab()))

    def room(self, request: Request) -> int:
        """Tokens that can be written behind a prompt, if all pages were its own."""
        assert self.engine is not None
        pages = self.engine.pages
        return (pages.count - pages.pages_for(len(request.source or ()))) * pages.size - len(request.prompt)

    def check(self, request: Request, prompt: str | Sequence[int]) -> None:
        """A `ValueError` for what the engine would refuse, and for ids that have no text."""
        assert self.engine is not None
        self.engine.check(request)
        if not isinstance(prompt, str):
            self.speaker.tokenizer.decode(prompt)

    def end_of(self, text: str) -> str:
        """As much of the end of a text as a context can hold, at least."""
        return text if self.context is None else text[-self.context * self.longest_token :]

    def check_length(self, texts: Sequence[str], name: str) -> None:
        """Refuses what cannot fit, before it is read: to split megabytes into tokens takes seconds."""
        if self.context is None:
            return
        for number, text in enumerate(texts, 1):
            if len(text) > self.context and len(" ".join(text.split())) > self.context * self.longest_token:
                which = f"{name} {number}" if len(texts) > 1 else name
                raise Refused(
                    400, f"{which} has {len(text):,} characters, far more than the context of {self.context:,} tokens",
                    param=name, code="context_length_exceeded",
                )  # fmt: skip


def abilities(path: Path, model: Any) -> list[str]:
    """What can be asked of a model that is not loaded yet."""
    kind = kind_of(model)
    if (path / PIXELS).is_file():
        return ["look"]
    if issubclass(kind, ImageEncoder):
        return ["see", "look"]
    does = [verb for verb in VERBS if hasattr(kind, verb)]
    if issubclass(kind, Translator) and not isinstance(model, T5):  # only those know other tasks than the one
        does.remove("generate")
    if issubclass(kind, LanguageModel) and path.is_dir():
        if find_chat_template(path) is not None or load_generation(path)["prompt_end"]:
            does.append("chat")
    return [*does, "look"]


class Shelf:
    """All models of a server by name, some `loaded` by others, and one thread for those that read."""

    def __init__(self, models: dict[str, str], settings: Settings, loaded: Mapping[str, Any] | None = None) -> None:
        self.settings, loaded = settings, loaded or {}
        self.models = {name: Served(name, where, settings, loaded.get(name)) for name, where in models.items()}
        self.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="regard-reader")
        self.reading = 0
        self.closing = self.closed = False  # told to stop; and out of time

    def __iter__(self) -> Iterator[Served]:
        return iter(self.models.values())

    def find(self, name: str) -> Served:
        if name not in self.models:
            raise Refused(404, f"no model {name!r} here; {nearest(name, self.models)}", param="model",
                          code="model_not_found")  # fmt: skip
        return self.models[name]

    async def take(self, name: str, verb: str) -> Served:
        """A model that can do something, ready for it."""
        served = self.find(name)
        if verb not in served.does:
            able = [one.name for one in self if verb in one.does]
            does = " and ".join(VERBS[one] for one in served.does)
            cure = f"ask {' or '.join(able)}" if able else "no model here does"
            raise Refused(400, f"model {name!r} can {does}, it cannot {VERBS[verb]}; {cure}", param="model")
        await served.load()
        return served

    async def read(self, work: Callable[..., Result], *args: Any) -> Result:
        """Work that is done at once, in turn with that of others."""
        if self.closed:
            raise closing()
        if self.reading >= self.settings.queue:
            raise full()
        self.reading += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.reader, work, *args)
        finally:
            self.reading -= 1

    def close(self) -> None:
        """Ends all that is still being written, and lets nothing begin."""
        self.closing = self.closed = True
        for engine in [one.engine for one in self if one.engine is not None]:
            for job in [*engine.running, *engine.waiting]:
                engine.cancel(job.ticket)


def name_models(words: Iterable[str]) -> dict[str, str]:
    """`runs/demo` is served as demo, `NAME=PATH` by that name, `owner/model` of the Hub by its own."""
    named: dict[str, str] = {}
    for word in words:
        name, equals, where = word.partition("=")
        if not equals or Path(word).exists():
            where = word
            name = Path(word).name or Path(word).resolve().name if Path(word).exists() else word
        if not name or not where:
            raise ValueError(f"{word!r} is neither a model nor NAME=PATH")
        if name in named:
            raise ValueError(f"two models are called {name!r}; give one another name: other={where}")
        named[name] = where
    return named
