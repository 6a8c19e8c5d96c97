"""Error responses in the form that OpenAI's clients know."""

from collections.abc import Sequence
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}

DECISIVE = ("unknown_field", "too_long")
"""Types of errors that explain the others: a misspelt name, or too long a list where a text would do, too."""


class Refused(HTTPException):
    """An error response: what is wrong, and the cure."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(status, message, {name.replace("_", "-"): value for name, value in headers.items()} or None)
        self.param, self.code = param, code

    @property
    def body(self) -> dict[str, Any]:
        type_ = TYPES.get(self.status_code, "server_error" if self.status_code >= 500 else "invalid_request_error")
        return {"error": {"message": str(self.detail), "type": type_, "param": self.param, "code": self.code}}

    @property
    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status_code, self.headers)


def full() -> Refused:
    """The error for a full queue."""
    return Refused(429, "too many requests are waiting; try again in a moment", code="queue_full", retry_after="1")


def timed_out(limit: float) -> Refused:
    """The error for an answer that took too long; its header keeps OpenAI's clients from retrying."""
    message = f"not done after {limit:g} seconds; ask for less at once"
    return Refused(408, message, code="timeout", x_should_retry="false")


def broken() -> Refused:
    """The error for a bug in the server."""
    return Refused(500, "something went wrong in the server; its log has the traceback")


def closing() -> Refused:
    return Refused(503, "the server is being stopped; ask another one, or later", code="closing", retry_after="5")


async def on_http(request: Request, error: Exception) -> JSONResponse:
    """The response for a `Refused`, or for an error of the framework: no such path, no such method."""
    if isinstance(error, Refused):
        return error.response
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow", "another method")
    message = {
        400: "the body is not valid JSON in UTF-8",
        404: f"no such path: {request.url.path}; {close_path(request)}/docs lists them",
        405: f"{request.method} does not go with {request.url.path}; use {allowed}",
    }.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return Refused(error.status_code, message, **dict(error.headers or {})).response


def close_path(request: Request) -> str:
    """A question that names the closest path that /docs lists; nothing where none is close."""
    close = get_close_matches(request.url.path, request.app.openapi()["paths"], n=1)
    return f"did you mean {close[0]}? " if close else ""


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """The response for a body that does not match the route's schema."""
    assert isinstance(error, RequestValidationError)
    return explain(error.errors()).response


def explain(errors: Sequence[Any]) -> Refused:
    """The first of pydantic's errors in one line, with the name of its field."""
    first = min(errors, key=lambda error: error["type"] not in DECISIVE)
    path = [str(part) for part in first["loc"][1:]]
    name = ".".join(part for part in path if not part[:1].isupper() and "[" not in part)  # no names of types
    if first["type"] == "json_invalid":
        return Refused(400, f"the body is not valid JSON: {first['ctx']['error']} at byte {first['loc'][-1]}")
    if first["type"] == "unknown_field":
        param = first["ctx"]["name"] if not name else f"{name}.{first['ctx']['name']}"
        return Refused(400, first["msg"] + (f" (in {name})" if name else ""), param=param)
    if not name:
        return Refused(400, "the body must be a JSON object; send one with Content-Type: application/json")
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return Refused(400, f"{name} {reason[:1].lower()}{reason[1:]}", param=name)
