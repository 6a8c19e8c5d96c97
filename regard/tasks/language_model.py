"""Language modelling: the beginning of a text in, its continuation out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import torch
import torch.nn.functional as F

from regard.data.notices import Count, track
from regard.data.sets.batches import IGNORE, pad
from regard.data.sets.labelled_texts import ExamplesConfig
from regard.data.sets.running_text import TextConfig
from regard.data.sets.toy_tasks import ToyConfig
from regard.decode.requests import Propose, Request, Ticket
from regard.decode.sample import Sampling, SamplingOptions, advance, ends_of, sampling_of, until
from regard.hub.chat import ChatTemplate, find_chat_template
from regard.hub.checkpoint import load_generation
from regard.modalities.pixels import PIXEL
from regard.modalities.text import TEXT
from regard.tasks.base import EvalSet, Example, Option, Samples, Scored, Task, Verb, Work, quoted, register_task
from regard.tasks.default_texts import PROMPTS
from regard.tasks.engine_task import BEAMS, GENERATE, Continuation, EngineTask, count_or
from regard.tasks.metrics import exact_match
from regard.tasks.pixel_model import PixelModel
from regard.tasks.prepared_text import read_prompt
from regard.tasks.scored_text import beginning, offered, score_text
from regard.tasks.single import one_or_many
from regard.tasks.text_encoder import TextTask
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_text

NEW_TOKENS = 200
"""The most tokens to generate, by default."""


PROMPTED = (ExamplesConfig, ToyConfig)
"""Data of prompts with their answers, in place of running text."""
TEST_EXAMPLES, TIMED = 1000, 16
"""Instructions that are scored, by default, and prompts whose continuations are timed."""
NEAR = 16
"""Tokens before a text that its first characters may depend on."""
UNSETTLED = ("�", "")
"""The texts of a byte token and of a special token, which is left out of a text, also amid the bytes of a character."""
DRAFT = Option(name="propose", kind=object, help="Drafts tokens ahead; the text stays the same.")
LLAMA2C: dict[str, Any] = {"bos": 1, "eos": 1, "ends": [1], "pad": None, "forbidden": [], "prompt_end": ""}
"""Decoding defaults of llama2.c models: <s> begins a text, and a second one ends it."""


@register_task("generate")
class LanguageModel(EngineTask, TextTask):
    """Continues texts."""

    verbs: ClassVar[tuple[Verb, ...]] = (replace(GENERATE, options=(*GENERATE.options, DRAFT)),)
    data: ClassVar[tuple[type, ...]] = (TextConfig, ExamplesConfig, ToyConfig)
    frame_of_export = "none"
    default_texts = PROMPTS
    streams = True
    trial = 8192

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.prompt_end = generation["prompt_end"]
        self.ends = ends_of(generation.get("ends", generation["eos"]))
        self.front = front_of(tokenizer)
        self.template: ChatTemplate | None = None

    @classmethod
    def suited(cls, path: Path) -> type[Task]:
        return PixelModel if PIXEL.beside(path) else cls

    @classmethod
    def load(cls, path: Path, model: Any) -> "LanguageModel":
        tokenizer = TEXT.load(path, model.config)
        if path.is_file():  # a llama2.c file
            return cls(model, tokenizer, dict(LLAMA2C))
        generation = load_generation(path)
        generation["forbidden"] += range(tokenizer.vocab_size, model.config.vocab_size)  # rows beyond the vocabulary
        task = cls(model, tokenizer, generation)
        task.template = find_chat_template(path)
        return task

    @classmethod
    def abilities(cls, path: Path, model: Any) -> list[str]:
        answers = path.is_dir() and (find_chat_template(path) is not None or load_generation(path)["prompt_end"])
        return ["generate", "chat"] if answers else ["generate"]

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        row: int = 0,
        propose: Propose | None = None,
        alternatives: int = 0,
        cut: bool = False,
        beams: int = 1,
        length_penalty: float = 1.0,
        n_best: int = 1,
    ) -> Request:
        """The engine's request for a prompt, as far as the context reaches; with `cut`, a prompt longer than the
        context is shortened by `window`."""
        ids = self.prompt_ids(prompt) if isinstance(prompt, str) else list(prompt)
        ids = self.fitting(self.window(ids) if cut else ids)
        most = count_or(NEW_TOKENS, max_new_tokens)
        return Request(
            prompt=ids, max_len=min(most, self.context - len(ids)), ends=tuple(self.ends), sampling=sampling, row=row,
            forbidden=tuple(self.generation["forbidden"]), propose=propose, alternatives=alternatives, beams=beams,
            length_penalty=length_penalty, n_best=n_best,
        )  # fmt: skip

    @one_or_many
    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        propose: Propose | None = None,
        beams: int = 1,
        length_penalty: float | None = None,
        each: Callable[[int, str], Any] | None = None,
        first: int = 0,
        **options: Unpack[SamplingOptions],
    ) -> list[str]:
        """The continuation of each prompt: greedy, sampled as `sampling`, or `temperature`, `top_p` and the like, say,
        or the best one of `beams`. `propose` drafts tokens ahead (`regard.decode.speculative`); `each` is called with a
        prompt's index and text when it is ready; `first` is the index of the first prompt, which seeds its samples."""
        sampling = sampling_of(sampling, options)
        if beams > 1 or length_penalty is not None:
            report = None if each is None else lambda row, found: each(row, found[0].text)
            settings: dict[str, Any] = dict(max_new_tokens=max_new_tokens, sampling=sampling, propose=propose)
            settings |= dict(beams=beams, length_penalty=length_penalty, each=report, first=first)
            return [found[0].text for found in self.continuations(list(prompts), **settings)]
        most = count_or(NEW_TOKENS, max_new_tokens)
        encoded = [self.encode(prompt) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        texts = [""] * len(prompts)

        def done(row: int, ids: list[int]) -> bool:
            written[row] += ids
            if len(written[row]) < most and not (written[row] and written[row][-1] in self.ends):
                return False
            texts[row] = self.continuation(encoded[row], until(self.ends, written[row]))
            count.add()
            if each is not None:
                each(row, texts[row])
            return True

        rows = list(range(len(prompts)))
        with Count("texts:", len(prompts)) as count:
            while rows:  # a second time for texts longer than the context
                left: list[int] = []

                def keep(place: int, ticket: Ticket, rows: list[int] = rows, left: list[int] = left) -> None:
                    if ticket.error is None and not done(rows[place], ticket.ids):
                        left.append(rows[place])

                requests = (
                    self.request(
                        self.window([*encoded[row], *written[row]]), max_new_tokens=most - len(written[row]),
                        sampling=advance(sampling, len(written[row])), row=first + row, propose=propose,
                    )
                    for row in rows
                )  # fmt: skip
                self.engine.serve(requests, keep)
                rows = sorted(left)
        return texts

    @one_or_many
    def continuations(
        self,
        prompts: Sequence[str],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        propose: Propose | None = None,
        each: Callable[[int, list[Continuation]], Any] | None = None,
        first: int = 0,
    ) -> list[list[Continuation]]:
        """The `n_best` continuations of each prompt by beam search, the best first. A search ends with the context."""
        if sampling is not None or propose is not None:
            raise ValueError("beam search is deterministic; leave out sampling and drafts, or the beams")
        beams, penalty = max(beams or BEAMS, n_best), 1.0 if length_penalty is None else length_penalty
        encoded = [self.encode(prompt) for prompt in prompts]
        results: list[list[Continuation]] = [[] for _ in prompts]

        def done(row: int, ticket: Ticket) -> None:
            for hypothesis in ticket.hypotheses or ():
                text = self.continuation(encoded[row], list(hypothesis.ids))
                results[row].append(Continuation(text, hypothesis.score, tuple(hypothesis.ids)))
            if each is not None and ticket.hypotheses:
                each(row, results[row])

        options: dict[str, Any] = dict(beams=beams, length_penalty=penalty, n_best=n_best)
        requests = (
            self.request(ids, max_new_tokens=max_new_tokens, row=first + row, **options)
            for row, ids in enumerate(encoded)
        )
        self.engine.serve(requests, done)
        return results

    def stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        propose: Propose | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """Yield the continuation of one prompt, piece by piece as it is generated."""
        sampling = sampling_of(sampling, options)
        ids, shown = self.encode(prompt), 0
        written: list[int] = []
        most = count_or(NEW_TOKENS, max_new_tokens)
        while len(written) < most and not (written and written[-1] in self.ends):
            request = self.request(
                self.window([*ids, *written]), max_new_tokens=most - len(written), propose=propose,
                sampling=advance(sampling, len(written)),
            )  # fmt: skip
            before = len(written)
            for ticket in self.engine.watch(request):
                for id in ticket.ids[len(written) - before :]:
                    written.append(id)
                    whole = self.settled(ids, until(self.ends, written))
                    if len(whole) > shown:
                        yield whole[shown:]
                        shown = len(whole)
        yield self.continuation(ids, until(self.ends, written))[shown:]

    def text_of(self, request: Request, ids: list[int], *, whole: bool, before: int = 0) -> str:
        """The text of generated tokens after the first `before`; unless they are the `whole` text, without a character
        whose bytes are not complete."""
        front, ids = self.near([*request.prompt, *ids[:before]]), until(self.ends, ids)[before:]
        return self.continuation(front, ids) if whole else self.settled(front, ids)

    def near(self, ids: list[int]) -> list[int]:
        """The last few tokens, extended to the front while they begin inside a run of byte tokens."""
        start = max(0, len(ids) - NEAR)
        while self.tokenizer.spells_bytes and start and self.tokenizer.decode(ids[start : start + 1]) in UNSETTLED:
            start -= 1
        return ids[start:]

    def check(self, prompts: Sequence[str]) -> None:
        """Raise a ValueError that names the first prompt that cannot be continued."""
        for number, prompt in enumerate(prompts, 1):
            try:
                self.encode(prompt)
            except ValueError as error:
                raise ValueError(f"text {number}: {error}") from None

    def window(self, ids: list[int]) -> list[int]:
        """The tokens that are read of a text: all, or the last half of a context where it is longer."""
        return ids if len(ids) < self.context else ids[-max(1, self.context // 2) :]

    def shown(self, prompt: str) -> str:
        """The text printed before a continuation: the prompt, unless the model answers it."""
        return "" if self.prompt_end else prompt

    def continuation(self, prompt: list[int], written: list[int]) -> str:
        """The text of new tokens, decoded after the prompt: a token's leading space depends on what precedes it."""
        front, both = self.tokenizer.decode_batch([prompt, [*prompt, *written]])
        return both[len(front) :]

    def settled(self, prompt: list[int], written: list[int]) -> str:
        """The part of the text that later tokens cannot change: the bytes of a character come one by one, and some
        decoders treat a run of byte tokens as one."""
        end = len(written)
        while self.tokenizer.spells_bytes and end and self.tokenizer.decode(written[end - 1 : end]) in UNSETTLED:
            end -= 1
        return self.continuation(prompt, written[:end]).rstrip("�")

    read = read_prompt

    @property
    def context(self) -> int:
        return self.model.config.max_len

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt, with the special tokens that texts begin with; an error if it is too long."""
        return self.fitting(self.prompt_ids(prompt))

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids of a prompt of any length."""
        ids = [*self.front, *self.tokenizer.encode(prompt + self.prompt_end)]
        if not ids:
            begin = self.generation["bos"] if self.generation["eos"] is not None else None
            if begin is None:
                raise ValueError("the prompt is empty and this model has no BOS token; give it some text")
            ids = [begin]
        return ids

    def fitting(self, ids: Sequence[int]) -> list[int]:
        """The ids of a prompt; an error if the context has no room after them."""
        if len(ids) >= self.context:
            raise ValueError(
                f"the prompt has {len(ids):,} tokens, the model's context is {self.context:,}; "
                f"shorten it, or train with a larger --model.max-len"
            )
        return list(ids)

    @property
    def chats(self) -> bool:
        """Whether the model was trained to answer prompts."""
        return self.template is not None or bool(self.prompt_end)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation, as the model's authors write it, up to where the next answer begins."""
        if self.template is not None:
            return self.fitting(self.tokenizer.encode(self.template.render(messages), parse_special=True))
        if not self.chats:
            raise ValueError("this model has no chat template, so it was not trained to answer; let it continue texts")
        ends = {"assistant": "\n"}
        text = "".join(f"{message['content']}{ends.get(message['role'], self.prompt_end)}" for message in messages)
        return self.fitting([*self.front, *self.tokenizer.encode(text)])

    @torch.inference_mode()
    def score(self, prompts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """The log-probability of each answer behind its prompt."""
        fronts = [self.encode(prompt) for prompt in prompts]
        backs = self.tokenizer.encode_batch(list(answers))
        rows = [[*front, *back] for front, back in zip(fronts, backs, strict=True)]
        if (longest := max(map(len, rows), default=0)) > self.context:
            raise ValueError(
                f"prompt and answer have {longest:,} tokens, the context is {self.context:,}; shorten them"
            )
        totals = []
        for first in track(range(0, len(rows), 16), "answers:", len(rows), lambda first: 16):
            group = slice(first, first + 16)
            targets = [
                [*[IGNORE] * (len(front) - 1), *back] for front, back in zip(fronts[group], backs[group], strict=True)
            ]
            logits = self.model(pad([row[:-1] for row in rows[group]], 0)).transpose(1, 2)
            losses = F.cross_entropy(logits, pad(targets, IGNORE), ignore_index=IGNORE, reduction="none")
            totals += (-losses.sum(dim=1)).tolist()
        return totals

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        """Bits per byte of held-out text; for instructions, the share of answers that are exactly right."""
        data = test.data
        if isinstance(data, PROMPTED):
            held_out = test.read("examples", data.held_out)
            examples = held_out[: test.limit or TEST_EXAMPLES]
            expected = [example.answer for example in examples]
            most = max([63, *map(len, self.tokenizer.encode_batch(expected))]) + 1
            texts = self.generate([example.prompt for example in examples], max_new_tokens=most)
            scores: dict[str, Any] = {"exact_match": round(exact_match(texts, expected), 2), "examples": len(examples)}
            total = min(len(held_out), TEST_EXAMPLES)
            return Scored(scores=scores, outputs=texts, expected=expected, total=total)
        text, data = self.held_out_text(test), test.own
        return score_text(
            self.model, self.tokenizer, self.context, text, known=lambda: data.split()[0], limit=test.limit,
            embedded=data.embedded and not test.named,
        )  # fmt: skip

    def work(self, test: EvalSet) -> Work:
        if isinstance(test.data, PROMPTED):
            return super().work(test)
        half, ids = max(1, self.context // 2), encode_text(self.tokenizer, self.held_out_text(test)).tolist()
        prompts = [ids[first : first + half] for first in range(0, len(ids), 2 * half)][: test.limit or TIMED]
        requests = [self.request(prompt, max_new_tokens=half) for prompt in prompts]
        return Work(run=lambda: self.engine.serve(requests), count=half * len(prompts), unit="new token")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        if isinstance(test.data, PROMPTED):
            prompts = [example.prompt for example in test.data.held_out()[:3]]
            rows = list(zip(prompts, self.generate(prompts, max_new_tokens=64), strict=True))
            return Samples(rows=rows, commands=[f"regard generate {run} {quoted(prompts[0])}"])
        kind, embedded, own = self.tokenizer.kind, test.data.embedded, test.data.held_out()
        begin = beginning(kind, own, embedded=embedded)
        text = self.generate([begin], max_new_tokens=120, sampling=Sampling(temperature=0.8, top_p=0.95, seed=1))[0]
        commands = [
            f'regard generate {run} "{begin.strip()}" --max-new-tokens 200 --temperature 0.8 --top-p 0.95 --seed 1',
            f'regard look {run} "{begin.strip()}{"" if kind == "dna" else " list of"}" --out heads.png',
        ]
        if embedded:
            commands.append(f"regard train {test.recipe} --model lstm --out runs/lstm")
        examples = [Example(inputs=(prompt,)) for prompt in (begin, *offered(kind, own, embedded=embedded))]
        return Samples(rows=[("", begin + text)], commands=commands, examples=examples)

    def generation_to_export(self) -> dict[str, Any]:
        return {name: self.generation[name] for name in ("bos", "eos", "pad", "forbidden", "prompt_end")}


def front_of(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of the special tokens that a published model begins every text with; none for models trained
    here."""
    if tokenizer.inner.post_processor is None:
        return []
    framed = tokenizer.frame(["a"])[0]
    return framed.ids[: framed.side.index(0)]
