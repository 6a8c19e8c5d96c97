"""A trained encoder–decoder with its tokenizer: texts in, translations out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling, ends_of, until
from regard.tasks.engine_task import EngineTask, told_or
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_text import read_source
from regard.tokens import Tokenizer

LONGEST_SOURCE = 2048
"""Tokens of a text, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


class Translator(EngineTask):
    """What `regard.load` returns for a model that turns one text into another."""

    inputs: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.start = [id for id in (generation["decoder_start"], generation.get("forced_bos")) if id is not None]

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
        """What is asked of the engine for a source. An output ends at `max_new_tokens`, or at twice its source."""
        told = self.generation
        if isinstance(source, str):
            source = self.encode([source], LONGEST_SOURCE)[0]
        return Request(
            prompt=self.start, source=source, ends=tuple(ends_of(told["eos"])), forbidden=tuple(told["forbidden"]),
            max_len=min(told_or(2 * len(source) + 16, max_new_tokens), told["max_length"] - len(self.start)),
            force_end=told["force_end"], sampling=sampling, row=row,
            beams=1 if sampling else max(beams or told["num_beams"], n_best), n_best=n_best,
            length_penalty=told["length_penalty"] if length_penalty is None else length_penalty,
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
        """The `n_best` translations of each text, in the order given; greedy for one beam, or sampled.

        A blank text has a blank translation. `each` is called with a text's number and translations as they are done;
        `first` is the number of the first text for the draws.
        """
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        if sampling and (n_best > 1 or (beams or 1) > 1):
            raise ValueError("sampling draws one translation of each text; leave out beams and n_best")
        sources = self.encode(texts, min(max_source, self.engine.runner.max_positions))
        results = [[Translation("", 0.0, ())] for _ in texts]
        real = [row for row, text in enumerate(texts) if text.strip()]

        def done(place: int, ticket: Ticket) -> None:
            if ticket.found is None:
                return
            row, written = real[place], self.tokenizer.decode_batch([h.ids for h in ticket.found])
            results[row] = [Translation(t, h.score, tuple(h.ids)) for t, h in zip(written, ticket.found, strict=True)]
            if each is not None:
                each(row, results[row])

        how: dict[str, Any] = dict(beams=beams, length_penalty=length_penalty, n_best=n_best)
        how |= dict(sampling=sampling, max_new_tokens=max_new_tokens)
        if each is not None:
            for row in sorted(set(range(len(texts))) - set(real)):
                each(row, results[row])
        self.engine.serve((self.request(sources[row], row=first + row, **how) for row in real), done)
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
        """The answer to each prompt, for models of several tasks: greedy, or drawn as `sampling` says."""
        told = None if each is None else lambda row, found: each(row, found[0].text)
        how: dict[str, Any] = dict(sampling=sampling, max_new_tokens=max_new_tokens, each=told, first=first)
        return [best[0].text for best in self.translate(prompts, beams=1, **how)]

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, sampling: Sampling | None = None
    ) -> Iterator[str]:
        """The same for one prompt; an answer comes in one piece."""
        yield self.generate([prompt], max_new_tokens=max_new_tokens, sampling=sampling)[0]

    def shown(self, prompt: str) -> str:
        """What is printed before an answer: nothing."""
        return ""

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_source(self, *inputs, **options)

    def check(self, texts: Sequence[str]) -> None:
        """An error that names the first text that is too long."""
        self.encode(texts, LONGEST_SOURCE)

    def told(self, request: Request, ids: list[int], *, whole: bool, before: int = 0) -> str:
        """The text of tokens that an engine wrote, behind the first `before`."""
        ids = until(request.ends, ids)
        front, both = self.tokenizer.decode_batch([ids[:before], ids])
        return both[len(front) :].rstrip("" if whole else "\ufffd")

    def encode(self, texts: Sequence[str], max_source: int) -> list[list[int]]:
        """Ids with <eos> behind them, framed as a published tokenizer frames them; a text that is too long is named by
        its number."""
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
