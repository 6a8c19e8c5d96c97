"""A trained language model with its tokenizer: the beginning of a text in, its continuation out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from regard.data.batches import IGNORE, pad
from regard.decode.sample import Sampling, ends_of, generate, steps, until
from regard.tokens import Tokenizer

NEW_TOKENS = 200
"""Written behind a prompt, unless told otherwise."""


class Writer:
    """What `regard.load` returns for a model that continues texts."""

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.prompt_end = generation["prompt_end"]
        self.ends = ends_of(generation.get("ends", generation["eos"]))
        self.front = front_of(tokenizer)

    def generate(
        self, prompts: Sequence[str], *, max_new_tokens: int | None = None, sampling: Sampling | None = None
    ) -> list[str]:
        """What the model writes after each prompt: greedy, or drawn as `sampling` says."""
        if isinstance(prompts, str):
            raise ValueError(f"prompts is a list; put a single one in brackets: [{prompts!r}]")
        max_new_tokens = NEW_TOKENS if max_new_tokens is None else max_new_tokens
        encoded = [self.encode(prompt) for prompt in prompts]
        texts = [""] * len(prompts)
        for length in sorted({len(ids) for ids in encoded}):  # prompts of one length are written together
            rows = [row for row, ids in enumerate(encoded) if len(ids) == length]
            if length + max_new_tokens > self.context:
                for row in rows:
                    how: dict[str, Any] = dict(max_new_tokens=max_new_tokens, sampling=sampling, row=row)
                    texts[row] = "".join(self.stream(prompts[row], **how))
                continue
            found = generate(
                self.model, torch.tensor([encoded[row] for row in rows]), eos=self.ends,
                max_len=max_new_tokens, sampling=sampling, forbidden=self.generation["forbidden"], rows=rows,
            )  # fmt: skip
            for row, hypothesis in zip(rows, found, strict=True):
                texts[row] = self.continuation(encoded[row], hypothesis.ids)
        return texts

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, sampling: Sampling | None = None, row: int = 0
    ) -> Iterator[str]:
        """The same for one prompt, piece by piece as it is written; `row` is its number, for the draws.

        A text longer than the context goes on from the last half of a context.
        """
        ends, ids, told = self.ends, self.encode(prompt), 0
        written: list[int] = []
        max_new_tokens = NEW_TOKENS if max_new_tokens is None else max_new_tokens
        while len(written) < max_new_tokens:
            seen = [*ids, *written]
            seen = seen if len(seen) < self.context else seen[-max(1, self.context // 2) :]
            room = min(max_new_tokens - len(written), self.context - len(seen))
            for step in steps(
                self.model, torch.tensor([seen]), eos=ends, max_len=room, sampling=advance(sampling, len(written)),
                forbidden=self.generation["forbidden"], rows=[row],
            ):  # fmt: skip
                written.append(int(step.ids[0]))
                if written[-1] in ends:
                    break
                whole = self.settled(ids, written)
                if len(whole) > told:
                    yield whole[told:]
                    told = len(whole)
            if written[-1] in ends:
                break
        yield self.continuation(ids, until(ends, written))[told:]

    def shown(self, prompt: str) -> str:
        """What is printed before a continuation: the prompt that it goes on from, unless it is an answer to it."""
        return "" if self.prompt_end else prompt

    def continuation(self, prompt: list[int], written: list[int]) -> str:
        """The text of new tokens. Decoded behind the prompt: a token's leading space depends on what stands before."""
        decode = self.tokenizer.decode
        return decode([*prompt, *written])[len(decode(prompt)) :]

    def settled(self, prompt: list[int], written: list[int]) -> str:
        """What more tokens will not change: the bytes of a character come one by one, and the decoders of some
        vocabularies judge all bytes in a row together."""
        decode, decoder = self.tokenizer.decode, self.tokenizer.inner.decoder
        end = len(written)
        if decoder is not None and b'"ByteFallback"' in decoder.__getstate__():
            while end and decode(written[end - 1 : end]) == "�":
                end -= 1
        return self.continuation(prompt, written[:end]).rstrip("�")

    @property
    def context(self) -> int:
        return self.model.config.max_len

    def encode(self, prompt: str) -> list[int]:
        """The ids of a prompt, begun as the model was trained to begin; too long is an error that says by how much."""
        ids = [*self.front, *self.tokenizer.encode(prompt + self.prompt_end)]
        if not ids:
            begin = self.generation["bos"] if self.generation["eos"] is not None else None
            if begin is None:
                raise ValueError("the prompt is empty and this model knows no mark of a beginning; give it some text")
            ids = [begin]
        if len(ids) >= self.context:
            raise ValueError(
                f"the prompt has {len(ids):,} tokens, the model's context is {self.context:,}; "
                f"shorten it, or train with a larger --model.max-len"
            )
        return ids

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
