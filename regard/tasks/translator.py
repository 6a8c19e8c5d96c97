"""A trained encoder–decoder with its tokenizer: texts in, translations out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.data.batches import bucket, pad
from regard.decode.beam import beam_search
from regard.decode.sample import Sampling, generate
from regard.tokens import Tokenizer


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation, its score, and its tokens."""

    text: str
    score: float
    ids: tuple[int, ...]


class Translator:
    """What `regard.load` returns for a model that turns one text into another."""

    def __init__(self, model: Any, tokenizer: Tokenizer, generation: dict[str, Any]) -> None:
        self.model, self.tokenizer, self.generation = model.eval(), tokenizer, generation
        self.start = [id for id in (generation["decoder_start"], generation.get("forced_bos")) if id is not None]

    def translate(
        self,
        texts: Sequence[str],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        sampling: Sampling | None = None,
        batch_tokens: int = 4096,
        max_source: int = 2048,
        max_new_tokens: int | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, in the order given; greedy for one beam, or sampled.

        A blank text has a blank translation. An output ends at `max_new_tokens`, or at twice its
        batch's longest source.
        """
        if isinstance(texts, str):
            raise ValueError(f"texts is a list; put a single one in brackets: [{texts!r}]")
        if sampling and (n_best > 1 or (beams or 1) > 1):
            raise ValueError("sampling draws one translation of each text; leave out beams and n_best")
        told = self.generation
        beams = 1 if sampling else max(beams or told["num_beams"], n_best)
        penalty = told["length_penalty"] if length_penalty is None else length_penalty
        sources = self.encode(texts, max_source)
        results = [[Translation("", 0.0, ())] for _ in texts]
        real = [i for i, text in enumerate(texts) if text.strip()]
        with torch.inference_mode():
            for chosen in bucket(np.array([[len(sources[i])] for i in real]), batch_tokens, None) if real else ():
                group = [real[i] for i in chosen]
                rows = [sources[i] for i in group]
                source, lengths = pad(rows, told["pad"]), torch.tensor([len(row) for row in rows])
                start = torch.tensor([self.start] * len(rows))
                most = told["max_length"] - len(self.start)
                longest = min(max_new_tokens or 2 * source.shape[1] + 16, most)
                ends: dict[str, Any] = dict(
                    source=source, lengths=lengths, eos=told["eos"], forbidden=told["forbidden"],
                    max_len=longest, force_end=told["force_end"],
                )  # fmt: skip
                if beams == 1:
                    found = [[one] for one in generate(self.model, start, sampling=sampling, rows=group, **ends)]
                else:
                    found = beam_search(self.model, start, beams=beams, length_penalty=penalty, n_best=n_best, **ends)
                for i, hypotheses in zip(group, found, strict=True):
                    texts_ = self.tokenizer.decode_batch([h.ids for h in hypotheses])
                    results[i] = [
                        Translation(t, h.score, tuple(h.ids)) for t, h in zip(texts_, hypotheses, strict=True)
                    ]
        return results

    def generate(
        self, prompts: Sequence[str], *, max_new_tokens: int | None = None, sampling: Sampling | None = None
    ) -> list[str]:
        """The answer to each prompt, for models of several tasks: greedy, or drawn as `sampling` says."""
        found = self.translate(prompts, beams=1, sampling=sampling, max_new_tokens=max_new_tokens)
        return [best[0].text for best in found]

    def stream(
        self, prompt: str, *, max_new_tokens: int | None = None, sampling: Sampling | None = None
    ) -> Iterator[str]:
        """The same for one prompt; an answer comes in one piece."""
        yield self.generate([prompt], max_new_tokens=max_new_tokens, sampling=sampling)[0]

    def shown(self, prompt: str) -> str:
        """What is printed before an answer: nothing."""
        return ""

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
