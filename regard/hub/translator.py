"""A trained encoder–decoder with its tokenizer: texts in, translations out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batches import bucket, pad
from regard.decode.beam import beam_search
from regard.decode.sample import Sampling, generate
from regard.hub.checkpoint import load_generation, load_model
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
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, in the order given; greedy for one beam, or sampled."""
        beams = 1 if sampling else max(beams or self.generation["num_beams"], n_best)
        penalty = self.generation["length_penalty"] if length_penalty is None else length_penalty
        sources = self.encode(texts, max_source)
        results: list[list[Translation]] = [[] for _ in texts]
        with torch.inference_mode():
            for group in bucket(np.array([[len(ids)] for ids in sources]), batch_tokens, None) if texts else ():
                rows = [sources[i] for i in group]
                source, lengths = pad(rows, self.generation["pad"]), torch.tensor([len(row) for row in rows])
                ends: dict[str, Any] = dict(
                    bos=self.generation["decoder_start"], eos=self.generation["eos"], max_len=2 * source.shape[1] + 16,
                    forbidden=self.generation["forbidden"],
                )  # fmt: skip
                if beams == 1:
                    drawn = generate(self.model, source, lengths, sampling=sampling, rows=group.tolist(), **ends)
                    found = [[one] for one in drawn]
                else:
                    found = beam_search(
                        self.model, source, lengths, beams=beams, length_penalty=penalty, n_best=n_best, **ends
                    )
                for i, hypotheses in zip(group, found, strict=True):
                    texts_ = self.tokenizer.decode_batch([h.ids for h in hypotheses])
                    results[i] = [
                        Translation(t, h.score, tuple(h.ids)) for t, h in zip(texts_, hypotheses, strict=True)
                    ]
        return results

    def encode(self, texts: Sequence[str], max_source: int) -> list[list[int]]:
        """Ids with <eos> behind them; a text that is too long is named by its number."""
        sources = [[*ids, self.generation["eos"]] for ids in self.tokenizer.encode_batch(texts)]
        for number, ids in enumerate(sources, 1):
            if len(ids) > max_source:
                raise ValueError(
                    f"text {number} has {len(ids):,} tokens, more than {max_source:,}; split it into sentences"
                )
        return sources


def load(directory: str | Path) -> Translator:
    """A run, or a checkpoint in the Hugging Face layout, ready to translate."""
    path = Path(directory)
    model = load_model(path)
    return Translator(model, Tokenizer.load(path), load_generation(path))
