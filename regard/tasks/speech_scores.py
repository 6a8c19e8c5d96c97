"""Word and character error rates, by jiwer, of texts in lower case without punctuation."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from regard.data.sets.transcribed_speech import SpeechConfig, Spoken, plain_text
from regard.files import same_file
from regard.tasks.base import EvalSet, Example, Samples, Scored, Task, Work


def error_rates(heard: Sequence[str], said: Sequence[str]) -> dict[str, float]:
    """Word and character error rate in percent: errors over all words, or characters, that were said."""
    try:
        import jiwer
    except ImportError:
        raise ImportError("error rates need jiwer: pip install 'regard[audio]'") from None
    pairs = [(plain_text(a), plain_text(b)) for a, b in zip(heard, said, strict=True)]
    extra = [(a, b) for a, b in pairs if not b]  # jiwer takes no empty reference
    spoken = [(a, b) for a, b in pairs if b]
    if not spoken:  # of nothing, no share can be taken: any word is all wrong
        wrong = 100.0 * any(a for a, _ in extra)
        return {"wer": wrong, "cer": wrong}
    hypotheses, references = [a for a, _ in spoken], [b for _, b in spoken]
    words, characters = jiwer.process_words(references, hypotheses), jiwer.process_characters(references, hypotheses)
    rates = []
    for name, counted, added in (
        ("wer", words, sum(len(a.split()) for a, _ in extra)),
        ("cer", characters, sum(len(a) for a, _ in extra)),
    ):
        errors = counted.substitutions + counted.deletions + counted.insertions + added
        rates.append((name, 100 * errors / (counted.hits + counted.substitutions + counted.deletions)))
    return dict(rates)


def word_accuracy(heard: Sequence[str], said: Sequence[str]) -> float:
    """100 less the word error rate."""
    return 100 - error_rates(heard, said)["wer"]


class SpeechEvaluation(Task):
    """Scores of transcripts, for every class with a verb transcribe."""

    data: ClassVar[tuple[type, ...]] = (SpeechConfig,)
    output = "text"

    def test_speech(self, test: EvalSet) -> list[Spoken]:
        """The recordings of a test set: all of the named files, or those held out of the run's own data."""
        data = test.data
        if "speech" not in test.kept:
            elsewhere = "audio" in test.named and not same_file(data.audio, test.own.audio)
            read = elsewhere and not test.named & {"valid", "test"}
            test.kept["speech"] = data.read(data.audio) if read else data.held_out()
        return test.share(test.kept["speech"])

    def written(self, recordings: list[Any], **options: Any) -> list[str]:
        """The texts of recordings."""
        transcribe: Any = getattr(self, self.verbs[0].name)
        return [each.text for each in transcribe(recordings, **options)]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Word and character error rates."""
        whole = self.test_speech(test)
        examples = whole[: test.limit]
        known = {option.name for option in self.verbs[0].options}
        chosen = {name: value for name, value in options.items() if name in known and value is not None}
        heard = self.written([each.recording() for each in examples], **chosen)
        said = [each.text for each in examples]
        scores = {name: round(value, 2) for name, value in error_rates(heard, said).items()}
        return Scored(
            scores=scores | {"examples": len(examples)}, outputs=heard, expected=said, metrics=("wer", "cer"),
            lower=True, total=len(whole), unit="recordings", limit=test.limit,
        )  # fmt: skip

    def baselines(self, test: EvalSet, scored: Scored) -> dict[str, dict[str, float]]:
        """The most frequent transcript for every recording, and the most frequent word alone."""
        said = list(scored.expected)
        text = Counter(said).most_common(1)[0][0]
        words = Counter(word for each in said for word in each.split()).most_common(1)
        rows = {"most frequent transcript": text, "most frequent word": words[0][0] if words else ""}
        return {name: error_rates([guess] * len(said), said) for name, guess in rows.items()}

    def work(self, test: EvalSet) -> Work:
        recordings = [each.recording() for each in self.test_speech(test)[: test.limit]]
        return Work(run=lambda: self.written(recordings), count=len(recordings), unit="recording")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        examples = self.test_speech(test)[:5]
        recordings = [each.recording() for each in examples]
        texts = self.written(recordings)
        return Samples(
            rows=[(each.text, text) for each, text in zip(examples, texts, strict=True)],
            commands=[f"regard transcribe {run} recording.wav --timestamps", f"regard eval {run}"],
            examples=[
                Example(inputs=(recording,), label=each.text)
                for recording, each in zip(recordings, examples, strict=True)
            ],
        )
