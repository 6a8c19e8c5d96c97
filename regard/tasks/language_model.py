"""A trained language model with its tokenizer: the beginning of a text in, its continuation out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from regard.data.sets.batches import IGNORE, pad
from regard.decode.requests import Propose, Request, Ticket
from regard.decode.sample import Sampling, ends_of, until
from regard.hub.chat import ChatTemplate
from regard.tasks.engine_task import EngineTask, told_or
from regard.tasks.prepared import Prepared
from regard.tasks.prepared_text import read_prompt
from regard.tokens import Tokenizer

NEW_TOKENS = 200
"""Written behind a prompt, unless told otherwise."""


NEAR = 16
"""Tokens before a text that its first characters may depend on."""


class LanguageModel(EngineTask):
    """What `regard.load` returns for a model that continues texts."""

    inputs: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.prompt_end = generation["prompt_end"]
        self.ends = ends_of(generation.get("ends", generation["eos"]))
        self.front = front_of(tokenizer)
        self.template: ChatTemplate | None = None

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
    ) -> Request:
        """What is asked of the engine for a prompt, as far as the context reaches; with `cut`, a prompt that is longer
        than the context is read as `window` says."""
        ids = self.ids_of(prompt) if isinstance(prompt, str) else list(prompt)
        ids = self.fitting(self.window(ids) if cut else ids)
        most = told_or(NEW_TOKENS, max_new_tokens)
        return Request(
            prompt=ids, max_len=min(most, self.context - len(ids)), ends=tuple(self.ends), sampling=sampling, row=row,
            forbidden=tuple(self.generation["forbidden"]), propose=propose, alternatives=alternatives,
        )  # fmt: skip

    def generate(
        self,
        prompts: Sequence[str],
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        propose: Propose | None = None,
        each: Callable[[int, str], Any] | None = None,
        first: int = 0,
    ) -> list[str]:
        """What the model writes after each prompt: greedy, or drawn as `sampling` says. `propose` guesses how a text
        goes on (`regard.decode.speculative`); `each` is called with a prompt's number and text as it is done;
        `first` is the number of the first prompt for the draws."""
        if isinstance(prompts, str):
            raise ValueError(f"prompts is a list; put a single one in brackets: [{prompts!r}]")
        most = told_or(NEW_TOKENS, max_new_tokens)
        encoded = [self.encode(prompt) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        texts = [""] * len(prompts)

        def done(row: int, ids: list[int]) -> bool:
            written[row] += ids
            if len(written[row]) < most and not (written[row] and written[row][-1] in self.ends):
                return False
            texts[row] = self.continuation(encoded[row], until(self.ends, written[row]))
            if each is not None:
                each(row, texts[row])
            return True

        rows = list(range(len(prompts)))
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

    def stream(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        sampling: Sampling | None = None,
        propose: Propose | None = None,
    ) -> Iterator[str]:
        """The same for one prompt, piece by piece as it is written."""
        ids, told = self.encode(prompt), 0
        written: list[int] = []
        most = told_or(NEW_TOKENS, max_new_tokens)
        while len(written) < most and not (written and written[-1] in self.ends):
            request = self.request(
                self.window([*ids, *written]), max_new_tokens=most - len(written), propose=propose,
                sampling=advance(sampling, len(written)),
            )  # fmt: skip
            for token in self.engine.write(request):
                written.append(token.id)
                whole = self.settled(ids, until(self.ends, written))
                if len(whole) > told:
                    yield whole[told:]
                    told = len(whole)
        yield self.continuation(ids, until(self.ends, written))[told:]

    def told(self, request: Request, ids: list[int], *, whole: bool, before: int = 0) -> str:
        """The text of tokens that an engine wrote, behind the first `before`; without what is still open, unless that
        is the `whole`."""
        front, ids = self.near([*request.prompt, *ids[:before]]), until(self.ends, ids)[before:]
        return self.continuation(front, ids) if whole else self.settled(front, ids)

    def near(self, ids: list[int]) -> list[int]:
        """The last tokens, and all bytes in a row where they begin among those: they are judged together."""
        start = max(0, len(ids) - NEAR)
        while self.tokenizer.spells_bytes and start and self.tokenizer.decode(ids[start : start + 1]) == "�":
            start -= 1
        return ids[start:]

    def check(self, prompts: Sequence[str]) -> None:
        """An error that names the first prompt that cannot be written behind."""
        for number, prompt in enumerate(prompts, 1):
            try:
                self.encode(prompt)
            except ValueError as error:
                raise ValueError(f"text {number}: {error}") from None

    def window(self, ids: list[int]) -> list[int]:
        """What is read of a text: all, or the last half of a context where it is longer than that."""
        return ids if len(ids) < self.context else ids[-max(1, self.context // 2) :]

    def shown(self, prompt: str) -> str:
        """What is printed before a continuation: the prompt that it goes on from, unless it is an answer to it."""
        return "" if self.prompt_end else prompt

    def continuation(self, prompt: list[int], written: list[int]) -> str:
        """The text of new tokens. Decoded behind the prompt: a token's leading space depends on what stands before."""
        front, both = self.tokenizer.decode_batch([prompt, [*prompt, *written]])
        return both[len(front) :]

    def settled(self, prompt: list[int], written: list[int]) -> str:
        """What more tokens will not change: the bytes of a character come one by one, and the decoders of some
        vocabularies judge all bytes in a row together."""
        end = len(written)
        while self.tokenizer.spells_bytes and end and self.tokenizer.decode(written[end - 1 : end]) == "�":
            end -= 1
        return self.continuation(prompt, written[:end]).rstrip("�")

    def read(self, *inputs: Any, **options: Any) -> Prepared:
        """One input, ready to be looked into."""
        return read_prompt(self, *inputs, **options)

    @property
    def context(self) -> int:
        return self.model.config.max_len

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt, begun as the model was trained to begin; too long is an error that says by how much."""
        return self.fitting(self.ids_of(prompt))

    def ids_of(self, prompt: str) -> list[int]:
        """The ids of a prompt of any length, begun as the model was trained to begin."""
        ids = [*self.front, *self.tokenizer.encode(prompt + self.prompt_end)]
        if not ids:
            begin = self.generation["bos"] if self.generation["eos"] is not None else None
            if begin is None:
                raise ValueError("the prompt is empty and this model knows no mark of a beginning; give it some text")
            ids = [begin]
        return ids

    def fitting(self, ids: Sequence[int]) -> list[int]:
        """The ids of a prompt, if there is room behind them."""
        if len(ids) >= self.context:
            raise ValueError(
                f"the prompt has {len(ids):,} tokens, the model's context is {self.context:,}; "
                f"shorten it, or train with a larger --model.max-len"
            )
        return list(ids)

    @property
    def chats(self) -> bool:
        """Whether it was trained to answer."""
        return self.template is not None or bool(self.prompt_end)

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation, as the model's authors write it, up to where the next answer begins."""
        if self.template is not None:
            return self.fitting(self.tokenizer.encode(self.template.render(messages), parse_special=True))
        if not self.chats:
            raise ValueError("this model has no chat template, so it was not trained to answer; let it continue texts")
        ends = {"assistant": "\n"}
        text = "".join(f"{one['content']}{ends.get(one['role'], self.prompt_end)}" for one in messages)
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
        for first in range(0, len(rows), 16):
            some = slice(first, first + 16)
            told = [
                [*[IGNORE] * (len(front) - 1), *back] for front, back in zip(fronts[some], backs[some], strict=True)
            ]
            scores = self.model(pad([row[:-1] for row in rows[some]], 0))
            losses = F.cross_entropy(scores.transpose(1, 2), pad(told, IGNORE), ignore_index=IGNORE, reduction="none")
            totals += (-losses.sum(dim=1)).tolist()
        return totals


def front_of(tokenizer: Tokenizer) -> list[int]:
    """What a published model begins every text with; those trained here begin at once."""
    if tokenizer.inner.post_processor is None:
        return []
    framed = tokenizer.frame(["a"])[0]
    return framed.ids[: framed.side.index(0)]


def advance(sampling: Sampling | None, steps_done: int) -> Sampling | None:
    """Other draws for a text that goes on in a new window."""
    return sampling if sampling is None or not steps_done else replace(sampling, seed=sampling.seed + steps_done)
