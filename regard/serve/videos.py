"""/v1/videos: labels or embeddings of clips, as the model's task answers."""

from fastapi import APIRouter, Request, Response

from regard.serve import replies, schemas
from regard.serve.answers import reply
from regard.serve.inputs import answer, check_inputs
from regard.serve.state import state_of

router = APIRouter(prefix="/v1", tags=["videos"])


@router.post("/videos", **replies.documented(replies.ListOf[replies.Video]))
async def videos(body: schemas.VideosRequest, request: Request) -> Response:
    """Labels or embeddings of clips, as the model was trained to give."""
    served = await state_of(request).store.take(request.scope, body.model, "videos")
    verb = next(verb.name for verb in served.verbs.values() if verb.ability == "videos")
    answers = await answer(request, served, verb, check_inputs(served, body.input), {}, object="video")
    return await reply(lambda: answers)
