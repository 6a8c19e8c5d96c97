"""/v1/completions and /v1/chat/completions: models that write."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from regard.decode.requests import Request as Asked
from regard.serve import replies, schemas
from regard.serve.answers import stream, unless_gone
from regard.serve.errors import Refused
from regard.serve.shelf import Served
from regard.serve.state import State, state_of
from regard.serve.writing import Piece, Wording, all_of, new_id, write

router = APIRouter(prefix="/v1", tags=["texts"])


@dataclass(frozen=True, slots=True)
class Order:
    """Texts to write, and how to tell them: `choice(piece, whole, first)` is one text, or what is new in it."""

    head: dict[str, Any]
    served: Served
    requests: Sequence[Asked]
    body: schemas.Written
    choice: Callable[[Piece, bool, bool], dict[str, Any]]

    @property
    def read(self) -> int:
        """Tokens of the prompts, each counted once."""
        return sum(one.source_length or len(one.prompt) for one in self.requests[:: self.body.n or 1])

    def usage(self, written: int) -> dict[str, int]:
        return {"prompt_tokens": self.read, "completion_tokens": written, "total_tokens": self.read + written}


@router.post("/completions", **replies.may(replies.Completion, streams=True))
async def completions(body: schemas.CompletionRequest, request: Request) -> Response:
    """Continues texts."""
    state = state_of(request)
    served = await state.shelf.take(body.model, "generate")
    if body.echo and body.logprobs is not None:
        raise Refused(400, "echo does not go with logprobs: only what is written has them; leave one out", param="echo")
    prompts = prompts_of(body.prompt)
    if body.truncate:
        prompts = [served.end_of(one) if isinstance(one, str) else one for one in prompts]
    served.check_length([one for one in prompts if isinstance(one, str)], "prompt")
    how: dict[str, Any] = dict(cut=True) if body.truncate and hasattr(served.speaker, "window") else {}
    how |= dict(alternatives=body.logprobs or 0)
    requests = await asyncio.to_thread(ask, served, prompts, body, body.max_tokens or 16, how)
    wording, n, told = Wording(served), body.n or 1, [0] * len(requests)
    echoes = [one if isinstance(one, str) else served.speaker.tokenizer.decode(one) for one in prompts if body.echo]

    def choice(piece: Piece, whole: bool, first: bool) -> dict[str, Any]:
        before = echoes[piece.index // n] if echoes and (whole or first) else ""
        offset = told[piece.index] + len(before)
        told[piece.index] += len(before) + len(piece.text)
        log_probs = None if body.logprobs is None else wording.completion(piece.tokens, offset)
        return {
            "index": piece.index, "text": before + piece.text, "logprobs": log_probs, "finish_reason": piece.finish,
        }  # fmt: skip

    head = {"id": new_id("cmpl"), "object": "text_completion", "created": int(time.time()), "model": body.model}
    return await answer(request, state, Order(head, served, requests, body, choice))


@router.post("/chat/completions", **replies.may(replies.Chat, streams=True))
async def chat(body: schemas.ChatRequest, request: Request) -> Response:
    """Answers a conversation, which is written as the model's own chat template says."""
    state = state_of(request)
    served = await state.shelf.take(body.model, "chat")
    if body.top_logprobs and not body.logprobs:
        raise Refused(400, "top_logprobs goes with logprobs: true", param="top_logprobs")
    if body.max_tokens and body.max_completion_tokens:
        raise Refused(400, "max_tokens is the old name of max_completion_tokens; send one of them", param="max_tokens")
    messages = [one.plain for one in body.messages]
    served.check_length([one["content"] for one in messages], "messages")
    try:
        prompt = await asyncio.to_thread(served.speaker.encode_chat, messages)
    except ValueError as error:
        raise Refused(400, str(error), param="messages") from None
    wording, count = Wording(served), body.top_logprobs or 0
    most = body.max_completion_tokens or body.max_tokens
    requests = await asyncio.to_thread(ask, served, [prompt], body, most, dict(alternatives=count))

    def choice(piece: Piece, whole: bool, first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if whole or first else {}
        said = role | ({"content": piece.text} if whole or first or piece.text else {})
        log_probs = wording.chat(piece.tokens, count) if body.logprobs else None
        told = {"index": piece.index, "logprobs": log_probs, "finish_reason": piece.finish}
        return told | ({"message": said | {"refusal": None}} if whole else {"delta": said})

    kind = "chat.completion.chunk" if body.stream else "chat.completion"
    head = {"id": new_id("chatcmpl"), "object": kind, "created": int(time.time()), "model": body.model}
    return await answer(request, state, Order(head, served, requests, body, choice))


def prompts_of(prompt: Any) -> list[str | list[int]]:
    """One text, several, one list of ids, or several."""
    return [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt


def ask(
    served: Served, prompts: Sequence[str | list[int]], body: schemas.Written, most: int | None, how: dict[str, Any]
) -> list[Asked]:
    """What is asked of the engine: each prompt `n` times; at `most` None as much as there is room for. `how` is for the
    model's `request`."""
    n, limit = body.n or 1, min(schemas.MOST_CHOICES, served.settings.queue)
    if len(prompts) * n > limit:
        told = f"{len(prompts) * n} texts are asked for, this server writes at most {limit} for one request"
        raise Refused(400, f"{told}; lower n, or send fewer prompts at once", param="n")
    how = how | dict(max_new_tokens=most or 2**31, sampling=body.sampling)
    how |= dict(beams=1) if hasattr(served.speaker, "translate") else {}
    requests: list[Asked] = []
    for number, prompt in enumerate(prompts, 1):
        try:
            one = served.speaker.request(prompt, **how)
            one = one if most else replace(one, max_len=min(one.max_len, served.room(one)))
            served.check(one, prompt)
        except ValueError as error:
            which = f"prompt {number}: " if len(prompts) > 1 else ""
            code = "context_length_exceeded" if "context" in str(error) else None
            raise Refused(400, f"{which}{error}", param="prompt", code=code) from None
        requests += [replace(one, row=row) for row in range(len(requests), len(requests) + n)]
    return requests


async def answer(request: Request, state: State, order: Order) -> Response:
    """The texts of an order: whole, or piece by piece."""
    pieces = write(state, order.served, order.requests, order.read, order.body.stops)
    if order.body.stream:
        return await stream(request, chunks(order, pieces), state.settings.timeout)
    found = await unless_gone(request, all_of(pieces, len(order.requests)))
    told = {"choices": [order.choice(piece, True, True) for piece in found]}
    return JSONResponse(order.head | told | {"usage": order.usage(sum(len(piece.tokens) for piece in found))})


async def chunks(order: Order, pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[dict[str, Any], None]:
    """What is new, as records."""
    written, begun = 0, set[int]()
    options = order.body.stream_options
    with_usage = {"usage": None} if options and options.include_usage else {}
    async with aclosing(pieces):
        async for piece in pieces:
            written += len(piece.tokens)
            first = piece.index not in begun
            begun.add(piece.index)
            yield order.head | {"choices": [order.choice(piece, False, first)]} | with_usage
    if with_usage:
        yield order.head | {"choices": [], "usage": order.usage(written)}
