"""/v1/embeddings, /v1/classifications, /v1/translations, /v1/tokenize: routes of text models."""

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request

from regard.inside.capture.alignments import align
from regard.serve import replies, schemas
from regard.serve.answers import unless_gone, usage, within_limit
from regard.serve.errors import Refused
from regard.serve.generate import search
from regard.serve.inputs import in_groups, listed, listing
from regard.serve.model_store import ServedModel
from regard.serve.state import State, state_of

router = APIRouter(prefix="/v1", tags=["texts"])


@router.post("/embeddings", **replies.documented(replies.ListAndUsage[replies.Embedding]))
async def embeddings(body: schemas.EmbeddingRequest, request: Request) -> dict[str, Any]:
    """Embeddings of texts, vectors of length 1."""
    served = await state_of(request).store.take(body.model, "embed")

    def embed(texts: Sequence[str]) -> list[Any]:
        vectors = served.task.embed(texts).numpy().astype("<f4")
        as_text = body.encoding_format == "base64"
        return [base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist() for vector in vectors]

    vectors, counts = await read_texts(request, served, embed, body)
    rows = [{"embedding": vector} for vector in vectors]
    return listing(served, rows, object="embedding") | {"usage": counts}


@router.post("/classifications", **replies.documented(replies.ListAndUsage[replies.Classification]))
async def classifications(body: schemas.ClassificationRequest, request: Request) -> dict[str, Any]:
    """The labels of texts, or of pairs of texts, with their probabilities."""
    served = await state_of(request).store.take(body.model, "classify")

    def classify(texts: Sequence[str], second: Sequence[str] | None = None) -> list[dict[str, Any]]:
        return served.task.answers("classify", texts, **({} if second is None else {"seconds": second}))

    paired = {} if body.second is None else {"second": listed(body.second)}
    rows, counts = await read_texts(request, served, classify, body, paired)
    return listing(served, [row["labels"][0] | row for row in rows], object="classification") | {"usage": counts}


async def read_texts(
    request: Request, served: ServedModel, work: Callable[..., Sequence[Any]], body: Any,
    paired: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """The results of `work` for texts or pairs of texts, and the usage. Texts beyond the context are refused or cut."""
    texts = listed(body.input)
    if not body.truncate:
        served.check_length([text for values in (texts, *(paired or {}).values()) for text in values], "input")

    def count(group: Sequence[str], second: Sequence[str] | None = None) -> list[int]:
        return [len(frame) for frame in served.task.frame(group, second, cut=body.truncate)]

    async def count_and_work() -> tuple[list[Any], dict[str, Any]]:
        store, context = state_of(request).store, served.task.context
        lengths = await in_groups(store, count, texts, paired)
        for number, length in enumerate(lengths, 1):
            if length > context:
                raise Refused(
                    400, f"text {number} has {length:,} tokens, the context is {context:,}; split it, or send "
                    "truncate: true", param="input", code="context_length_exceeded",
                )  # fmt: skip
        return await in_groups(store, work, texts, paired), usage(sum(lengths))

    return await within_limit(request, count_and_work())


@router.post("/translations", **replies.documented(replies.Translations))
async def translations(body: schemas.TranslationRequest, request: Request) -> dict[str, Any]:
    """Translations of texts, the best first; on request with their cross-attention to the source."""
    state = state_of(request)
    served, texts = await state.store.take(body.model, "translate"), listed(body.input)
    served.check_length(texts, "input")
    results, read, generated = await unless_gone(request, translate(state, served, texts, body))
    rows = [{"translations": translations} for translations in results]
    return listing(served, rows, object="translation") | {"usage": usage(read, generated)}


async def translate(
    state: State, served: ServedModel, texts: list[str], body: schemas.TranslationRequest
) -> tuple[list[list[dict[str, Any]]], int, int]:
    """Translations, and the numbers of tokens read and generated. A blank text has a blank translation."""
    sampled = any(value is not None for value in (body.temperature, body.top_p, body.top_k, body.min_p))
    sampling = body.sampling if sampled else None
    if sampling and (body.n > 1 or (body.beams or 1) > 1):
        raise Refused(400, "sampling gives one translation; leave out beams and n", param="temperature")
    if body.seed is not None and not sampling:
        raise Refused(400, "a seed is for sampling; send a temperature above 0 with it", param="seed")
    if body.alignment and len(texts) * body.n > schemas.MOST_CHOICES:
        raise Refused(400, f"at most {schemas.MOST_CHOICES} translations are aligned at once; send less", param="input")
    options = dict(beams=body.beams, n_best=body.n, length_penalty=body.length_penalty, max_new_tokens=body.max_tokens)
    rows = [row for row, text in enumerate(texts) if text.strip()]
    try:
        requests = [
            await asyncio.to_thread(served.task.request, texts[row], row=row, sampling=sampling, **options)
            for row in rows
        ]
    except ValueError as error:
        raise Refused(400, str(error), param="input", code="context_length_exceeded") from None
    blank = {"text": "", "score": 0.0, "alignment": None}
    results = [[blank] for _ in texts]
    generated = 0
    for row, hypotheses in zip(rows, await search(state, served, requests), strict=True):
        outputs = served.task.tokenizer.decode_batch([hypothesis.ids for hypothesis in hypotheses])
        results[row] = []
        for text, hypothesis in zip(outputs, hypotheses, strict=True):
            generated += len(hypothesis.ids)
            weights = (
                await state.store.run(aligned, served, texts[row], tuple(hypothesis.ids)) if body.alignment else None
            )
            results[row].append({"text": text, "score": hypothesis.score, "alignment": weights})
    return results, sum(request.source_length for request in requests), generated


def aligned(served: ServedModel, text: str, ids: tuple[int, ...]) -> dict[str, Any]:
    """The cross-attention of a translation to its source, as JSON."""
    try:
        weights, source, target = align(served.task, text, ids, served.twin)
    except ValueError as error:
        raise Refused(400, str(error), param="alignment") from None
    return {"source": source, "target": target, "weights": [[round(w, 5) for w in row] for row in weights.tolist()]}


@router.post("/tokenize", **replies.documented(replies.Tokens))
async def tokenize(body: schemas.TokenizationRequest, request: Request) -> dict[str, Any]:
    """The tokens of a text."""
    served = await state_of(request).store.take(body.model, "tokenize")
    served.check_length([body.text], "text")
    tokenizer = served.task.tokenizer
    ids = await asyncio.to_thread(tokenizer.encode, body.text)
    pairs = zip(ids, tokenizer.pieces(ids), strict=True)
    return {"tokens": [{"id": id, "piece": piece} for id, piece in pairs]}
