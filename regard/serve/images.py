"""/v1/images: labels, objects, captions or embeddings of images, as the model's task answers."""

import logging
from functools import cache
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.serve import replies, schemas
from regard.serve.answers import reply
from regard.serve.errors import Refused
from regard.serve.inputs import answer, check_inputs
from regard.serve.model_store import ServedModel
from regard.serve.state import state_of

router = APIRouter(prefix="/v1", tags=["images"])


@router.post("/images", **replies.documented(replies.ListOf[replies.Image]))
async def images(body: schemas.ImagesRequest, request: Request) -> Response:
    """Labels, objects, captions or embeddings of images, as the model was trained to give."""
    answers = await answers_for(body, request)
    return await reply(lambda: answers)


async def answers_for(body: schemas.ImagesRequest, request: Request) -> dict[str, Any]:
    """The body of the response: a row for each image."""
    served = await state_of(request).store.take(request.scope, body.model, "images")
    options = {name: value for name in ("labels", "threshold") if (value := getattr(body, name)) is not None}
    verb = verb_for(served, options)
    served.check_length(body.labels or [], "labels")
    return await answer(request, served, verb, check_inputs(served, body.input), options, object="image")


def verb_for(served: ServedModel, options: dict[str, Any]) -> str:
    """The first verb of an image model that takes these options; one that takes labels only if there are labels."""
    verbs = [verb.name for verb in served.verbs.values() if verb.ability == "images"]
    for name in options:
        if not any(name in served.options(verb) for verb in verbs):
            raise Refused(400, f"model {served.name!r} takes no {name}; leave it out", param=name)
    return next(verb for verb in verbs if ("labels" in served.options(verb)) == ("labels" in options))


@router.post("/pictures", include_in_schema=False)
async def pictures(body: schemas.ImagesRequest, request: Request, response: Response) -> dict[str, Any]:
    """The old name of /v1/images, with the old names in its response."""
    log_deprecation()
    response.headers.update({"Deprecation": "@1794960000", "Link": '</v1/images>; rel="successor-version"'})
    answers = await answers_for(body, request)
    names = {"objects": "things"}
    answers["data"] = [
        {names.get(name, name): value for name, value in row.items() if name != "captions"} | {"object": "picture"}
        for row in answers["data"]
    ]
    return answers


@cache
def log_deprecation() -> None:
    """Log once that the old route is used."""
    logging.getLogger("regard.serve").warning("/v1/pictures is deprecated; use /v1/images")
