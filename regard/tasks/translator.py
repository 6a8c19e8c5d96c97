"""Sequence to sequence: texts in, translations (or other texts) out, by an encoder–decoder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling, ends_of, until
from regard.hub.checkpoint import load_generation
from regard.tasks.base import Option, Verb, register_task
from regard.tasks.engine_task import GENERATE_OPTIONS, EngineTask, count_or
from regard.tasks.text_encoder import TextTask
from regard.tokens import Tokenizer

LONGEST_SOURCE = 2048
"""The most tokens of a source text, by default."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


BEAM_OPTIONS = (
    Option(name="beams", kind=int, limits=(1, 64), help="Beams; 1 is greedy."),
    Option(name="length_penalty", kind=float, help="Scores are divided by length to this power."),
    Option(name="n_best", kind=int, default=1, limits=(1, 64), help="Outputs for each text."),
    *GENERATE_OPTIONS,
)


@register_task("translate")
class Translator(EngineTask, TextTask):
    """Translates texts with an encoder–decoder."""

    verbs = (
        Verb(name="translate", does="translates", input="source", options=BEAM_OPTIONS),
        Verb(name="generate", does="writes", input="prompt", options=GENERATE_OPTIONS),
    )
    frame_of_export = "end"

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.start = [id for id in (generation["decoder_start"], generation.get("forced_bos")) if id is not None]

    @classmethod
    def load(cls, path: Path, model: Any) -> "Translator":
        tokenizer, generation = Tokenizer.load(path), load_generation(path)
        generation["forbidden"] += range(tokenizer.vocab_size, model.config.vocab_size)  # rows beyond the vocabulary
        return cls(model, tokenizer, generation)

    @classmethod
    def abilities(cls, path: Path, model: Any) -> list[str]:
        return ["translate"]

    def request(
        self,
        source: str | Sequence[int],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
        row: int = 0,
        max_new_tokens: int | None = None,
        alternatives: int = 0,
    ) -> Request:
        """The engine's request for a source. An output ends at `max_new_tokens`, or at twice the source's length."""
        settings = self.generation
        if isinstance(source, str):
            source = self.encode([source], LONGEST_SOURCE)[0]
        return Request(
            prompt=self.start, inputs={"source": torch.tensor(source)}, ends=tuple(ends_of(settings["eos"])),
            forbidden=tuple(settings["forbidden"]),
            max_len=min(count_or(2 * len(source) + 16, max_new_tokens), settings["max_length"] - len(self.start)),
            force_end=settings["force_end"], sampling=sampling, row=row,
            beams=1 if sampling else max(beams or settings["num_beams"], n_best), n_best=n_best,
            length_penalty=settings["length_penalty"] if length_penalty is None else length_penalty,
            alternatives=alternatives,
        )  # fmt: skip

    def translate(
        self,
        texts: Sequence[str],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
        max_source: int = LONGEST_SOURCE,
        max_new_tokens: int | None = None,
        each: Callable[[int, list[Translation]], Any] | None = None,
        first: int = 0,
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, in order: by beam search, greedily with one beam, or sampled.

        A blank text has a blank translation. `each` is called with a text's index and translations when they are ready;
        `first` is the index of the first text, which seeds its samples.
        """
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        if sampling and (n_best > 1 or (beams or 1) > 1):
            raise ValueError("sampling returns one translation of each text; leave out beams and n_best")
        sources = self.encode(texts, min(max_source, self.engine.runner.max_positions))
        results = [[Translation("", 0.0, ())] for _ in texts]
        real = [row for row, text in enumerate(texts) if text.strip()]

        def done(place: int, ticket: Ticket) -> None:
            if ticket.hypotheses is None:
                return
            row, written = real[place], self.tokenizer.decode_batch([h.ids for h in ticket.hypotheses])
            pairs = zip(written, ticket.hypotheses, strict=True)
            results[row] = [Translation(text, one.score, tuple(one.ids)) for text, one in pairs]
            if each is not None:
                each(row, results[row])

        options: dict[str, Any] = dict(beams=beams, length_penalty=length_penalty, n_best=n_best)
        options |= dict(sampling=sampling, max_new_tokens=max_new_tokens)
        if each is not None:
            for row in sorted(set(range(len(texts))) - set(real)):
                each(row, results[row])
        self.engine.serve((self.request(sources[row], row=first + row, **options) for row in real), done)
        return results

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        each: Callable[[int, str], Any] | None = None,
        first: int = 0,
    ) -> list[str]:
        """The output for each prompt, for models of several tasks: greedy, or sampled as `sampling` says."""
        report = None if each is None else lambda row, translations: each(row, translations[0].text)
        options: dict[str, Any] = dict(sampling=sampling, max_new_tokens=max_new_tokens, each=report, first=first)
        return [best[0].text for best in self.translate(prompts, beams=1, **options)]

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, sampling: Sampling | None = None
    ) -> Iterator[str]:
        """Yield the output for one prompt, in one piece."""
        yield self.generate([prompt], max_new_tokens=max_new_tokens, sampling=sampling)[0]

    def shown(self, prompt: str) -> str:
        """The text printed before an output: nothing, since it does not continue the prompt."""
        return ""

    def check(self, texts: Sequence[str]) -> None:
        """Raise a ValueError that names the first text that is too long."""
        self.encode(texts, LONGEST_SOURCE)

    def told(self, request: Request, ids: list[int], *, whole: bool, before: int = 0) -> str:
        """The text of generated tokens after the first `before`."""
        ids = until(request.ends, ids)
        front, both = self.tokenizer.decode_batch([ids[:before], ids])
        return both[len(front) :].rstrip("" if whole else "\ufffd")

    def encode(self, texts: Sequence[str], max_source: int) -> list[list[int]]:
        """Token ids with EOS at the end, framed as a published tokenizer frames them; an error names a text that is too
        long."""
        if self.tokenizer.inner.post_processor is None:
            found = self.tokenizer.encode_batch(texts)
        else:
            found = [framed.ids for framed in self.tokenizer.frame(texts)]
        eos = self.generation["eos"]
        sources = [ids if ids[-1:] == [eos] else [*ids, eos] for ids in found]
        for number, ids in enumerate(sources, 1):
            if len(ids) > max_source:
                raise ValueError(
                    f"text {number} has {len(ids):,} tokens, more than {max_source:,}; split it into sentences"
                )
        return sources

    def answers(self, verb: str, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        if verb == "generate":
            return [{"text": text} for text in self.generate(inputs, **options)]
        rows = self.translate(inputs, **options)
        return [{"translations": [{"text": h.text, "score": round(h.score, 6)} for h in row]} for row in rows]

    def render(self, verb: str, answer: Any) -> str:
        if verb == "generate":
            return answer["text"]
        rows = answer["translations"]
        return "\n".join(f"{row['score']:8.4f}  {row['text']}" if len(rows) > 1 else row["text"] for row in rows)

    def generation_to_export(self) -> dict[str, Any]:
        settings = self.generation
        kept = {name: settings[name] for name in ("eos", "pad", "forbidden", "length_penalty", "force_end")}
        return kept | dict(
            bos=settings["decoder_start"], beams=settings["num_beams"], max_len=settings["max_length"] - 1
        )


@register_task("text-to-text")
class TextToText(Translator):
    """Several tasks in one encoder–decoder, chosen by the text's prefix."""

    @classmethod
    def abilities(cls, path: Path, model: Any) -> list[str]:
        return ["generate", "translate"]
