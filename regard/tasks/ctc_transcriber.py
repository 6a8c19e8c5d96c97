"""Transcription by CTC: a token or blank for every few frames, from windows that meet where nothing is said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from regard.data.readers.audio_files import Recording
from regard.data.sets.batches import IGNORE, Batch
from regard.decode.ctc import align, beam_search, collapse
from regard.hub.checkpoint import export_model
from regard.hub.feature_extractor import load_features, save_features
from regard.modalities.audio import AUDIO
from regard.tasks.base import Option, register_task
from regard.tasks.prepared import Outputs, Prepared, TokenSequence
from regard.tasks.speech_scores import SpeechEvaluation, word_accuracy
from regard.tasks.transcriber import Put, Segment, Serve, Transcriber, Word
from regard.tokens import Tokenizer
from regard.tokens.export import export_tokenizer
from regard.tokens.mel import LogMel, Waveform

WINDOW, CONTEXT = 20.0, 2.0
"""Seconds of a window, and those at either end whose answers are taken from the next window, which knows more there."""
PAUSE, LONGEST = 0.7, 12.0
"""Seconds of silence that end a phrase, and the length after which one ends at the next word."""
TOGETHER = 16
"""Recordings of one window that are computed together."""
SILENCE = 1e-5
"""Peak of samples below which nothing is there to be heard."""
CHECKED = 8
"""Validation batches that are transcribed during training."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A token, and the seconds when it begins and when the next vector does."""

    id: int
    start: float
    end: float


@register_task("transcribe-ctc")
class CTCTranscriber(SpeechEvaluation, Transcriber):
    """Writes what is said, by the most probable token for every few frames."""

    inputs: ClassVar[tuple[str, ...]] = ("audio",)
    verbs = (
        replace(
            Transcriber.verbs[0],
            options=(Option(name="beams", kind=int, default=1, limits=(1, 64), help="Beams; 1 is greedy."),),
        ),
    )

    def __init__(self, model: Any, features: LogMel | Waveform, tokenizer: Tokenizer) -> None:
        self.model, self.features, self.tokenizer = model.eval(), features, tokenizer

    @classmethod
    def load(cls, path: Any, model: Any) -> "CTCTranscriber":
        return cls(model, load_features(path, model.config), Tokenizer.load(path))

    # ---- from samples to log-probabilities ----------------------------------------------------------------------

    @property
    def step(self) -> float:
        """The seconds from one vector to the next."""
        return self.features.seconds(self.model.config.subsampling)

    @torch.inference_mode()
    def log_probs(self, waves: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The log-probabilities of tokens for every vector of each of these stretches of samples."""
        frames = [self.features(wave) for wave in waves if np.abs(wave).max(initial=0) > SILENCE]
        audible: Iterator[np.ndarray] = iter(())
        if frames:
            audio = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True).to(next(self.model.parameters()))
            lengths = torch.tensor([len(each) for each in frames], device=audio.device)
            rows = self.model(audio, lengths).float().log_softmax(-1).cpu().numpy()
            audible = (row[:count] for row, count in zip(rows, self.model.out_lengths(lengths).tolist(), strict=True))
        return [
            next(audible) if np.abs(wave).max(initial=0) > SILENCE
            else self.nothing(int(self.model.out_lengths(torch.tensor(self.features.frames(len(wave))))))
            for wave in waves
        ]  # fmt: skip

    def nothing(self, count: int) -> np.ndarray:
        """The log-probabilities of vectors that certainly stand for nothing."""
        rows = np.full((count, self.model.config.vocab_size), -100.0, dtype=np.float32)
        rows[:, self.model.config.blank] = 0.0
        return rows

    def heard(self, rows: np.ndarray, start: int, beams: int) -> list[Heard]:
        """The tokens of a stretch that begins with a vector of the recording."""
        blank = self.model.config.blank
        if beams == 1:
            ids, places = collapse(rows.argmax(1), blank)
        else:
            ids = list(beam_search(rows, blank, beams)[0][0])
            places = align(rows, tuple(ids), blank)
        return [
            Heard(id, (start + place) * self.step, (start + place + 1) * self.step)
            for id, place in zip(ids, places, strict=True)
        ]

    def tokens(self, recording: Recording, beams: int) -> Iterator[Heard]:
        """The tokens of a recording of any length, window by window; only one window is in memory."""
        rate, stride = self.features.rate, round(self.step * self.features.rate)
        size, context = int(WINDOW * rate) // stride * stride, int(CONTEXT * rate) // stride
        length, start, done = recording.length_at(rate), 0, 0  # samples, and vectors that were taken
        while True:
            rows = self.log_probs([recording.samples(rate, start, start + size)])[0]
            first = done - start // stride
            last = len(rows) if start + size >= length else seam(rows, 2 * context, self.model.config.blank)
            yield from self.heard(rows[first:last], start // stride + first, beams)
            if start + size >= length:
                return
            done = start // stride + last
            start = (done - context) * stride

    # ---- from tokens to words and phrases -----------------------------------------------------------------------

    def listen(
        self, recordings: Sequence[Recording], put: Put, *, serve: Serve | None = None, probe: bool = False,
        beams: int = 1,
    ) -> list[str | None]:  # fmt: skip
        short = [i for i, recording in enumerate(recordings) if recording.seconds <= WINDOW]
        short.sort(key=lambda index: recordings[index].seconds)
        for first in range(0, len(short), TOGETHER):
            part = short[first : first + TOGETHER]
            waves = [recordings[index].samples(self.features.rate) for index in part]
            for index, rows in zip(part, self.log_probs(waves), strict=True):
                for segment in self.segments(self.heard(rows, 0, beams)):
                    put(index, segment)
        for index in sorted(set(range(len(recordings))) - set(short)):
            for segment in self.segments(self.tokens(recordings[index], beams)):
                put(index, segment)
        return [None] * len(recordings)

    def segments(self, tokens: Iterable[Heard]) -> Iterator[Segment]:
        """Phrases: words up to a pause."""
        phrase: list[list[Heard]] = []
        for word in self.words(tokens):
            if phrase and (word[0].start - phrase[-1][-1].end > PAUSE or word[-1].end - phrase[0][0].start > LONGEST):
                yield self.segment(phrase)
                phrase = []
            phrase.append(word)
        if phrase:
            yield self.segment(phrase)

    def words(self, tokens: Iterable[Heard]) -> Iterator[list[Heard]]:
        """The tokens of each word. A space begins one, a pause does not: a token may come late."""
        word: list[Heard] = []
        for token in tokens:
            text = self.tokenizer.decode([token.id])
            if word and text[:1].isspace():
                yield word
                word = []
            if text.strip():
                word.append(token)
        if word:
            yield word

    def segment(self, words: Sequence[Sequence[Heard]]) -> Segment:
        """A phrase of these words."""
        written = tuple(
            Word(
                text=self.tokenizer.decode([token.id for token in word]).strip(), start=word[0].start, end=word[-1].end
            )
            for word in words
        )
        ids = tuple(token.id for word in words for token in word)
        text = " ".join(word.text for word in written)
        return Segment(start=written[0].start, end=written[-1].end, text=text, ids=ids, words=written)

    # ---- looking inside ------------------------------------------------------------------------------------------

    def read(self, *audio: Any, **options: Any) -> Prepared:
        """Prepare the first window of a recording: a token for every vector."""
        if len(audio) != 1:
            raise ValueError(f"a {type(self.model).__name__} reads one recording at a time, got {len(audio)}")
        model, blank, rate = self.model, self.model.config.blank, self.features.rate
        samples = AUDIO.read(audio[0]).samples(rate, 0, int(WINDOW * rate))
        frames = self.features(samples)
        row = frames[None].to(next(model.parameters()))
        inputs = {"audio": row, "lengths": torch.tensor([len(frames)], device=row.device)}
        with torch.inference_mode():
            path = model(**inputs)[0].argmax(-1).cpu()
        ids, places = collapse(path.numpy(), blank)
        pieces = self.tokenizer.pieces(path.tolist())
        letters = ["·" if id == blank else piece for id, piece in zip(path.tolist(), pieces, strict=True)]

        def choose(prepared: Prepared) -> Outputs:
            rows, columns = (places, ids) if places else ([0], [blank])
            return Outputs(rows, columns, torch.eye(len(path))[rows])

        title = f"Vectors of {1000 * self.step:.0f} ms"
        return Prepared(
            model=model, inputs=inputs, run=lambda inputs: model(**inputs), choose=choose, tokenizer=self.tokenizer,
            sequences=[TokenSequence("audio", title, letters, seconds=self.step)], sound=AUDIO.send((samples, rate)),
            answers="tags", own_views=("heard",), traceable=False,
            request={"text": self.tokenizer.decode(ids), "step": self.step},
        )  # fmt: skip

    # ---- training and export ------------------------------------------------------------------------------------

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """The share of words that are right, 100 less the word error rate, in some of the validation batches."""
        heard: list[str] = []
        said: list[str] = []
        every = list(batches)
        for batch in every[:: -(-len(every) // CHECKED)]:
            lengths = self.model.out_lengths(batch.inputs["lengths"]).tolist()
            paths = self.model(**batch.inputs).argmax(-1).cpu()
            for path, length, row in zip(paths, lengths, batch.targets, strict=True):
                heard.append(self.spelled(path[:length]))
                said.append(self.tokenizer.decode(row[row != IGNORE].tolist()))
        return {"word_accuracy": word_accuracy(heard, said)}

    def spelled(self, path: Tensor) -> str:
        """The text of a path of tokens and blanks."""
        return self.tokenizer.decode(collapse(path.numpy(), self.model.config.blank)[0])

    def export(self, out: Any) -> None:
        export_model(self.model, out)
        export_tokenizer(self.tokenizer, out, frame="none", max_len=self.model.config.max_len)
        save_features(out, self.features)


def seam(rows: np.ndarray, context: int, blank: int) -> int:
    """A place among the last vectors of a window at which to go over to the next: the middle of the longest silence."""
    first = len(rows) - context
    silent = rows[first:].argmax(1) == blank
    best, run = (0, context // 2), 0
    for place, quiet in enumerate(silent):
        run = run + 1 if quiet else 0
        if run > best[0]:
            best = run, place - run // 2
    return first + best[1]
