"""/v1/pictures: pictures in, what a model says of them out: labels, things with their boxes, a caption, or a vector."""

import base64
import binascii
import io
from typing import Any

from fastapi import APIRouter, Request
from PIL import Image

from regard.data.readers.images import read_image
from regard.serve import replies, schemas
from regard.serve.answers import asked
from regard.serve.errors import Refused
from regard.serve.state import state_of
from regard.tasks import ImageCaptioner, ImageClassifier, ImageTextMatcher, ObjectDetector

router = APIRouter(prefix="/v1", tags=["pictures"])


@router.post("/pictures", **replies.may(replies.Pictures))
async def pictures(body: schemas.PicturesRequest, request: Request) -> dict[str, Any]:
    """What a model says of pictures, as it was trained to."""
    served = await state_of(request).shelf.take(body.model, "see")
    if body.labels is not None:
        if not isinstance(served.speaker, ImageTextMatcher):
            raise Refused(400, f"model {body.model!r} compares nothing with texts; leave out labels", param="labels")
        served.check_length(body.labels, "labels")
    if body.threshold is not None and not isinstance(served.speaker, ObjectDetector):
        raise Refused(400, f"model {body.model!r} finds no things; leave out threshold", param="threshold")
    images = [image_of(one, "input") for one in ([body.input] if isinstance(body.input, str) else body.input)]
    found = await asked(request, lambda: said(served.speaker, images, body))
    rows = [{"object": "picture", "index": index, **one} for index, one in enumerate(found)]
    return {"object": "list", "model": body.model, "data": rows}


def image_of(uri: str, name: str) -> Image.Image:
    """The picture in a data: URI."""
    head, comma, data = uri.partition(",")
    try:
        if not (comma and head.startswith("data:image/") and head.endswith(";base64")):
            raise ValueError(f"{name} is no data: URI of an image; send data:image/png;base64,…")
        return read_image(io.BytesIO(base64.b64decode(data, validate=True)))
    except (ValueError, binascii.Error) as error:
        raise Refused(400, str(error), param=name) from None


def said(speaker: Any, images: list[Image.Image], body: schemas.PicturesRequest) -> list[dict[str, Any]]:
    if isinstance(speaker, ObjectDetector):
        found = speaker.detect(images, **{} if body.threshold is None else {"threshold": body.threshold})
        return [
            {"things": [{"label": one.label, "probability": one.score, "box": list(one.box)} for one in things]}
            for things in found
        ]
    if isinstance(speaker, ImageCaptioner):
        return [{"caption": best[0].text} for best in speaker.caption(images)]
    if isinstance(speaker, ImageClassifier) or body.labels is not None:
        found = speaker.classify(images, body.labels)
        return [{"labels": [{"label": one.label, "probability": one.probability} for one in row]} for row in found]
    return [{"embedding": vector.tolist()} for vector in speaker.embed(images)]
