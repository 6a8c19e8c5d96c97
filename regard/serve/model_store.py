"""The models of a server, each loaded by the first request for it."""

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
from regard.hub.checkpoint import peek_model
from regard.hub.remote import find
from regard.inside.capture.alignments import twin_of
from regard.modalities import Modality
from regard.registry import modalities
from regard.serve.errors import Refused, closing, full
from regard.serve.settings import Settings
from regard.tasks.loading import load, task_of
from regard.tasks.page_examples import examples_of

Result = TypeVar("Result")
log = logging.getLogger("regard.serve")


class ServedModel:
    """A model by name. Its abilities are known at once; its weights are loaded by the first request, unless the loaded
    task is given."""

    def __init__(self, name: str, where: str, settings: Settings, loaded: Any = None) -> None:
        self.name, self.path, self.settings, self.loaded = name, find(where), settings, loaded
        model = peek_model(self.path)
        kind = task_of(self.path, model)
        self.kind, self.config = kind, model.config
        self.inputs, self.verbs = kind.inputs, {verb.name: verb for verb in kind.verbs}
        self.does = [*kind.abilities(self.path, model), "look"]
        self.summary = ", ".join(dict.fromkeys(verb.does for verb in kind.verbs if self.can(verb.ability or verb.name)))
        self.context: int | None = getattr(model.config, "max_len", None) if self.can("tokenize") else None
        self.created = int(time.time())
        self.error: str | None = None
        self.task: Any = None
        self.engine: Engine | None = None
        self.loading: asyncio.Task[None] | None = None

    def options(self, verb: str) -> set[str]:
        """The names of the options of a verb."""
        return {option.name for option in self.verbs[verb].options}

    def can(self, ability: str) -> bool:
        """Whether the model has an ability; every model that reads text can tokenize."""
        return ability in self.does or (ability == "tokenize" and "text" in self.inputs)

    @property
    def modality(self) -> Modality:
        """The modality of its first input."""
        return modalities[self.inputs[0]]

    @cached_property
    def examples(self) -> dict[str, Any]:
        """Inputs to try, and the size of the canvas to draw one on; its weights are not needed."""
        canvas = self.modality.canvas(self.path, self.config)
        return {"data": examples_of(self.kind, self.path, self.config), "canvas": canvas}

    @property
    def state(self) -> str:
        if self.task is not None:
            return "loaded"
        return "loading" if self.loading is not None else "failed" if self.error is not None else "not loaded"

    async def load(self) -> None:
        """Return when the model is in memory. Requests share one attempt; after a failure the next one tries again."""
        if self.task is None:
            if self.loading is None:
                self.loading = asyncio.create_task(self._load())
            await asyncio.shield(self.loading)  # other requests wait for it even if this one is cancelled

    async def _load(self) -> None:
        begin = time.monotonic()
        try:
            task = self.loaded or await asyncio.to_thread(load, self.path, self.settings.quantize)
            limits = {name: getattr(self.settings, name) for name in ("max_batch", "memory", "queue", "threads")}
            task.limit_engine(**limits)
            if task.streams:
                self.engine = await asyncio.to_thread(getattr, task, "engine")
            self.task, self.error = task, None
            log.info("loaded %s in %.1f s", self.name, time.monotonic() - begin)
        except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
            self.error = str(error)
            log.error("%s cannot be loaded: %s", self.name, error)
            raise Refused(503, f"model {self.name!r} cannot be loaded: {error}", code="model_unavailable") from None
        finally:
            self.loading = None

    @cached_property
    def twin(self) -> Any:
        """A second module tree over the same weights, to record attention from while the engine runs the first."""
        return twin_of(self.task.model)

    @cached_property
    def watched(self) -> Any:
        """A copy of the task that runs the twin."""
        other = copy.copy(self.task)
        other.model = self.twin
        return other

    @cached_property
    def longest_token(self) -> int:
        """The number of characters of the longest token."""
        return max(map(len, self.task.tokenizer.inner.get_vocab()))

    def room(self, request: Request) -> int:
        """The number of tokens that fit behind a prompt if the request had all cache pages."""
        assert self.engine is not None
        pages = self.engine.pages
        return (pages.count - pages.pages_for(request.source_length)) * pages.size - len(request.prompt)

    def check(self, request: Request, prompt: str | Sequence[int]) -> None:
        """Raise `ValueError` for a request that the engine would refuse, or for ids outside the vocabulary."""
        assert self.engine is not None
        self.engine.check(request)
        if not isinstance(prompt, str):
            self.task.tokenizer.decode(prompt)

    def end_of(self, text: str) -> str:
        """Return the last part of a text, with at least as many tokens as fit the context."""
        return text if self.context is None else text[-self.context * self.longest_token :]

    def check_length(self, texts: Sequence[str], field: str) -> None:
        """Refuse texts that cannot fit the context before they are tokenized: megabytes would take seconds."""
        if self.context is None:
            return
        for number, text in enumerate(texts, 1):
            if len(text) > self.context and len(" ".join(text.split())) > self.context * self.longest_token:
                which = f"{field} {number}" if len(texts) > 1 else field
                raise Refused(
                    400, f"{which} has {len(text):,} characters, far more than the context of {self.context:,} tokens; "
                    "shorten it", param=field, code="context_length_exceeded",
                )  # fmt: skip


class ModelStore:
    """All models of a server by name, and one worker thread for the requests that need no engine."""

    def __init__(self, models: dict[str, str], settings: Settings, loaded: Mapping[str, Any] | None = None) -> None:
        self.settings, loaded = settings, loaded or {}
        self.models = {name: ServedModel(name, where, settings, loaded.get(name)) for name, where in models.items()}
        self.worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="regard-worker")
        self.pending = 0
        self.closing = self.closed = False  # a signal arrived; the grace period is over

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.models.values())

    def find(self, name: str) -> ServedModel:
        if name not in self.models:
            raise Refused(404, f"no model {name!r} here; {nearest(name, self.models)}", param="model",
                          code="model_not_found")  # fmt: skip
        return self.models[name]

    async def take(self, name: str, ability: str) -> ServedModel:
        """The loaded model of this name, or a refusal if it lacks the ability."""
        served = self.find(name)
        if not served.can(ability):
            able = [other.name for other in self if other.can(ability)]
            cure = f"ask {' or '.join(able)}" if able else "no model here does"
            raise Refused(400, f"model {name!r} can {' and '.join(served.does)}, not {ability}; {cure}", param="model")
        await served.load()
        return served

    async def run(self, work: Callable[..., Result], *args: Any) -> Result:
        """The result of a function call in the worker thread, after the calls that came before."""
        if self.closed:
            raise closing()
        if self.pending >= self.settings.queue:
            raise full()
        self.pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.worker, work, *args)
        finally:
            self.pending -= 1

    def close(self) -> None:
        """Cancel all requests of all engines and accept no new work."""
        self.closing = self.closed = True
        for engine in [served.engine for served in self if served.engine is not None]:
            for job in [*engine.running, *engine.waiting]:
                engine.cancel(job.ticket)


def name_models(words: Iterable[str]) -> dict[str, str]:
    """Names and paths from a command line: `runs/demo` is served as demo, `NAME=PATH` as NAME, a Hub name as itself."""
    named: dict[str, str] = {}
    for word in words:
        name, equals, where = word.partition("=")
        if not equals or Path(word).exists():
            where = word
            name = Path(word).name or Path(word).resolve().name if Path(word).exists() else word
        if not name or not where:
            raise ValueError(f"{word!r} is neither a model nor NAME=PATH; give a directory or a name on the Hub")
        if name in named:
            raise ValueError(f"two models are called {name!r}; give one another name: other={where}")
        named[name] = where
    return named
