"""Sequence to sequence: texts in, translations (or other texts) out, by an encoder–decoder."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import torch

from regard.data.generated.splits import SHOWCASE
from regard.data.generated.text_tasks import PREFIXES, Summaries, tasks
from regard.data.notices import Count
from regard.data.readers.pairs import Pairs, read_pairs
from regard.data.sets.batches import IGNORE, Batch
from regard.data.sets.running_text import SpansConfig
from regard.data.sets.text_pairs import PairsConfig, TasksConfig
from regard.decode.requests import Request, Ticket
from regard.decode.sample import Sampling, SamplingOptions, ends_of, sampling_of, until
from regard.hub.checkpoint import load_generation
from regard.tasks.base import EvalSet, Samples, Scored, Verb, Work, quoted, register_task
from regard.tasks.baselines import best_constant, most_frequent
from regard.tasks.default_texts import GREETINGS, PREFIXED
from regard.tasks.engine_task import (
    BEAM_OPTIONS,
    GENERATE,
    VALIDATED,
    EngineTask,
    count_or,
    render_texts,
    texts_as_json,
)
from regard.tasks.metrics import exact_match, summary_scores, translation_scores
from regard.tasks.prepared_text import read_source
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import TextTask
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_pairs

TEST_EXAMPLES = 1000
"""Number of embedded pairs that are scored."""
LONGEST_SOURCE = 2048
"""The most tokens of a source text, by default."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


@register_task("translate")
class Translator(EngineTask, TextTask):
    """Translates texts with an encoder–decoder."""

    verbs: ClassVar[tuple[Verb, ...]] = (
        Verb(
            name="translate", does="translates", input="source", options=BEAM_OPTIONS,
            as_json=lambda translations: {"translations": texts_as_json(translations)},
            render=lambda answer: render_texts(answer["translations"]),
        ),
        GENERATE,
    )  # fmt: skip
    data: ClassVar[tuple[type, ...]] = (PairsConfig, SpansConfig)
    frame_of_export = "end"
    default_texts = GREETINGS
    streams = True

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

    @one_or_many
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
        **sampled: Unpack[SamplingOptions],
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, in order: by beam search, greedily with one beam, or sampled as
        `sampling`, or `temperature`, `top_p` and the like, say.

        A blank text has a blank translation. `each` is called with a text's index and translations when they are ready;
        `first` is the index of the first text, which seeds its samples.
        """
        sampling = sampling_of(sampling, sampled)
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
            results[row] = [Translation(text, hypothesis.score, tuple(hypothesis.ids)) for text, hypothesis in pairs]
            count.add()
            if each is not None:
                each(row, results[row])

        options: dict[str, Any] = dict(beams=beams, length_penalty=length_penalty, n_best=n_best)
        options |= dict(sampling=sampling, max_new_tokens=max_new_tokens)
        if each is not None:
            for row in sorted(set(range(len(texts))) - set(real)):
                each(row, results[row])
        with Count("texts:", len(real)) as count:
            self.engine.serve((self.request(sources[row], row=first + row, **options) for row in real), done)
        return results

    @one_or_many
    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        beams: int = 1,
        length_penalty: float | None = None,
        each: Callable[[int, str], Any] | None = None,
        first: int = 0,
        **sampled: Unpack[SamplingOptions],
    ) -> list[str]:
        """The output for each prompt, for models of several tasks: greedy, sampled as `sampling`, or `temperature`,
        `top_p` and the like, say, or the best one of `beams`."""
        sampling = sampling_of(sampling, sampled)
        report = None if each is None else lambda row, translations: each(row, translations[0].text)
        options: dict[str, Any] = dict(sampling=sampling, max_new_tokens=max_new_tokens, each=report, first=first)
        options |= dict(beams=beams, length_penalty=length_penalty)
        return [best[0].text for best in self.translate(prompts, **options)]

    continuations = translate

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, sampling: Sampling | None = None,
        **sampled: Unpack[SamplingOptions],
    ) -> Iterator[str]:  # fmt: skip
        """Yield the output for one prompt, in one piece."""
        yield self.generate([prompt], max_new_tokens=max_new_tokens, sampling=sampling, **sampled)[0]

    def shown(self, prompt: str) -> str:
        """The text printed before an output: nothing, since it does not continue the prompt."""
        return ""

    read = read_source

    def check(self, texts: Sequence[str]) -> None:
        """Raise a ValueError that names the first text that is too long."""
        self.encode(texts, LONGEST_SOURCE)

    def text_of(self, request: Request, ids: list[int], *, whole: bool, before: int = 0) -> str:
        """The text of generated tokens after the first `before`."""
        ids = until(request.ends, ids)
        front, both = self.tokenizer.decode_batch([ids[:before], ids])
        return both[len(front) :].rstrip("" if whole else "\ufffd")

    def encode(self, texts: Sequence[str], max_source: int) -> list[list[int]]:
        """Token ids with EOS at the end, framed as a published tokenizer frames them; an error names a text that is too
        long."""
        if self.tokenizer.inner.post_processor is None:
            encoded = self.tokenizer.encode_batch(texts)
        else:
            encoded = [framed.ids for framed in self.tokenizer.frame(texts)]
        eos = self.generation["eos"]
        sources = [ids if ids[-1:] == [eos] else [*ids, eos] for ids in encoded]
        for number, ids in enumerate(sources, 1):
            if len(ids) > max_source:
                raise ValueError(
                    f"text {number} has {len(ids):,} tokens, more than {max_source:,}; split it into sentences"
                )
        return sources

    def test_pairs(self, test: EvalSet) -> Pairs:
        """The pairs of named files, the embedded test phrases, or the validation pairs of the run."""
        data = test.data
        if isinstance(data, SpansConfig):
            raise ValueError(
                f"{test.run} was only pre-trained; train it for tasks: regard train t5 --data.base {test.run}"
            )

        def read() -> Pairs:
            if data.embedded:
                return PairsConfig().generated("test", TEST_EXAMPLES)
            if test.named:
                return read_pairs(data.source, data.target, data.pairs, data.keys)
            return data.split()[1]

        return test.read("pairs", read)[: test.limit]

    def validate(self, batches: Iterable[Batch]) -> dict[str, float]:
        """BLEU of greedy outputs for some of the validation pairs."""
        pairs: list[tuple[list[int], list[int]]] = []
        for batch in batches:
            rows = zip(batch.inputs["source"], batch.inputs["lengths"].tolist(), batch.targets, strict=True)
            pairs += [(source[:size].tolist(), row[row != IGNORE][:-1].tolist()) for source, size, row in rows]
        sources, references = zip(*pairs[:: math.ceil(len(pairs) / VALIDATED)], strict=True)
        scores = translation_scores(self.greedy(sources), self.tokenizer.decode_batch(references))
        return {"bleu": scores["bleu"]}

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        if isinstance(test.data, TasksConfig) and test.data.embedded:
            return self.evaluate_tasks(test, test.data.summaries)
        pairs = self.test_pairs(replace(test, limit=None))
        return replace(self.evaluate_pairs(pairs[: test.limit], **options), total=len(pairs), unit="sentences")

    def is_scored(self, test: EvalSet) -> bool:
        return not isinstance(test.data, SpansConfig)

    def evaluate_after_training(self, test: EvalSet) -> Scored:
        if isinstance(test.data, TasksConfig):
            return self.evaluate(test)
        total = len(self.test_pairs(replace(test, limit=None)))
        return replace(self.evaluate_pairs(self.usable(test)), total=total, unit="sentences")

    def evaluate_pairs(
        self, pairs: Pairs, *, beams: int | None = None, length_penalty: float | None = None, lowercase: bool = False
    ) -> Scored:
        """BLEU, chrF and exact match of the translations of pairs."""
        results = self.translate([source for source, _ in pairs], beams=beams, length_penalty=length_penalty)
        texts = [best[0].text for best in results]
        scores: dict[str, Any] = translation_scores(texts, [target for _, target in pairs], lowercase=lowercase)
        summary = (
            f"exact match {scores['exact_match']:.1f} %   BLEU {scores['bleu']:.2f}   chrF {scores['chrf']:.2f}"
            f"   ({scores['sentences']:,} sentences)\n{scores['bleu_signature']}"
        )
        expected = [target for _, target in pairs]
        copied = translation_scores([source for source, _ in pairs], expected, lowercase=lowercase)
        rows = {"the source itself": copied}
        if expected and best_constant(expected) > copied["exact_match"]:
            usual = [most_frequent(expected)] * len(expected)
            rows["most frequent target"] = translation_scores(usual, expected, lowercase=lowercase)
        kept = ("bleu", "chrf", "exact_match")
        return Scored(
            scores=scores, outputs=texts, summary=summary, expected=expected, metrics=("bleu",),
            baselines={name: {metric: row[metric] for metric in kept if metric in row} for name, row in rows.items()},
        )  # fmt: skip

    def work(self, test: EvalSet) -> Work:
        if isinstance(test.data, TasksConfig):
            return super().work(test)
        sources = [source for source, _ in self.test_pairs(test)]
        return Work(run=lambda: self.translate(sources), count=len(sources), unit="sentence")

    def evaluate_tasks(self, test: EvalSet, summaries: Summaries) -> Scored:
        """Each embedded task by itself: exact match, and ROUGE-L for summaries; the baselines are the source without
        its prefix, the first sentence of a text, and the most frequent answer."""
        examples = test.share(tasks("test", test.limit or 2 * TEST_EXAMPLES, summaries=summaries))
        texts = [best[0].text for best in self.translate([example.source for example in examples], beams=1)]
        groups: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for example, text in zip(examples, texts, strict=True):
            groups[example.name].append((example.source.removeprefix(PREFIXES[example.name]), text, example.target))
        scores: dict[str, Any] = {}
        copied: dict[str, float] = {}
        usual: dict[str, float] = {}
        for name, rows in groups.items():
            bodies, outputs, expected = (list(column) for column in zip(*rows, strict=True))
            if name == "summarize":
                lead = [body.partition(". ")[0] + "." for body in bodies]
                scores["summarize_rouge_l"] = summary_scores(outputs, expected)
                scores["lead_sentence_rouge_l"] = summary_scores(lead, expected)
                copied["summarize_rouge_l"] = summary_scores(bodies, expected)
            else:
                metric = f"{name}_exact_match"
                scores[metric] = round(exact_match(outputs, expected), 2)
                copied[metric], usual[metric] = round(exact_match(bodies, expected), 2), best_constant(expected)
        lead_score = {"summarize_rouge_l": scores["lead_sentence_rouge_l"]} if "summarize" in groups else {}
        return Scored(
            scores=scores | {"examples": len(examples)}, outputs=texts, metrics=tuple(copied),
            total=2 * TEST_EXAMPLES, baselines={
                "the text itself": copied, "its first sentence": lead_score, "most frequent answer": usual,
            },
        )  # fmt: skip

    def samples(self, test: EvalSet, run: Path) -> Samples:
        if isinstance(test.data, SpansConfig):
            return Samples(commands=[f"regard train t5 --data.base {run}"])
        if isinstance(test.data, TasksConfig):
            return self.task_samples(test, run)
        texts = list(SHOWCASE) if test.data.embedded else [source for source, _ in self.usable(test)[:5]]
        rows = [(text, best[0].text) for text, best in zip(texts, self.translate(texts), strict=True)]
        commands = [
            f"regard translate {run} {quoted(texts[-1])} --n-best 3",
            f"regard look {run} {quoted(texts[0])} --out heads.png",
            "regard train translate --model seq2seq --model.score none --out runs/no-attention",
        ]
        return Samples(rows=rows, commands=commands, views={"alignment.png": ("alignment", texts[0])})

    def task_samples(self, test: EvalSet, run: Path) -> Samples:
        """One output of each task by its prefix."""
        if test.data.embedded:
            first = tasks("test", 27, summaries=test.data.summaries)
            examples = {example.name: example.source for example in reversed(first)}
            sources = [examples[name] for name in sorted(examples)]
        else:
            sources = [source for source, _ in self.test_pairs(test)[:3]]
        outputs = [best[0].text for best in self.translate(sources, beams=1)]
        commands = [f"regard generate {run} {quoted(source)}" for source in sources[:2]]
        return Samples(rows=list(zip(sources, outputs, strict=True)), commands=commands)

    def usable(self, test: EvalSet) -> Pairs:
        """The test pairs that are short enough for the model's data, as many as are scored after training."""
        pairs = self.test_pairs(test)
        usable = encode_pairs(pairs, self.tokenizer, test.data.max_len)[:TEST_EXAMPLES]
        return [pairs[pair.number - 1] for pair in usable]

    def generation_to_export(self) -> dict[str, Any]:
        settings = self.generation
        kept = {name: settings[name] for name in ("eos", "pad", "forbidden", "length_penalty", "force_end")}
        return kept | dict(
            bos=settings["decoder_start"], beams=settings["num_beams"], max_len=settings["max_length"] - 1
        )


@register_task("text-to-text")
class TextToText(Translator):
    """Several tasks in one encoder–decoder, chosen by the text's prefix."""

    default_texts = PREFIXED

    @classmethod
    def abilities(cls, path: Path, model: Any) -> list[str]:
        return ["generate", "translate"]
