"""The ASGI application: routes, OpenAPI description and page."""

from importlib import metadata
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from regard.serve import audio, completions, images, looks, replies, text_routes, videos
from regard.serve.errors import broken, on_http, on_invalid
from regard.serve.guard import Guard, shared
from regard.serve.metrics import Metrics
from regard.serve.model_store import ModelStore, ServedModel
from regard.serve.settings import Settings
from regard.serve.state import State, state_of
from regard.serve.verb_routes import add_route, verbs_without_route

STATIC = Path(__file__).parent / "static"
NEEDS = {
    "/v1/completions": "generate", "/v1/chat/completions": "chat", "/v1/embeddings": "embed",
    "/v1/translations": "translate", "/v1/classifications": "classify", "/v1/tokenize": "tokenize",
    "/v1/images": "images",
    "/v1/videos": "videos",
}  # fmt: skip
"""The ability that a model needs for each route."""


def build_app(store: ModelStore, settings: Settings, opening: tuple[Any, ...] = ()) -> Guard:
    """The ASGI application of a server; `opening` is the input that its page shows first."""
    app = FastAPI(
        title="Regard", version=metadata.version("regard"), docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Models on this machine, over an API that OpenAI's clients can use.",
    )  # fmt: skip
    app.state.parts = state = State(settings, store, Metrics(store), looks.Looks(), opening)
    store.on_unload = state.looks.forget
    others = APIRouter(prefix="/v1", tags=["other verbs"])
    needs = dict(NEEDS)
    for name, (verb, read) in verbs_without_route(store, NEEDS.values()).items():
        add_route(others, verb, read)
        needs[f"/v1/{name}"] = name
    for router in (
        completions.router,
        text_routes.router,
        images.router,
        videos.router,
        audio.router,
        others,
        looks.router,
    ):
        app.include_router(router)
    add_models(app)
    add_operations(app)
    add_page(app)
    for route in [known for known in app.routes if isinstance(known, APIRoute) and known.methods == {"GET"}]:
        app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, on_failure)
    app.openapi = lambda: describe(app, store, needs, bool(settings.api_keys))  # type: ignore[method-assign]

    def count(scope: Scope, status: int) -> None:
        path = getattr(scope.get("route"), "path", "other")  # not the URL: clients make up endless ones
        state.metrics.responses.labels(scope["method"], path, status).inc()

    return Guard(shared(app, settings), settings, count)


def add_models(app: FastAPI) -> None:
    @app.get("/v1/models", tags=["models"], **replies.documented(replies.Models, errors=(401,)))
    async def models(request: Request) -> dict[str, Any]:
        """List all models with their abilities."""
        return {"object": "list", "data": [record(served) for served in state_of(request).store]}

    @app.get("/v1/models/{model:path}", tags=["models"], **replies.documented(replies.Model, errors=(401, 404)))
    async def model(model: str, request: Request) -> dict[str, Any]:
        """Describe one model."""
        return record(state_of(request).store.find(model))


def record(served: ServedModel) -> dict[str, Any]:
    """Return the description of a model that /v1/models lists."""
    return {
        "id": served.name, "object": "model", "created": served.created, "owned_by": "regard", "does": served.does,
        "summary": served.summary, "inputs": list(served.inputs),
        "loaded": served.state == "loaded", "memory": served.memory, "evictions": served.evictions,
        "context": served.context, "error": served.error,
        "field": served.modality.field, "widget": served.modality.widget,
        "accept": served.modality.accept or ",".join(served.modality.suffixes),
    }  # fmt: skip


def add_operations(app: FastAPI) -> None:
    @app.get("/health", tags=["operations"], **replies.documented(replies.Health, errors=()))
    async def health(request: Request) -> dict[str, Any]:
        """Whether the server is up, and which models are in memory."""
        store = state_of(request).store
        states = {served.name: served.state for served in store}
        return {"status": "closing" if store.closing else "ok", "models": states}

    @app.get("/metrics", tags=["operations"], response_class=Response, responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Metrics for Prometheus"},
        401: {"model": replies.Error, "description": replies.ERRORS[401]},
    })  # fmt: skip
    async def metrics(request: Request) -> Response:
        """Queue, batch, tokens per second, time to the first token, cache pages in use."""
        return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)


def add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    app.mount("/static/swagger", StaticFiles(directory=Path(fastapi_offline.__file__).parent / "static"))
    app.mount("/static", StaticFiles(directory=STATIC))


async def on_failure(request: Request, error: Exception) -> Response:
    """The response for a bug; its traceback goes to the log."""
    return broken().response


def describe(app: FastAPI, store: ModelStore, needs: dict[str, str], keys: bool) -> dict[str, Any]:
    """The OpenAPI description: FastAPI's, with the names of the models that each route takes."""
    if app.openapi_schema:
        return app.openapi_schema
    description = FastAPI.openapi(app)
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, operations in description["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if path in needs:
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                able = [served.name for served in store if served.can(needs[path])]
                schemas[reference.rsplit("/", 1)[1]]["properties"]["model"]["enum"] = able or ["none here"]
            if keys and path.startswith(("/v1/", "/metrics")):
                operation["security"] = [{"key": []}]
    if keys:
        description["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    app.openapi_schema = description
    return description
