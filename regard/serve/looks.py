"""/v1/look: the data of the page's view into a model. A pass is kept for a while: its weights are asked for later.

These routes are the page's own; the API's description leaves them out.
"""

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request

from regard.inside.page import Page
from regard.serve import schemas
from regard.serve.answers import run_in_worker
from regard.serve.errors import Refused
from regard.serve.inputs import receive
from regard.serve.model_store import ServedModel
from regard.serve.state import state_of

router = APIRouter(prefix="/v1/look", include_in_schema=False)
ROOM = 512 * 2**20
"""Bytes for passes that are kept; the latest alone may have more. Older ones have to be computed again."""
BESIDES = 2**20
"""Bytes that a pass is estimated to have beside its tensors."""
MOST_PASSES = 400
"""Heads that are ablated one after the other for one request."""
MOST_COPIES = 4000
"""Changed copies of an input that one view computes; most go through a model many at a time."""


class Looks:
    """A cache of recorded forward passes by random id, limited by memory."""

    def __init__(self) -> None:
        self.pages: OrderedDict[str, Page] = OrderedDict()

    def add(self, page: Page) -> str:
        name = secrets.token_hex(12)
        self.pages[name] = page
        while len(self.pages) > 1 and sum(one.nbytes + BESIDES for one in self.pages.values()) > ROOM:
            self.pages.popitem(last=False)
        return name

    def forget(self, model: str) -> None:
        """Drop the passes of a model, which keep its weights in memory."""
        for name in [name for name, page in self.pages.items() if page.name == model]:
            del self.pages[name]

    def find(self, name: str, model: str) -> Page:
        page = self.pages.get(name)
        if page is None or page.name != model:
            raise Refused(
                404, "the server no longer stores this look; request it again", code="look_gone", param="look"
            )
        self.pages.move_to_end(name)
        return page


@router.post("")
async def look(body: schemas.LookRequest, request: Request) -> dict[str, Any]:
    """Run a model on an input; return its tokens, layers and answer."""
    state = state_of(request)
    served = await state.store.take(request.scope, body.model, "look")
    if body.look is None and body.model_fields_set & {"input", *schemas.FILES}:
        read = sent(body, served)
    else:
        inputs = state.opening if body.look is None else state.looks.find(body.look, body.model).inputs
        if not inputs:
            field = served.modality.field if served.modality.files else "input"
            raise Refused(400, f"there is nothing to look at; send {field}", param=field)
        inputs = inputs if body.texts is None else (inputs[0], *body.texts)
        read = partial(tuple[Any, ...], inputs)

    off: list[Any] = [tuple(head) for head in body.off]

    def work() -> tuple[Page, dict[str, Any]]:
        page = Page(served.watched, *read(), target=body.target, kept=body.kept, off=off, name=body.model)
        return page, page.describe()

    page, described = await run_in_worker(request, work)
    return described | {"look": state.looks.add(page)}


@router.get("/examples")
async def examples(model: str, request: Request) -> dict[str, Any]:
    """Return inputs to try with a model, and the canvas to draw one on."""
    served = state_of(request).store.find(model)
    try:
        return await asyncio.to_thread(lambda: served.examples)
    except (ValueError, ImportError, OSError) as error:
        raise Refused(400, f"there are no examples: {error}", param="model") from None


def sent(body: schemas.LookRequest, served: ServedModel) -> Callable[[], tuple[Any, ...]]:
    """Return a function that reads the inputs of a model from a request, for a worker. Texts never name files."""
    texts = [text for text in (body.input, body.second, *(body.texts or ())) if text is not None]
    record = served.modality
    files = {name: value for name in schemas.FILES if (value := getattr(body, name)) is not None}
    served.check_length(texts, "input")
    if not record.files:
        for field in files:
            raise Refused(400, f"model {body.model!r} reads texts; send input", param=field)
        return lambda: tuple(texts)
    field = record.field
    if field not in files:
        form = ", a data: URI" if record.value is str else ""
        raise Refused(400, f"model {body.model!r} reads {record.plural}; send {field}{form}", param=field)
    return lambda: (*receive(record, [files[field]], field), *texts)


@router.post("/layer")
async def layer(body: schemas.LayerRequest, request: Request) -> dict[str, Any]:
    """Return the weights of all heads of one layer."""
    page = state_of(request).looks.find(body.look, body.model)
    return await run_in_worker(request, lambda: page.layer(body.layer))


@router.post("/head")
async def head(body: schemas.HeadRequest, request: Request) -> dict[str, Any]:
    """Return q, k, v and the steps to the weights of one head."""
    page = state_of(request).looks.find(body.look, body.model)
    return await run_in_worker(request, lambda: page.head(body.layer, body.head, body.window))


@router.post("/probabilities")
async def probabilities(body: schemas.ProbabilitiesRequest, request: Request) -> dict[str, Any]:
    """The most probable outputs of one row."""
    page = state_of(request).looks.find(body.look, body.model)
    return await run_in_worker(request, lambda: page.probabilities(body.row))


@router.post("/effects")
async def effects(body: schemas.LookedRequest, request: Request) -> dict[str, Any]:
    """The change of the answer when each head alone is ablated."""
    page = state_of(request).looks.find(body.look, body.model)
    count = sum(layer.heads for layer in page.layers)
    if count > MOST_PASSES:
        raise Refused(400, f"the model has {count} heads, at most {MOST_PASSES} are tried; switch some off by hand")
    gone = threading.Event()
    try:
        return await run_in_worker(
            request, lambda: {"effects": page.effects(gone.is_set), "alignment": page.best_alignment()}
        )
    finally:
        gone.set()  # nobody waits: others may have their turn


@router.post("/view")
async def view(body: schemas.ViewRequest, request: Request) -> dict[str, Any]:
    """Return an explanation of the outputs."""
    state = state_of(request)
    page = state.looks.find(body.look, body.model)
    if body.against is not None:
        state.store.find(body.model).check_length([body.against], "against")
    if (count := page.copies(body.view)) > MOST_COPIES:
        raise Refused(400, f"this view tries the input {count:,} times, at most {MOST_COPIES:,}; give a shorter one")
    return await run_in_worker(request, lambda: page.view(body.view, at=body.at, against=body.against))
