"""/v1/completions and /v1/chat/completions: generated text."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request, Response

from regard.decode.requests import Request as EngineRequest
from regard.serve import replies, schemas
from regard.serve.answers import reply, stream, unless_gone, usage, within_limit
from regard.serve.errors import Refused
from regard.serve.generate import LogProbs, Piece, all_of, generate, new_id
from regard.serve.model_store import ServedModel
from regard.serve.state import State, state_of

router = APIRouter(prefix="/v1", tags=["texts"])


@dataclass(frozen=True, slots=True)
class Job:
    """Texts to generate; `choice(piece, whole, first)` is the JSON of a whole text, or of one of its pieces."""

    head: dict[str, Any]
    served: ServedModel
    requests: Sequence[EngineRequest]
    body: schemas.Generated
    choice: Callable[[Piece, bool, bool], dict[str, Any]]

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompts, each prompt counted once."""
        return sum(request.source_length or len(request.prompt) for request in self.requests[:: self.body.n or 1])


@router.post("/completions", **replies.documented(replies.Completion, streams=True))
async def completions(body: schemas.CompletionRequest, request: Request) -> Response:
    """Continue texts."""
    state = state_of(request)
    served = await state.store.take(request.scope, body.model, "generate")
    if body.echo and body.logprobs is not None:
        raise Refused(400, "echo does not go with logprobs: prompts have none; leave one of them out", param="echo")
    prompts = [body.prompt] if isinstance(body.prompt, str) or isinstance(body.prompt[0], int) else body.prompt
    if body.truncate:
        prompts = [served.end_of(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
    served.check_length([prompt for prompt in prompts if isinstance(prompt, str)], "prompt")
    options: dict[str, Any] = dict(alternatives=body.logprobs or 0)
    options |= dict(cut=True) if body.truncate and not served.can("translate") else {}
    size, longest = sum(map(len, prompts)), body.max_tokens or 16
    requests = await state.store.pools.tokenize(size, engine_requests, served, prompts, body, longest, options)
    log_probs, n, sent = LogProbs(served), body.n or 1, [0] * len(requests)
    echoes = [
        prompt if isinstance(prompt, str) else served.task.tokenizer.decode(prompt) for prompt in prompts if body.echo
    ]

    def choice(piece: Piece, whole: bool, first: bool) -> dict[str, Any]:
        echo = echoes[piece.index // n] if echoes and (whole or first) else ""
        offset = sent[piece.index] + len(echo)
        sent[piece.index] += len(echo) + len(piece.text)
        return {
            "index": piece.index, "text": echo + piece.text, "finish_reason": piece.finish,
            "logprobs": None if body.logprobs is None else log_probs.completion(piece.tokens, offset),
        }  # fmt: skip

    head = {"id": new_id("cmpl"), "object": "text_completion", "created": int(time.time()), "model": body.model}
    return await respond(request, state, Job(head, served, requests, body, choice))


@router.post("/chat/completions", **replies.documented(replies.Chat, streams=True))
async def chat(body: schemas.ChatRequest, request: Request) -> Response:
    """Answer a conversation, which the model's own chat template turns into a prompt."""
    state = state_of(request)
    served = await state.store.take(request.scope, body.model, "chat")
    if body.top_logprobs and not body.logprobs:
        raise Refused(400, "top_logprobs goes with logprobs: true", param="top_logprobs")
    if body.max_tokens and body.max_completion_tokens:
        raise Refused(400, "max_tokens is the old name of max_completion_tokens; send one of them", param="max_tokens")
    messages = [message.plain for message in body.messages]
    served.check_length([message["content"] for message in messages], "messages")
    try:
        prompt = await within_limit(request, state.store.pools.render(served.task.encode_chat, messages))
    except ValueError as error:
        raise Refused(400, str(error), param="messages") from None
    log_probs, count = LogProbs(served), body.top_logprobs or 0
    longest = body.max_completion_tokens or body.max_tokens
    options = dict(alternatives=count)
    requests = await state.store.pools.tokenize(len(prompt), engine_requests, served, [prompt], body, longest, options)

    def choice(piece: Piece, whole: bool, first: bool) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant"} if whole or first else {}
        message |= {"content": piece.text} if whole or first or piece.text else {}
        return {
            "index": piece.index, "finish_reason": piece.finish,
            "logprobs": log_probs.chat(piece.tokens, count) if body.logprobs else None,
        } | ({"message": message | {"refusal": None}} if whole else {"delta": message})  # fmt: skip

    object_ = "chat.completion.chunk" if body.stream else "chat.completion"
    head = {"id": new_id("chatcmpl"), "object": object_, "created": int(time.time()), "model": body.model}
    return await respond(request, state, Job(head, served, requests, body, choice))


def engine_requests(
    served: ServedModel, prompts: Sequence[str | list[int]], body: schemas.Generated, longest: int | None,
    options: dict[str, Any],
) -> list[EngineRequest]:  # fmt: skip
    """The engine's requests: each prompt `n` times, for `longest` tokens or (None) as many as fit."""
    n, limit = body.n or 1, min(schemas.MOST_CHOICES, served.settings.queue)
    if len(prompts) * n > limit:
        fact = f"{len(prompts) * n} texts are asked for, this server generates at most {limit} for one request"
        raise Refused(400, f"{fact}; lower n, or send fewer prompts at once", param="n")
    options = options | dict(max_new_tokens=longest or 2**31, sampling=body.sampling)
    options |= dict(beams=1) if served.can("translate") else {}
    requests: list[EngineRequest] = []
    for number, prompt in enumerate(prompts, 1):
        try:
            request = served.task.request(prompt, **options)
            request = request if longest else replace(request, max_len=min(request.max_len, served.room(request)))
            served.check(request, prompt)
        except ValueError as error:
            which = f"prompt {number}: " if len(prompts) > 1 else ""
            code = "context_length_exceeded" if "context" in str(error) else None
            raise Refused(400, f"{which}{error}", param="prompt", code=code) from None
        requests += [replace(request, row=row) for row in range(len(requests), len(requests) + n)]
    return requests


async def respond(request: Request, state: State, job: Job) -> Response:
    """The response with the texts of a job: whole, or piece by piece."""
    pieces = generate(state, job.served, job.requests, job.prompt_tokens, job.body.stops)
    if job.body.stream:
        return await stream(request, chunks(job, pieces), state.settings.timeout)
    texts = await unless_gone(request, all_of(pieces, len(job.requests)))
    counts = usage(job.prompt_tokens, sum(len(text.tokens) for text in texts))
    return await reply(
        lambda: job.head | {"choices": [job.choice(text, True, True) for text in texts], "usage": counts}
    )


async def chunks(job: Job, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[dict[str, Any], None]:
    """The events of a stream: one for each piece, and one with the usage if it is asked for."""
    generated, begun = 0, set[int]()
    options = job.body.stream_options
    with_usage = {"usage": None} if options and options.include_usage else {}
    async with aclosing(pieces):
        async for piece in pieces:
            generated += len(piece.tokens)
            first = piece.index not in begun
            begun.add(piece.index)
            yield job.head | {"choices": [job.choice(piece, False, first)]} | with_usage
    if with_usage:
        yield job.head | {"choices": [], "usage": usage(job.prompt_tokens, generated)}
