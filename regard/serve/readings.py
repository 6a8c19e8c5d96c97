"""/v1/embeddings, /v1/classifications, /v1/translations, /v1/tokenize: a text in, an answer about it out."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request

from regard.inside.capture.alignments import align
from regard.serve import replies, schemas
from regard.serve.answers import unless_gone
from regard.serve.errors import Refused, timed_out
from regard.serve.shelf import Served, Shelf
from regard.serve.state import State, state_of
from regard.serve.writing import search

router = APIRouter(prefix="/v1", tags=["readings"])
AT_ONCE = 32
"""Texts between which others get their turn, and a client that left is noticed."""


@router.post("/embeddings", **replies.may(replies.Embeddings))
async def embeddings(body: schemas.EmbeddingRequest, request: Request) -> dict[str, Any]:
    """Vectors of texts, of length 1."""
    shelf = state_of(request).shelf
    served, texts = await shelf.take(body.model, "embed"), listed(body.input)
    work = in_turn(shelf, served, texts, None, body.truncate, lambda some, _: served.speaker.embed(some).numpy())
    vectors, tokens = await unless_gone(request, work)
    data = [
        {"object": "embedding", "index": index, "embedding": coded(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "model": body.model, "data": data, "usage": usage(tokens)}


def coded(vector: Any, form: str) -> list[float] | str:
    numbers = vector.astype("<f4")
    return base64.b64encode(numbers.tobytes()).decode() if form == "base64" else numbers.tolist()


@router.post("/classifications", **replies.may(replies.Classifications))
async def classifications(body: schemas.ClassificationRequest, request: Request) -> dict[str, Any]:
    """The labels of texts, or of pairs of texts, with their probabilities."""
    shelf = state_of(request).shelf
    served, texts = await shelf.take(body.model, "classify"), listed(body.input)
    seconds = None if body.second is None else listed(body.second)
    if seconds is not None and len(seconds) != len(texts):
        raise Refused(400, f"{len(texts)} texts and {len(seconds)} second texts; send one for each", param="second")
    work = in_turn(shelf, served, texts, seconds, body.truncate, served.speaker.classify)
    found, tokens = await unless_gone(request, work)
    data = []
    for index, labels in enumerate(found):
        ranked = [{"label": one.label, "probability": one.probability} for one in labels]
        data.append({"object": "classification", "index": index} | ranked[0] | {"labels": ranked})
    return {"object": "list", "model": body.model, "data": data, "usage": usage(tokens)}


async def in_turn(
    shelf: Shelf, served: Served, texts: list[str], seconds: list[str] | None, cut: bool, read: Any
) -> tuple[list[Any], int]:
    """What an encoder says of texts, a few at a time; and how many tokens they have."""
    if not cut:
        served.check_length([*texts, *(seconds or [])], "input")
    found: list[Any] = []
    tokens = 0
    try:
        async with asyncio.timeout(shelf.settings.timeout):
            for first in range(0, len(texts), AT_ONCE):
                some = slice(first, first + AT_ONCE)
                pair = texts[some], None if seconds is None else seconds[some]
                tokens += await shelf.read(count, served, *pair, cut, first)
                found += list(await shelf.read(read, *pair))
    except TimeoutError:
        raise timed_out(shelf.settings.timeout) from None
    return found, tokens


def count(served: Served, texts: list[str], seconds: list[str] | None, cut: bool, first: int) -> int:
    """Tokens that are read; a text that is too long is refused by its number."""
    lengths = [len(one) for one in served.speaker.frame(texts, seconds, cut=cut)]
    for number, length in enumerate(lengths, first + 1):
        if length > served.speaker.context:
            raise Refused(
                400, f"text {number} has {length:,} tokens, the context is {served.speaker.context:,}; split it, or "
                "send truncate: true", param="input", code="context_length_exceeded",
            )  # fmt: skip
    return sum(lengths)


@router.post("/translations", **replies.may(replies.Translations))
async def translations(body: schemas.TranslationRequest, request: Request) -> dict[str, Any]:
    """Translations of texts, the best first, with which source tokens each target token looked at on request."""
    state = state_of(request)
    served, texts = await state.shelf.take(body.model, "translate"), listed(body.input)
    served.check_length(texts, "input")
    found, tokens, written = await unless_gone(request, translate(state, served, texts, body))
    data = [{"object": "translation", "index": index, "translations": some} for index, some in enumerate(found)]
    told = {"prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written}
    return {"object": "list", "model": body.model, "data": data, "usage": told}


async def translate(
    state: State, served: Served, texts: list[str], body: schemas.TranslationRequest
) -> tuple[list[list[dict[str, Any]]], int, int]:
    """Translations, and how many tokens were read and written. A blank text has a blank translation."""
    asked = any(value is not None for value in (body.temperature, body.top_p, body.top_k, body.min_p))
    sampling = body.sampling if asked else None
    if sampling and (body.n > 1 or (body.beams or 1) > 1):
        raise Refused(400, "sampling draws one translation; leave out beams and n", param="temperature")
    if body.seed is not None and not sampling:
        raise Refused(400, "a seed is for draws; send a temperature above 0 with it", param="seed")
    if body.alignment and len(texts) * body.n > schemas.MOST_CHOICES:
        raise Refused(400, f"at most {schemas.MOST_CHOICES} translations are aligned at once; send less", param="input")
    how = dict(beams=body.beams, n_best=body.n, length_penalty=body.length_penalty, max_new_tokens=body.max_tokens)
    real = [row for row, text in enumerate(texts) if text.strip()]
    try:
        requests = [
            await asyncio.to_thread(served.speaker.request, texts[row], row=row, sampling=sampling, **how)
            for row in real
        ]
    except ValueError as error:
        raise Refused(400, str(error), param="input", code="context_length_exceeded") from None
    blank = {"text": "", "score": 0.0, "alignment": None}
    results = [[blank] for _ in texts]
    written = 0
    for row, found in zip(real, await search(state, served, requests), strict=True):
        outputs = served.speaker.tokenizer.decode_batch([one.ids for one in found])
        results[row] = [
            blank | {"text": text, "score": one.score} for text, one in zip(outputs, found, strict=True)
        ]  # fmt: skip
        written += sum(len(one.ids) for one in found)
        for result, one in zip(results[row], found, strict=True) if body.alignment else ():
            result["alignment"] = await state.shelf.read(aligned, served, texts[row], tuple(one.ids))
    return results, sum(len(one.source or ()) for one in requests), written


def aligned(served: Served, text: str, ids: tuple[int, ...]) -> dict[str, Any]:
    try:
        weights, source, target = align(served.speaker, text, ids, served.twin)
    except ValueError as error:
        raise Refused(400, str(error), param="alignment") from None
    return {"source": source, "target": target, "weights": [[round(w, 5) for w in row] for row in weights.tolist()]}


@router.post("/tokenize", **replies.may(replies.Tokens))
async def tokenize(body: schemas.TokenizationRequest, request: Request) -> dict[str, Any]:
    """The tokens of a text."""
    served = state_of(request).shelf.find(body.model)
    if not served.reads:
        raise Refused(400, f"model {body.model!r} reads no texts; ask another", param="model")
    await served.load()
    served.check_length([body.text], "text")
    tokenizer = served.speaker.tokenizer
    ids = await asyncio.to_thread(tokenizer.encode, body.text)
    pairs = zip(ids, tokenizer.pieces(ids), strict=True)
    return {"tokens": [{"id": id, "piece": piece} for id, piece in pairs]}


def listed(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
