"""Speech to text: recordings in, transcripts out. One class for each way to get words from frames."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from regard.data.notices import track
from regard.data.readers.audio_files import Recording
from regard.decode.requests import Request, Ticket
from regard.modalities.audio import AUDIO
from regard.tasks.base import Task, Verb
from regard.tasks.single import one_or_many


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word with its times in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A phrase with its times in seconds."""

    start: float
    end: float
    text: str
    ids: tuple[int, ...] = ()
    """Its tokens."""
    log_prob: float | None = None
    """The mean log-probability of the tokens of its window."""
    temperature: float = 0.0
    """The temperature that they were sampled at; 0: the most probable ones."""
    compression: float | None = None
    """The ratio of the sizes of its window's text plain and packed: repetitions make it large."""
    no_speech: float | None = None
    """The probability that nobody speaks in its window, where that was asked."""
    words: tuple[Word, ...] = ()
    """Its words, where the model knows their times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The phrases of a recording, with its language."""

    segments: tuple[Segment, ...]
    seconds: float
    """The length of the recording."""
    language: str | None = None
    task: str = "transcribe"

    @property
    def text(self) -> str:
        return " ".join(text for segment in self.segments if (text := segment.text.strip()))

    def __str__(self) -> str:
        return self.text


def as_json(transcript: Transcript) -> dict[str, Any]:
    """A transcript as a JSON object."""
    rows = []
    for segment in transcript.segments:
        row = {name: value for name, value in asdict(segment).items() if value is not None and value != ()}
        rows.append({name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()})
    language = {} if transcript.language is None else {"language": transcript.language}
    return {"text": transcript.text, **language, "seconds": round(transcript.seconds, 3), "segments": rows}


def clock(seconds: float, decimal: str = ".", *, hours: bool = True) -> str:
    """A time as 01:02:03.456; short ones may leave the hours out."""
    thousandths = round(max(0.0, seconds) * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    front = f"{minutes // 60:02}:{minutes % 60:02}" if hours or minutes >= 60 else f"{minutes:02}"
    return f"{front}:{rest // 1000:02}{decimal}{rest % 1000:03}"


def line(segment: Segment) -> str:
    """A phrase with its times on a line."""
    times = " → ".join(clock(time, hours=False) for time in (segment.start, segment.end))
    return f"[{times}]  {segment.text.strip()}"


def srt(segment: Segment, number: int) -> str:
    """A phrase as a block of a SubRip file; they are numbered from 1 on."""
    return f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n{caption(segment)}\n"


def vtt(segment: Segment, number: int = 0) -> str:
    """A phrase as a block of a WebVTT file, which begins with a line of its own."""
    return f"{clock(segment.start)} --> {clock(segment.end)}\n{caption(segment)}\n"


def caption(segment: Segment) -> str:
    """The text of a subtitle: on a line, without the arrow that would end it."""
    return " ".join(segment.text.split()).replace("-->", "->")


def subtitles(segments: Iterable[Segment], kind: str) -> str:
    """The text of a file of subtitles: srt or vtt."""
    if kind == "vtt":
        return "\n".join(["WEBVTT\n", *map(vtt, segments)])
    return "\n".join(srt(segment, number) for number, segment in enumerate(segments, 1))


Put = Callable[[int, Segment], Any]
"""Takes the index of a recording and its next segment."""
Serve = Callable[[list[Request]], list[Ticket]]
"""Runs requests in an engine and returns their finished tickets."""


class Transcriber(Task):
    """Writes what is said in recordings. Subclasses have `listen`."""

    inputs: ClassVar[tuple[str, ...]] = ("audio",)
    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="transcribe", does="transcribes speech", as_json=as_json, render=lambda answer: answer["text"],
            columns=lambda answer: {"text": answer["text"]}, help="Write what is said in each recording.",
        ),
    )  # fmt: skip

    @one_or_many
    def transcribe(self, audio: Sequence[Any], *, each: Put | None = None, **options: Any) -> list[Transcript]:
        """The transcript of each recording: a path, the bytes of a file, or samples at 16 kHz, (samples, rate) at any
        other. `each` is called with a recording's index and each of its phrases when that is ready."""
        recordings = [AUDIO.read(item) for item in audio]
        segments: list[list[Segment]] = [[] for _ in recordings]

        def put(index: int, segment: Segment) -> None:
            segments[index].append(segment)
            if each is not None:
                each(index, segment)

        languages = self.listen(recordings, put, **options)
        task = options.get("task") or "transcribe"
        return [
            Transcript(segments=tuple(own), seconds=recording.seconds, language=language, task=task)
            for recording, own, language in zip(recordings, segments, languages, strict=True)
        ]

    def listen(
        self, recordings: Sequence[Recording], put: Put, *, serve: Serve | None = None, probe: bool = False,
        **options: Any,
    ) -> list[str | None]:  # fmt: skip
        """Call `put` with each phrase of each recording, in the order of their times; return the languages spoken.
        `serve` runs requests in an engine that others use, too; with `probe` each phrase has its probability of no
        speech, from models that know one."""
        for index, recording in enumerate(track(recordings, "recordings:", len(recordings))):
            for segment in self.phrases(recording, **options):
                put(index, segment)
        return [None] * len(recordings)

    def phrases(self, recording: Recording, **options: Any) -> Iterator[Segment]:
        """The phrases of a recording, for models that take each recording by itself."""
        raise NotImplementedError
