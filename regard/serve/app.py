"""The application: its routes, its description, its page."""

from importlib import metadata
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from regard.serve import looks, pictures, readings, replies, texts
from regard.serve.errors import broken, on_http, on_invalid
from regard.serve.guard import Guard, shared
from regard.serve.metrics import Metrics
from regard.serve.settings import Settings
from regard.serve.shelf import Served, Shelf
from regard.serve.state import State, state_of

STATIC = Path(__file__).parent / "static"
NEEDS = {
    "/v1/completions": "generate", "/v1/chat/completions": "chat", "/v1/embeddings": "embed",
    "/v1/translations": "translate", "/v1/classifications": "classify", "/v1/tokenize": "tokenize",
    "/v1/pictures": "see",
}  # fmt: skip
"""What a model must be able to do."""


def build_app(shelf: Shelf, settings: Settings, opening: tuple[Any, ...] = ()) -> Guard:
    """The whole server, as an ASGI application; `opening` is what its page looks at first."""
    app = FastAPI(
        title="Regard", version=metadata.version("regard"), docs_url=None, redoc_url=None, redirect_slashes=False,
        description="Models on this machine, over the API that OpenAI's clients speak.",
    )  # fmt: skip
    app.state.parts = state = State(settings, shelf, Metrics(shelf), looks.Looks(), opening)
    app.include_router(texts.router)
    app.include_router(readings.router)
    app.include_router(pictures.router)
    app.include_router(looks.router)
    add_models(app)
    add_operations(app)
    add_page(app)
    for route in [one for one in app.routes if isinstance(one, APIRoute) and one.methods == {"GET"}]:
        app.add_api_route(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False, response_model=None)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Exception, on_failure)
    app.openapi = lambda: describe(app, shelf, bool(settings.api_keys))  # type: ignore[method-assign]

    def count(scope: Scope, status: int) -> None:
        path = getattr(scope.get("route"), "path", "other")  # not what was asked for: that has no end
        state.metrics.answers.labels(scope["method"], path, status).inc()

    return Guard(shared(app, settings), settings, count)


def add_models(app: FastAPI) -> None:
    @app.get("/v1/models", tags=["models"], **replies.may(replies.Models, refusals=(401,)))
    async def models(request: Request) -> dict[str, Any]:
        """All models, and what can be asked of them."""
        return {"object": "list", "data": [told(one) for one in state_of(request).shelf]}

    @app.get("/v1/models/{model:path}", tags=["models"], **replies.may(replies.Model, refusals=(401, 404)))
    async def model(model: str, request: Request) -> dict[str, Any]:
        """One model."""
        return told(state_of(request).shelf.find(model))


def told(served: Served) -> dict[str, Any]:
    return {
        "id": served.name, "object": "model", "created": served.since, "owned_by": "regard", "does": served.does,
        "loaded": served.state == "loaded", "context": served.context, "error": served.error,
    }  # fmt: skip


def add_operations(app: FastAPI) -> None:
    @app.get("/health", tags=["operations"], **replies.may(replies.Health, refusals=()))
    async def health(request: Request) -> dict[str, Any]:
        """Whether the server is up, and which models are in memory."""
        shelf = state_of(request).shelf
        states = {one.name: one.state for one in shelf}
        return {"status": "closing" if shelf.closing else "ok", "models": states}

    @app.get("/metrics", tags=["operations"], response_class=Response, responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "Figures for Prometheus"},
        401: {"model": replies.Error, "description": replies.REFUSALS[401]},
    })  # fmt: skip
    async def metrics(request: Request) -> Response:
        """Queue, batch, speed, time to the first token, pages in use."""
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
    """Its traceback goes to the log."""
    return broken().response


def describe(app: FastAPI, shelf: Shelf, keys: bool) -> dict[str, Any]:
    """The OpenAPI description: the framework's, with the names of the models that each route takes."""
    if app.openapi_schema:
        return app.openapi_schema
    told = FastAPI.openapi(app)
    schemas = told["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, operations in told["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if path in NEEDS:
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                able = [one.name for one in shelf if NEEDS[path] in (*one.does, "tokenize")]
                schemas[reference.rsplit("/", 1)[1]]["properties"]["model"]["enum"] = able or ["none here"]
            if keys and path.startswith(("/v1/", "/metrics")):
                operation["security"] = [{"key": []}]
    if keys:
        told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    app.openapi_schema = told
    return told
