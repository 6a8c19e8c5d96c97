"""Transcription by an encoder–decoder: windows of half a minute, one after another (Radford et al., 2022, section 4.5).

The model's own timestamps decide where the next window begins, and what it wrote is the context of the next. An
answer that repeats itself, or that the model finds improbable, is sampled again, ever warmer. Where it says that nobody
speaks, nothing is written.
"""

import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from regard.config import nearest
from regard.data.notices import Count
from regard.data.readers.audio_files import Recording
from regard.data.sets.batches import IGNORE, Batch
from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling
from regard.decode.timestamps import OneOf, Probe, TimestampRules
from regard.hub.checkpoint import export_model
from regard.hub.feature_extractor import load_features, save_features
from regard.hub.transcription import STEP, TASKS, Transcription, load_transcription, save_transcription
from regard.tasks.base import Option, register_task
from regard.tasks.engine_task import VALIDATED, EngineTask
from regard.tasks.prepared_speech import read_speech
from regard.tasks.speech_scores import SpeechEvaluation, word_accuracy
from regard.tasks.transcriber import Put, Segment, Serve, Transcriber
from regard.tokens import Tokenizer
from regard.tokens.export import export_tokenizer
from regard.tokens.mel import LogMel
from regard.tokens.windows import FrameWindows

TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The temperatures that an answer is sampled at, one after another, until it is good enough."""
MOST_COMPRESSION, LEAST_LOG_PROB, SILENT = 2.4, -1.0, 0.6
"""Bounds of a good answer: how often it repeats itself, its mean log-probability; and the probability of no speech
above which an improbable answer is none."""
SAMPLES = 5
"""Answers sampled at a temperature, of which the most probable is taken."""
COLD = 0.5
"""The highest temperature of an answer that is the context of the next window."""
LEAST_STEP = 0.5
"""Seconds that a window moves on at least; a model in a loop would stay where it is."""
AT_ONCE = 4
"""Recordings whose windows are decoded together."""
ROOM = (2, 8)
"""Encoded windows and transcripts that the cache of keys and values has room for."""

Steps = Generator[list[Request], list[Ticket], Any]
"""A computation that yields requests and is sent their finished tickets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The options of a transcription."""

    language: str | None = None
    task: str = "transcribe"
    beams: int = 1
    temperatures: tuple[float, ...] = TEMPERATURES
    context: bool = True
    prompt: str = ""
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The output of the model for a window, and how good it is."""

    ids: list[int]
    log_prob: float
    compression: float
    temperature: float
    no_speech: float | None = None

    @property
    def doubtful(self) -> bool:
        return self.compression > MOST_COMPRESSION or self.log_prob < LEAST_LOG_PROB

    @property
    def silent(self) -> bool:
        return self.no_speech is not None and self.no_speech > SILENT and self.log_prob <= LEAST_LOG_PROB


@register_task("transcribe")
class WhisperTranscriber(SpeechEvaluation, EngineTask, Transcriber):
    """Writes what is said, in any of the model's languages, or its translation into English."""

    verbs = (
        replace(
            Transcriber.verbs[0],
            options=(
                Option(name="language", help="The language spoken, as en or de; none: detected."),
                Option(name="task", default="transcribe", help="transcribe, or translate: into English."),
                Option(name="beams", kind=int, default=1, limits=(1, ROOM[1]), help="Beams; 1 is greedy."),
                Option(name="temperature", kind=float, limits=(0, 2), help="Of sampling; none: 0, warmer as needed."),
                Option(name="prompt", help="A text that comes before, such as names as they are to be spelled."),
                Option(name="context", kind=bool, default=True, help="Whether a window reads the text before it."),
            ),
        ),
    )  # fmt: skip
    streams = True

    def __init__(self, model: Any, mel: LogMel, tokenizer: Tokenizer, tokens: Transcription) -> None:
        self.model, self.mel, self.tokenizer, self.tokens = model.eval(), mel, tokenizer, tokens
        config = model.config
        position = 2 * config.decoder_blocks * config.dim * next(model.parameters()).element_size()
        # Both rounded up to whole pages: a window that does not fit would be refused.
        room = ROOM[0] * (config.frames // 2 + 64) + ROOM[1] * (config.max_len + 64)
        self._limits = {"memory": max(4, position // 2 * 2) * room}

    @classmethod
    def load(cls, path: Path, model: Any) -> "WhisperTranscriber":
        tokenizer = Tokenizer.load(path)
        mel = load_features(path, model.config)
        if not isinstance(mel, LogMel) or mel.bands != model.config.mels:
            raise ValueError(f"{path}: the model reads log-mel frames of {model.config.mels} bands, not {mel}")
        return cls(model, mel, tokenizer, load_transcription(path, tokenizer, model.config.vocab_size))

    def options(
        self, *, language: str | None = None, task: str = "transcribe", beams: int = 1,
        temperature: float | None = None, prompt: str = "", context: bool = True, probe: bool = False,
    ) -> Listening:  # fmt: skip
        """The checked options of a transcription; with `probe` each segment has its probability of no speech."""
        known = self.tokens.languages
        language = language.strip().lower() if language else None
        if language is not None and known and language not in known:
            raise ValueError(f"language={language!r} is none of the model's; {nearest(language, known)}")
        if language not in (None, "en") and not known:
            raise ValueError(f"this model knows one language, not {language!r}; leave out the language")
        if task not in TASKS or (known and task not in self.tokens.tasks):
            raise ValueError(f"task={task!r} is no task of this model; use {' or '.join(self.tokens.tasks or TASKS)}")
        if not 1 <= beams <= ROOM[1]:
            raise ValueError(f"beams={beams} must be 1 to {ROOM[1]}")
        temperatures = TEMPERATURES if temperature is None else (temperature,)
        return Listening(
            language=language, task=task, beams=beams, temperatures=temperatures, context=context, prompt=prompt,
            probe=probe,
        )  # fmt: skip

    def listen(
        self, recordings: Sequence[Recording], put: Put, *, serve: Serve | None = None, **options: Any
    ) -> list[str | None]:
        """Transcribe several recordings at once, their windows in one batch."""
        chosen = self.options(**options)
        with Count("seconds:", round(sum(recording.seconds for recording in recordings))) as count:
            works = (
                self.steps(recording, chosen, partial(put, index), count.add)
                for index, recording in enumerate(recordings)
            )
            return together(works, serve or self.engine.serve)

    def steps(
        self, recording: Recording, options: Listening, put: Callable[[Segment], Any],
        moved: Callable[[int], Any] = lambda seconds: None,
    ) -> Steps:  # fmt: skip
        """Transcribe a recording by requests that the caller serves; return its language. `moved` is called with
        the number of seconds done."""
        windows = FrameWindows(recording, self.mel)
        size, language, at = self.model.config.frames, options.language, 0
        context = self.tokenizer.encode(f" {options.prompt.strip()}") if options.prompt.strip() else []
        while at < windows.length:
            count = min(size, windows.length - at)
            frames, before, start = windows.window(at, count, size), at, self.mel.seconds(float(at))
            at += count
            if frames is not None:
                if language is None and self.tokens.languages:
                    language = yield from self.detect(frames)
                front = self.front(language, options, context)
                answer = yield from self.answer(frames, front, options)
                if not answer.silent:
                    phrases, step = self.phrases_of(answer.ids, self.mel.seconds(float(count)))
                    at = before + (count if step is None else round(step * self.mel.rate / self.mel.hop))
                    for first, last, ids in phrases:
                        if first != last and (text := self.text(ids)).strip():
                            context += ids
                            times = (min(start + time, recording.seconds) for time in (first, last))
                            put(self.segment(answer, text, ids, *times))
                    if not options.context or answer.temperature > COLD:
                        context = []
            moved(round(self.mel.seconds(float(at))) - round(start))
        return language

    def detect(self, frames: Tensor) -> Steps:
        """The language spoken in a window."""
        codes = {id: code for code, id in self.tokens.languages.items()}
        (ticket,) = yield [self.request(frames, [self.tokens.start], max_len=1, constrain=OneOf(tuple(codes)))]
        return codes[ticket.ids[0]]

    def front(self, language: str | None, options: Listening, context: list[int]) -> list[int]:
        """The tokens before a transcript: the end of the text before it, the language, and the task."""
        front = self.tokens.prompt(language, options.task)
        if not context or self.tokens.previous is None:
            return front
        return [self.tokens.previous, *context[1 - self.model.config.max_len // 2 :], *front]

    def answer(self, frames: Tensor, front: list[int], options: Listening) -> Steps:
        """The answer for a window: of several, the first that is good enough, or else the most probable one."""
        answers: list[Answer] = []
        no_speech: float | None = None
        for temperature in options.temperatures:
            tickets = yield [
                self.request(
                    frames, front, constrain=self.rules, row=row, beams=1 if temperature else options.beams,
                    sampling=Sampling(temperature=temperature) if temperature else None, early_stopping=True,
                )
                for row in range(SAMPLES if temperature else 1)
            ]  # fmt: skip
            best = max((self.heard(ticket, temperature) for ticket in tickets), key=lambda answer: answer.log_prob)
            if no_speech is None and (options.probe or best.log_prob <= LEAST_LOG_PROB):
                no_speech = yield from self.no_speech(frames, front)
            answers.append(replace(best, no_speech=no_speech))
            if answers[-1].silent or not best.doubtful:
                return answers[-1]
        plain = [answer for answer in answers if answer.compression <= MOST_COMPRESSION]
        return replace(max(plain or answers, key=lambda answer: answer.log_prob), temperature=temperature)

    def no_speech(self, frames: Tensor, front: list[int]) -> Steps:
        """The probability that the first token after the start is the one for no speech; None where there is none."""
        if self.tokens.no_speech is None:
            return None
        probe = Probe(self.tokens.no_speech)
        until = front.index(self.tokens.start) + 1
        yield [self.request(frames, front[:until], max_len=1, constrain=probe)]
        return probe.probability

    def request(self, frames: Tensor, prompt: list[int], *, max_len: int | None = None, **settings: Any) -> Request:
        """The engine's request for a window."""
        longest = self.model.config.max_len
        return Request(
            prompt=prompt, inputs={"frames": frames.to(next(self.model.parameters()))}, ends=(self.tokens.end,),
            max_len=max_len or min(longest // 2, longest - len(prompt)), **settings,
        )  # fmt: skip

    @cached_property
    def rules(self) -> TimestampRules:
        """The rules for the tokens of a transcript."""
        tokens, size = self.tokens, self.model.config.vocab_size
        return TimestampRules(
            first=size if tokens.first_time is None else tokens.first_time, end=tokens.end,
            suppressed=tokens.suppressed, suppressed_first=tokens.suppressed_first, latest_start=tokens.latest_start,
            timestamps=tokens.first_time is not None,
        )  # fmt: skip

    read = read_speech

    def written_for(self, window: Tensor, ids: list[int] | None = None) -> tuple[list[int], list[int]]:
        """The tokens before a window's transcript, and the transcript: `ids`, or what the model writes greedily."""

        def steps() -> Steps:
            language = (yield from self.detect(window)) if self.tokens.languages else None
            front = self.front(language, self.options(), [])
            if ids is not None:
                return front, ids
            (ticket,) = yield [self.request(window, front, constrain=self.rules)]
            return front, ticket.result()[0].ids

        return together([steps()], self.engine.serve)[0]  # type: ignore[no-any-return]

    def heard(self, ticket: Ticket, temperature: float) -> Answer:
        """The best hypothesis of a finished request, judged."""
        best = ticket.result()[0]
        written = self.text(best.ids).strip().encode()
        compression = len(written) / len(zlib.compress(written))
        # Beams divide by the length themselves; the end counts as a token.
        log_prob = best.score if ticket.request.beams > 1 else best.score / (len(best.ids) + 1)
        return Answer(best.ids, log_prob, compression, temperature)

    def text(self, ids: Sequence[int]) -> str:
        """The text of tokens, without timestamps."""
        return self.tokenizer.decode([id for id in ids if id < self.rules.first])

    def phrases_of(self, ids: list[int], seconds: float) -> tuple[list[tuple[float, float, list[int]]], float | None]:
        """The phrases of an answer for so many seconds, with their times, and the time at which the next window begins;
        None: behind this one.

        Two timestamps in a row separate phrases. What stands behind the last pair was cut by the end of the window, and
        is heard again, unless a single timestamp says that nobody speaks after it."""
        first = self.rules.first

        def time(id: int) -> float:
            return (id - first) * STEP

        cuts = [i for i, (one, other) in enumerate(pairwise(ids), 1) if min(one, other) >= first]
        whole = len(ids) > 1 and ids[-2] < first <= ids[-1]
        if not cuts:
            times = [time(id) for id in ids if id > first]
            return [(0.0, times[-1] if times else seconds, ids)], None
        last = time(ids[cuts[-1] - 1])
        if whole or last < LEAST_STEP:
            cuts.append(len(ids))
        parts = [ids[start:end] for start, end in pairwise([0, *cuts])]
        phrases = [(time(part[0]), time(part[-1]) if part[-1] >= first else seconds, part) for part in parts]
        return phrases, None if whole or last < LEAST_STEP else last

    def segment(self, answer: Answer, text: str, ids: list[int], start: float, end: float) -> Segment:
        return Segment(
            start=start, end=end, text=text, ids=tuple(ids), log_prob=answer.log_prob, temperature=answer.temperature,
            compression=answer.compression, no_speech=answer.no_speech,
        )  # fmt: skip

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """The share of words that are right, 100 less the word error rate, in some of the validation recordings."""
        pairs = [(x, y) for batch in batches for x, y in zip(batch.inputs["frames"], batch.targets, strict=True)]
        pairs = pairs[:: -(-len(pairs) // VALIDATED)]
        size, front = self.model.config.frames, self.front(None, self.options(), [])
        tickets = self.engine.serve(
            self.request(F.pad(frames, (0, 0, 0, size - len(frames))), front, constrain=self.rules, row=row)
            for row, (frames, _) in enumerate(pairs)
        )
        heard = [self.text(ticket.result()[0].ids) for ticket in tickets]
        said = [self.text(row[row != IGNORE].tolist()) for _, row in pairs]
        return {"word_accuracy": word_accuracy(heard, said)}

    def export(self, out: Path) -> None:
        tokens = self.tokens
        export_model(self.model, out, bos=tokens.start, eos=tokens.end, pad=tokens.end)
        export_tokenizer(self.tokenizer, out, frame="end", max_len=self.model.config.max_len)
        save_features(out, self.mel)
        save_transcription(out, tokens, self.model.config.max_len)


def together(works: Iterable[Steps], serve: Serve) -> list[Any]:
    """Run computations, a few at once, and serve what they ask for in one batch; return their results in order."""
    results: dict[int, Any] = {}
    asked: dict[int, tuple[Steps, list[Request]]] = {}
    waiting = iter(enumerate(works))

    def advance(index: int, work: Steps, tickets: Any) -> None:
        try:
            asked[index] = work, work.send(tickets)
        except StopIteration as over:
            asked.pop(index, None)
            results[index] = over.value

    while True:
        while len(asked) < AT_ONCE and (item := next(waiting, None)) is not None:
            advance(*item, None)
        if not asked:
            return [results[index] for index in sorted(results)]
        round_ = list(asked.items())
        tickets = iter(serve([request for _, (_, requests) in round_ for request in requests]))
        for index, (work, requests) in round_:
            advance(index, work, list(islice(tickets, len(requests))))
