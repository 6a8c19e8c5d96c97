"""/v1/audio/transcriptions and /v1/audio/translations: what is said in a recording, as OpenAI's API has them."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field, ValidationError

from regard.data.readers.audio_files import Recording, open_audio
from regard.decode.requests import Cancelled
from regard.serve import replies
from regard.serve.answers import reply, stream, within_limit
from regard.serve.errors import Refused, closing, explain
from regard.serve.model_store import ServedModel
from regard.serve.multipart import read_form
from regard.serve.schemas import Body, Neutral, Text
from regard.serve.state import state_of
from regard.tasks.transcriber import Segment, Transcript, subtitles

router = APIRouter(prefix="/v1/audio", tags=["audio"])
MOST_SECONDS = 4 * 3600
"""Seconds of a recording, by its header: a few kilobytes can claim days of silence."""
FORMATS = Literal["json", "text", "srt", "vtt", "verbose_json"]
Unsupported = Annotated[str | None, Neutral(None, "", "auto")]


class TranslationRequest(Body):
    """The fields of the form beside the file."""

    prompt: Text | None = None
    """A text that comes before, such as names as they are to be spelled."""
    response_format: FORMATS = "json"
    """json and verbose_json (with the times of phrases), text, srt or vtt."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    """0: the most probable words, warmer where they are doubtful; above it, sampled at this temperature."""

    @property
    def options(self) -> dict[str, Any]:
        chosen = {"prompt": self.prompt, "temperature": self.temperature}
        return {name: value for name, value in chosen.items() if value}


class TranscriptionRequest(TranslationRequest):
    language: Annotated[str, Field(max_length=20)] | None = None
    """The language spoken, as en or de; without it, it is detected."""
    stream: bool | None = None
    """Send each phrase as soon as it is known, as server-sent events."""
    timestamp_granularities: list[Literal["segment"]] | None = None
    """The times of phrases, which verbose_json has in any case; those of words are not known here."""
    chunking_strategy: Unsupported = None

    @property
    def options(self) -> dict[str, Any]:
        return TranslationRequest.options.fget(self) | ({"language": self.language} if self.language else {})  # type: ignore[attr-defined]


def documented(schema: type[Body]) -> dict[str, Any]:
    """The description of a route for forms of this schema."""
    fields = schema.model_json_schema()
    fields["properties"]["file"] = {"type": "string", "format": "binary", "description": "wav, flac, mp3, ogg, …"}
    fields["required"] = ["file", *fields.get("required", [])]
    body = {"content": {"multipart/form-data": {"schema": fields}}, "required": True}
    return {"openapi_extra": {"requestBody": body}} | replies.documented(replies.Transcription)


@router.post("/transcriptions", **documented(TranscriptionRequest))
async def transcriptions(request: Request) -> Response:
    """Transcribe a recording."""
    return await answer(request, TranscriptionRequest, "transcribe")


@router.post("/translations", **documented(TranslationRequest))
async def translations(request: Request) -> Response:
    """Translate what is said in a recording into English."""
    return await answer(request, TranslationRequest, "translate")


async def answer(request: Request, schema: type[TranslationRequest], task: str) -> Response:
    """The response for a form: whole, or phrase by phrase."""
    body, file = await asyncio.to_thread(read, schema, await request.body(), request.headers.get("content-type", ""))
    state = state_of(request)
    served = await state.store.take(request.scope, body.model, "transcribe")
    if task == "translate" and "task" not in served.options("transcribe"):
        raise Refused(400, f"model {served.name!r} does not translate speech; load one that does", param="model")
    options = body.options | ({"task": task} if "task" in served.options("transcribe") else {})
    for name in options.keys() - served.options("transcribe"):
        raise Refused(400, f"model {served.name!r} takes no {name}; leave it out", param=name)
    recording = await asyncio.to_thread(open_file, file)
    work = Listener(served, recording, options | {"probe": True} if body.response_format == "verbose_json" else options)
    if getattr(body, "stream", None):
        return await stream(request, events(state.store.pools.listen, work), state.settings.timeout)
    try:
        transcript = await within_limit(request, state.store.pools.listen(work))
    except ValueError as error:
        raise Refused(400, str(error), param="file") from None
    except Cancelled:
        raise closing() from None
    finally:
        work.gone.set()
    if body.response_format in ("srt", "vtt"):
        return PlainTextResponse(subtitles(transcript.segments, body.response_format))
    if body.response_format == "text":
        return PlainTextResponse(transcript.text + "\n")
    return await reply(partial(verbose if body.response_format == "verbose_json" else plain, transcript))


def read(schema: type[TranslationRequest], content: bytes, content_type: str) -> tuple[Any, bytes]:
    """The fields of a form, checked, and the bytes of its file."""
    try:
        parts = read_form(content, content_type)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    files = [part.content for part in parts if part.name == "file"]
    if len(files) != 1:
        raise Refused(400, "the form has no file, or several; send one recording as file", param="file")
    fields: dict[str, Any] = {}
    for part in parts:
        name, text = part.name.removesuffix("[]"), part.content.decode("utf-8", "replace")
        if part.name.endswith("[]"):
            fields.setdefault(name, []).append(text)
        elif name != "file":
            fields[name] = text
    try:
        return schema.model_validate_strings(fields, strict=False), files[0]
    except ValidationError as error:
        raise explain([problem | {"loc": ("form", *problem["loc"])} for problem in error.errors()]) from None


def open_file(file: bytes) -> Recording:
    """The recording of an upload, if it is not too long; only its header is looked at."""
    try:
        recording = open_audio(file)
    except ValueError as error:
        raise Refused(400, str(error), param="file") from None
    if recording.seconds > MOST_SECONDS:
        hours = f"the recording has {recording.seconds / 3600:,.1f} hours, one request may have {MOST_SECONDS // 3600}"
        raise Refused(400, f"{hours}; cut it", param="file", code="too_large")
    return recording


class Listener:
    """The transcription of a recording in a thread; it ends soon after `gone` is set."""

    def __init__(self, served: ServedModel, recording: Recording, options: dict[str, Any]) -> None:
        self.served, self.options, self.load = served, options, recording.load
        self.recording = replace(recording, load=self.read)
        self.gone = threading.Event()
        self.put: Callable[[Segment], Any] = lambda segment: None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Samples, if somebody still waits: in hours of silence there is no phrase at which that would be noticed."""
        if self.gone.is_set():
            raise Cancelled("nobody waits for the answer")
        return self.load(start, stop)

    def __call__(self) -> Transcript:
        engine, segments = self.served.engine, list[Segment]()

        def put(index: int, segment: Segment) -> None:
            segments.append(segment)
            self.put(segment)

        shared = {} if engine is None else {"serve": partial(engine.share, gone=self.gone.is_set)}
        (language,) = self.served.task.listen([self.recording], put, **shared, **self.options)
        task = self.options.get("task", "transcribe")
        return Transcript(segments=tuple(segments), seconds=self.recording.seconds, language=language, task=task)


async def events(run: Callable[[Listener], Any], work: Listener) -> AsyncGenerator[dict[str, Any], None]:
    """The events of a stream: the text of each phrase, and the whole at the end."""
    loop, news = asyncio.get_running_loop(), asyncio.Queue[Segment | None]()
    work.put = lambda segment: loop.call_soon_threadsafe(news.put_nowait, segment)
    done = asyncio.ensure_future(run(work))
    done.add_done_callback(lambda _: news.put_nowait(None))
    try:
        while (segment := await news.get()) is not None:
            times = {"start": segment.start, "end": segment.end}  # for the page; OpenAI's has none
            yield {"type": "transcript.text.delta", "delta": segment.text} | times
        try:
            transcript = done.result()
        except ValueError as error:
            raise Refused(400, str(error), param="file") from None
        yield {"type": "transcript.text.done", "text": transcript.text, "usage": usage(transcript)}
    finally:
        work.gone.set()
        done.cancel()


def usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(transcript.seconds, 3)}


def plain(transcript: Transcript) -> dict[str, Any]:
    return {"text": transcript.text, "usage": usage(transcript)}


def verbose(transcript: Transcript) -> dict[str, Any]:
    """A transcript with its phrases and how sure the model is of them."""
    segments = [
        {
            "id": index, "seek": round(segment.start * 100), "start": segment.start, "end": segment.end,
            "text": segment.text, "tokens": list(segment.ids), "temperature": segment.temperature,
            "avg_logprob": segment.log_prob or 0.0, "compression_ratio": segment.compression or 1.0,
            "no_speech_prob": segment.no_speech or 0.0,
        }
        for index, segment in enumerate(transcript.segments)
    ]  # fmt: skip
    return plain(transcript) | {
        "task": transcript.task, "language": transcript.language or "", "duration": transcript.seconds,
        "segments": segments,
    }  # fmt: skip
