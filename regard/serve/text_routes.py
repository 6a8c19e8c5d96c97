"""/v1/embeddings, /v1/classifications, /v1/translations, /v1/tokenize: routes of text models."""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.inside.capture.alignments import align
from regard.serve import replies, schemas
from regard.serve.answers import reply, unless_gone, usage, within_limit, write
from regard.serve.errors import Refused
from regard.serve.generate import search
from regard.serve.inputs import check_words, in_groups, listed, listing
from regard.serve.model_store import ServedModel
from regard.serve.state import State, state_of

router = APIRouter(prefix="/v1", tags=["texts"])


@router.post("/embeddings", **replies.documented(replies.ListAndUsage[replies.Embedding]))
async def embeddings(body: schemas.EmbeddingRequest, request: Request) -> Response:
    """Embeddings of texts, vectors of length 1."""
    served = await state_of(request).store.take(request.scope, body.model, "embed")

    def embed(texts: Sequence[str]) -> list[Any]:
        vectors = served.task.embed(texts).numpy().astype("<f4")
        as_text = body.encoding_format == "base64"
        return [base64.b64encode(vector.tobytes()).decode() if as_text else vector.tolist() for vector in vectors]

    vectors, counts = await read_texts(request, served, "embed", embed, body)
    rows = [{"embedding": vector} for vector in vectors]
    return await reply(lambda: listing(served, rows, object="embedding") | {"usage": counts})


@router.post("/classifications", **replies.documented(replies.ListAndUsage[replies.Classification]))
async def classifications(body: schemas.ClassificationRequest, request: Request) -> Response:
    """The labels of texts, or of pairs of texts, with their probabilities."""
    served = await state_of(request).store.take(request.scope, body.model, "classify")

    def classify(texts: Sequence[str], second: Sequence[str] | None = None) -> list[dict[str, Any]]:
        return served.task.answers("classify", texts, **({} if second is None else {"seconds": second}))

    paired = {} if body.second is None else {"second": listed(body.second)}
    rows, counts = await read_texts(request, served, "classify", classify, body, paired)
    best = [row["labels"][0] | row for row in rows]
    return await reply(lambda: listing(served, best, object="classification") | {"usage": counts})


async def read_texts(
    request: Request, served: ServedModel, verb: str, work: Callable[..., Sequence[Any]], body: Any,
    paired: Mapping[str, Sequence[str]] | None = None,
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """The results of `work` for texts or pairs of texts, and the usage. Texts beyond the context are refused or cut."""
    texts, paired, pools = listed(body.input), paired or {}, state_of(request).store.pools
    if body.truncate:
        texts, paired = cut(served, texts), {name: cut(served, values) for name, values in paired.items()}
    else:
        served.check_length([text for values in (texts, *paired.values()) for text in values], "input")
    check_words(served, verb, texts)

    def count(group: Sequence[str], second: Sequence[str] | None = None) -> list[int]:
        return served.task.lengths(group, second, cut=body.truncate)

    async def count_and_work() -> tuple[list[Any], dict[str, Any]]:
        context, longest = (
            served.task.context,
            max(len(text) for values in (texts, *paired.values()) for text in values),
        )
        lengths = await in_groups(partial(pools.tokenize, longest), count, texts, paired)
        for number, length in enumerate(lengths, 1):
            if length > context:
                raise Refused(
                    400, f"text {number} has {length:,} tokens, the context is {context:,}; split it, or send "
                    "truncate: true", param="input", code="context_length_exceeded",
                )  # fmt: skip
        return await in_groups(pools.run, work, texts, paired), usage(sum(lengths))

    return await within_limit(request, count_and_work())


def cut(served: ServedModel, texts: Sequence[str]) -> list[str]:
    return [served.start_of(text) for text in texts]


@router.post("/translations", **replies.documented(replies.Translations))
async def translations(body: schemas.TranslationRequest, request: Request) -> Response:
    """Translations of texts, the best first; on request with their cross-attention to the source."""
    state = state_of(request)
    served, texts = await state.store.take(request.scope, body.model, "translate"), listed(body.input)
    served.check_length(texts, "input")
    results, read, generated = await unless_gone(request, translate(state, served, texts, body))
    rows = [{"translations": translations} for translations in results]
    return await reply(lambda: listing(served, rows, object="translation") | {"usage": usage(read, generated)})


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
    options: dict[str, Any] = dict(beams=body.beams, n_best=body.n, length_penalty=body.length_penalty)
    options |= dict(max_new_tokens=body.max_tokens, sampling=sampling)
    pools, decode = state.store.pools, served.task.tokenizer.decode_batch
    rows = [row for row, text in enumerate(texts) if text.strip()]
    try:
        requests = [
            await pools.tokenize(len(texts[row]), partial(served.task.request, row=row, **options), texts[row])
            for row in rows
        ]
    except ValueError as error:
        raise Refused(400, str(error), param="input", code="context_length_exceeded") from None
    blank = {"text": "", "score": 0.0, "alignment": None}
    results = [[blank] for _ in texts]
    generated = 0
    for row, hypotheses in zip(rows, await search(state, served, requests), strict=True):
        outputs = await pools.tokenize(0, decode, [hypothesis.ids for hypothesis in hypotheses])
        results[row] = []
        for text, hypothesis in zip(outputs, hypotheses, strict=True):
            generated += len(hypothesis.ids)
            weights = await pools.run(aligned, served, texts[row], tuple(hypothesis.ids)) if body.alignment else None
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
async def tokenize(body: schemas.TokenizationRequest, request: Request) -> Response:
    """The tokens of a text."""
    store = state_of(request).store
    served = await store.take(request.scope, body.model, "tokenize")
    served.check_length([body.text], "text")
    if (tokenizer := served.task.tokenizer) is None:
        raise Refused(400, f"model {served.name!r} reads characters and has no vocabulary of tokens", param="model")

    def tokens() -> bytes:
        ids = tokenizer.encode(body.text)
        pairs = zip(ids, tokenizer.pieces(ids), strict=True)
        return write({"tokens": [{"id": id, "piece": piece} for id, piece in pairs]})

    return Response(await store.pools.tokenize(len(body.text), tokens), media_type="application/json")
