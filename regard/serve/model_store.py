"""The models of a server, each loaded by the first request for it, and evicted when others need its memory."""

import asyncio
import copy
import gc
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from starlette.types import Scope

from regard.config import nearest
from regard.cost.report import decimal_size
from regard.decode.engine import Engine
from regard.decode.requests import Request
from regard.hub.checkpoint import peek_model, stored_quantize
from regard.hub.files import weight_files
from regard.hub.remote import find
from regard.inside.capture.alignments import twin_of
from regard.modalities import Modality
from regard.registry import modalities
from regard.serve.allocator import return_freed
from regard.serve.errors import Refused, timed_out
from regard.serve.guard import AFTER
from regard.serve.pools import Pools
from regard.serve.settings import Settings
from regard.tasks.loading import load, task_of
from regard.tasks.page_examples import examples_of

log = logging.getLogger("regard.serve")
NAME_SHOWN = 60
"""Characters of a wrong model's name that its error repeats and compares."""
SHRINKS = {"none": 1, "bfloat16": 2, "int8": 4, "int4": 8}
"""The factor by which quantization shrinks weights, at most."""
SPACES = 8
"""Characters of a text for each that its tokens can hold: a tokenizer may drop spaces, but this many are no text."""


MOST_TOKENS = 1 << 14
"""Tokens of a text for a model that has no limit of its own."""


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
        self.context: int | None = getattr(model.config, "max_len", MOST_TOKENS) if self.can("tokenize") else None
        self.created = int(time.time())
        self.error: str | None = None
        self.task: Any = None
        self.engine: Engine | None = None
        self.loading: asyncio.Task[None] | None = None
        self.memory = 0  # bytes of its weights, and those that its key/value cache may take
        self.users, self.used = 0, 0  # requests that it answers; the turn of the latest
        self.leaving = False  # its memory is needed: it answers no new requests
        self.evictions = 0

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

    def load(self) -> None:
        """Load the model into memory; not for the event loop."""
        begin = time.monotonic()
        try:
            task = self.loaded or load(self.path, self.settings.quantize)
            limits = {name: getattr(self.settings, name) for name in ("max_batch", "memory", "queue", "threads")}
            task.limit_engine(**limits)
            self.engine = task.engine if task.streams else None
            tensors = [*task.model.parameters(), *task.model.buffers()]
            self.memory = self.cache + sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())
            self.task, self.error = task, None
            if self.context is not None:
                self.longest_token  # noqa: B018  computed here, since a large vocabulary takes a moment
            log.info("loaded %s in %.1f s", self.name, time.monotonic() - begin)
        except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
            self.error = str(error)
            log.error("%s cannot be loaded: %s", self.name, error)
            raise Refused(503, f"model {self.name!r} cannot be loaded: {error}", code="model_unavailable") from None

    def unload(self) -> None:
        """Free the memory of the model."""
        self.task, self.engine, self.memory = None, None, 0
        for name in ("twin", "watched", "longest_token"):
            self.__dict__.pop(name, None)
        gc.collect()  # an engine and its thread refer to each other
        return_freed()

    @property
    def cache(self) -> int:
        return self.settings.memory if self.kind.generates else 0

    @cached_property
    def least_memory(self) -> int:
        """Bytes that it takes at least, from the sizes of the files that its weights are read from."""
        try:
            files = weight_files(self.path) if self.path.is_dir() else [self.path]
            kind = self.settings.quantize or stored_quantize(self.path)
            size = sum(file.stat().st_size for file in files) // SHRINKS[kind]
        except (ValueError, OSError):  # an adapter without weights of its own; of a damaged model, loading says it
            size = 0
        return self.cache + size

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
        return self.task.longest_token

    def room(self, request: Request) -> int:
        """The number of tokens that fit behind a prompt if the request had all cache pages."""
        assert self.engine is not None
        pages, source = self.engine.pages, self.engine.runner.source_length(request)
        return (pages.count - pages.pages_for(source)) * pages.size - len(request.prompt)

    def check(self, request: Request, prompt: str | Sequence[int]) -> None:
        """Raise `ValueError` for a request that the engine would refuse, or for ids outside the vocabulary."""
        assert self.engine is not None
        self.engine.check(request)
        if not isinstance(prompt, str):
            self.task.tokenizer.decode(prompt)

    @property
    def most_characters(self) -> int | None:
        """The most characters that fit the context, if every token were the longest one."""
        return None if self.context is None else self.context * self.longest_token

    def end_of(self, text: str) -> str:
        """Return the last part of a text, with at least as many tokens as fit the context."""
        return text if self.most_characters is None else text[-self.most_characters :]

    def start_of(self, text: str) -> str:
        """Return the first part of a text, with at least as many tokens as fit the context unless most are spaces."""
        return text if self.most_characters is None else text[: SPACES * self.most_characters]

    def check_length(self, texts: Sequence[str], field: str, *, parts: bool = False) -> None:
        """Refuse texts that cannot fit the context before they are tokenized: megabytes would take seconds. Texts that
        are read in `parts` need not fit, but have a limit, too."""
        most = self.most_characters
        if most is None:
            return
        for number, text in enumerate(texts, 1):
            size = len(text)
            if size > SPACES * most or (size > most and not parts and len(" ".join(text.split())) > most):
                which = f"{field} {number}" if len(texts) > 1 else field
                raise Refused(
                    400, f"{which} has {size:,} characters, far more than the context of {self.context} tokens; "
                    "shorten it", param=field, code="context_length_exceeded",
                )  # fmt: skip


class ModelStore:
    """All models of a server by name, and the threads that work for their requests."""

    def __init__(self, models: dict[str, str], settings: Settings, loaded: Mapping[str, Any] | None = None) -> None:
        self.settings, loaded = settings, loaded or {}
        self.models = {name: ServedModel(name, where, settings, loaded.get(name)) for name, where in models.items()}
        self.pools = Pools(settings.queue)
        self.lock, self.changed, self.turns = asyncio.Lock(), asyncio.Event(), itertools.count(1)
        self.on_unload: Callable[[str], Any] = lambda name: None
        self.closing = False  # a signal arrived; `pools` are closed after the grace period

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self.models.values())

    def find(self, name: str) -> ServedModel:
        if name not in self.models:
            name = name[:NAME_SHOWN]
            raise Refused(404, f"no model {name!r} here; {nearest(name, self.models)}", param="model",
                          code="model_not_found")  # fmt: skip
        return self.models[name]

    async def take(self, scope: Scope, name: str, ability: str) -> ServedModel:
        """The model of this name, loaded and held until the response to a request has been sent; a refusal if it lacks
        the ability."""
        served = self.find(name)
        if not served.can(ability):
            able = [other.name for other in self if other.can(ability)]
            cure = f"ask {' or '.join(able)}" if able else "no model here does"
            raise Refused(400, f"model {name!r} can {' and '.join(served.does)}, not {ability}; {cure}", param="model")
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self.hold(served)
        except TimeoutError:
            raise timed_out(self.settings.timeout) from None
        scope[AFTER].append(partial(self.release, served))
        return served

    async def hold(self, served: ServedModel) -> None:
        """Return when the model is loaded and kept from leaving. It is kept from the moment that it is waited for: two
        models that need each other's memory would otherwise leave before they are used."""
        while served.leaving:
            await self.change()
        served.users, served.used = served.users + 1, next(self.turns)
        try:
            if served.task is None:
                await self.load(served)
        except BaseException:
            self.release(served)
            raise

    def release(self, served: ServedModel) -> None:
        served.users -= 1
        self.changed.set()

    async def change(self) -> None:
        """Wait until a model is released, or has left."""
        self.changed.clear()
        await self.changed.wait()

    async def load(self, served: ServedModel) -> None:
        """Return when the model is in memory. Requests share one attempt; after a failure the next one tries again."""
        if served.loading is None:
            served.loading = asyncio.create_task(self._load(served))
        await asyncio.shield(served.loading)  # other requests wait for it even if this one is cancelled

    async def _load(self, served: ServedModel) -> None:
        limit = self.settings.models_memory
        try:
            async with self.lock if limit else nullcontext():
                if limit:
                    await self.make_room(served, served.least_memory, limit)
                await asyncio.to_thread(served.load)
                if limit:
                    await self.make_room(served, served.memory, limit)
        finally:
            served.loading = None

    async def make_room(self, served: ServedModel, need: int, limit: int) -> None:
        """Evict the models whose last request is the longest ago until `need` bytes are left for this one. A model that
        answers is evicted last: it gets no new requests, and leaves when the present ones are answered."""
        if need > limit:
            await self.unload(served)
            fact = f"model {served.name!r} needs {decimal_size(need)}, --models-memory is {decimal_size(limit)}"
            served.error = f"{fact}; raise it, or serve it with --quantize int8 or a lower --memory-gb"
            raise Refused(503, served.error, code="model_unavailable")
        while others := [other for other in self if other is not served and other.task is not None]:
            if need + sum(other.memory for other in others) <= limit:
                return
            oldest = min(others, key=lambda other: (other.users > 0, other.used))
            oldest.leaving = True
            while oldest.users:
                await self.change()
            await self.unload(oldest)
            oldest.leaving, oldest.evictions = False, oldest.evictions + 1
            self.changed.set()
            log.info("evicted %s for %s", oldest.name, served.name)

    async def unload(self, served: ServedModel) -> None:
        """Free the memory of a model that nobody uses, after work of the worker thread that nobody waits for."""
        self.on_unload(served.name)
        await asyncio.get_running_loop().run_in_executor(self.pools.worker.executor, served.unload)

    def close(self) -> None:
        """Cancel all requests of all engines and accept no new work."""
        self.closing = self.pools.closed = True
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
