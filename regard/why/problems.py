"""Small problems that models are compared on: batches, an objective, metrics, a sample. None needs a download."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.generated.docs import documentation
from regard.data.sets.batches import IGNORE, Batch, TextStream, window_batch
from regard.objectives.labels import token_labels
from regard.objectives.next_token import next_token
from regard.tokens import Tokenizer
from regard.tokens.encoding import encode_text
from regard.train.loop import Objective, Stream

Inputs = dict[str, Tensor]


@dataclass(frozen=True)
class Generated:
    """Endless batches from a function of a random generator; a batch depends on its number and the seed alone."""

    make: Callable[[np.random.Generator], Batch]
    seed: int

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        while True:
            yield epoch, index + 1, self.make(np.random.default_rng((self.seed, index)))
            index += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A family with its sizes, its training, data and metrics; arms replace fields."""

    family: ClassVar[str]
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model's config that every arm has."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the training that every arm has."""

    def sizes(self) -> dict[str, Any]:
        """Return the fields of the model's config that follow from the data."""
        raise NotImplementedError

    def stream(self, seed: int) -> Stream:
        raise NotImplementedError

    @property
    def objective(self) -> Objective:
        raise NotImplementedError

    def scores(self, model: Any) -> dict[str, float]:
        """Return the metrics of a model in evaluation mode."""
        raise NotImplementedError

    def worst(self) -> dict[str, float]:
        """Return the metrics of a model that has learned nothing, which one that diverged is given."""
        raise NotImplementedError

    def sample(self, model: Any) -> str:
        """Return something that the model says, in a line or two."""
        raise NotImplementedError

    def example(self) -> tuple[Inputs, list[str]]:
        """Return inputs whose attention is drawn, and the names of their tokens."""
        raise NotImplementedError


# ---- running text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Text as ids, and how ids are read and spelled."""

    train: np.ndarray
    valid: np.ndarray
    vocab_size: int
    encode: Callable[[str], Sequence[int]]
    pieces: Callable[[Sequence[int]], list[str]]
    bytes_per_token: float
    """Of the held-out text."""


@lru_cache(maxsize=4)
def read_text(tokens: str, vocab_size: int, characters: int) -> Text:
    """Return Python's documentation as tokens: letters, subwords or words."""
    text, held_out = documentation("train")[:characters], documentation("valid")[:60_000]
    if tokens == "letters":

        def letters(part: str) -> np.ndarray:
            return np.frombuffer(part.encode("ascii", "replace"), dtype=np.uint8)

        return Text(letters(text), letters(held_out), 128, lambda part: letters(part).tolist(),
                    lambda ids: [chr(each) for each in ids], 1.0)  # fmt: skip
    kind = {"subwords": "bpe", "words": "word"}[tokens]
    tokenizer = Tokenizer.train(texts=[text], kind=kind, vocab_size=vocab_size)
    valid = encode_text(tokenizer, held_out)
    return Text(encode_text(tokenizer, text), valid, tokenizer.vocab_size, tokenizer.encode, tokenizer.pieces,
                len(held_out.encode()) / len(valid))  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class NextToken(Problem):
    """A language model of Python's documentation."""

    family: ClassVar[str] = "gpt"
    tokens: str = "letters"
    """Letters, subwords or words."""
    vocab_size: int = 1024
    """Entries of a vocabulary of subwords or words."""
    characters: int = 1_000_000
    """Characters of the training text."""
    context: int = 48
    rows: int = 16
    scored: int = 64
    """Held-out windows that are scored, and half as many of the training text."""
    blind: bool = False
    """Also score the last token of texts that end there, as in generation: no future can be seen."""
    attention: bool = False
    """Also measure attention: entropy, room of the softmax's gradient, difference between heads."""

    def text(self) -> Text:
        return read_text(self.tokens, self.vocab_size, self.characters)

    def sizes(self) -> dict[str, Any]:
        return dict(vocab_size=self.text().vocab_size, max_len=self.context)

    def stream(self, seed: int) -> Stream:
        return TextStream(self.text().train, self.context, self.rows, seed=seed)

    @property
    def objective(self) -> Objective:
        return next_token

    def windows(self, ids: np.ndarray, count: int) -> Batch:
        return window_batch(ids, np.linspace(0, len(ids) - self.context - 2, count).astype(int), self.context)

    def scores(self, model: Any) -> dict[str, float]:
        text = self.text()
        held_out, known = self.windows(text.valid, self.scored), self.windows(text.train, self.scored // 2)
        logits, targets = model(**held_out.inputs).flatten(0, 1), held_out.targets.flatten()
        loss = F.cross_entropy(logits, targets).item()
        summed, count = next_token(model, known)
        scores = {
            "loss": loss,
            "bits_per_byte": loss / math.log(2) / text.bytes_per_token,
            "accuracy": (logits.argmax(-1) == targets).float().mean().item(),
            "gap": loss - summed.item() / count,
        }
        if self.blind:
            scores["blind_loss"] = self.blind_loss(model, held_out)
        return scores | (attention_figures(model, held_out.inputs) if self.attention else {})

    def blind_loss(self, model: Any, batch: Batch) -> float:
        """Return the loss of the next token after texts that are cut there, at four lengths."""
        ids, targets = batch.inputs["ids"], batch.targets
        cuts = [self.context * share // 4 for share in (1, 2, 3, 4)]
        losses = [F.cross_entropy(model(ids[:, :cut])[:, -1], targets[:, cut - 1]).item() for cut in cuts]
        return sum(losses) / len(losses)

    def worst(self) -> dict[str, float]:
        text = self.text()
        loss = math.log(text.vocab_size)
        bits = loss / math.log(2) / text.bytes_per_token
        more = {"blind_loss": loss} if self.blind else {}
        more |= dict(entropy=0.0, softmax_room=0.0, head_difference=0.0) if self.attention else {}
        return {"loss": loss, "bits_per_byte": bits, "accuracy": 0.0, "gap": 0.0, **more}

    def sample(self, model: Any) -> str:
        """Return a continuation sampled at temperature 0.7, token by token from the text so far alone."""
        text, generator = self.text(), torch.Generator().manual_seed(0)
        ids = list(text.encode("Return the"))  # where words begin with their space, one at the end was never seen
        for _ in range(60):
            logits = model(torch.tensor([ids[-self.context :]]))[0, -1] / 0.7
            ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
        return "".join(text.pieces(ids)).replace("\n", "↵")

    def example(self) -> tuple[Inputs, list[str]]:
        text = self.text()
        ids = list(text.encode("Return the sum of a "))[:20]
        return {"ids": torch.tensor([ids])}, text.pieces(ids)


FEW = 4
"""The fewest visible keys of a query whose attention is measured."""


def attention_figures(model: nn.Module, inputs: Inputs) -> dict[str, float]:
    """Return means of causal attention over layers, heads and queries.

    They are the entropy as a share of the highest; 1 − Σ w², which is the trace of the softmax's Jacobian and zero
    where it is saturated; and the difference between heads, half of Σ |w − w'|.
    """
    from regard.inside.capture.weights import look

    with look(model) as seen:
        model(**{name: value[:8] for name, value in inputs.items()})
    entropies, rooms, apart = [], [], []
    for name in seen.names:
        weights = seen.attention[name]  # B H T S
        visible = torch.arange(FEW, weights.shape[2] + 1)  # keys of each query; those with fewer are left out
        later = weights[:, :, FEW - 1 :]
        entropies.append((-(later * later.clamp(min=1e-12).log()).sum(-1) / visible.log()).mean().item())
        rooms.append((1 - later.square().sum(-1)).mean().item())
        for i in range(weights.shape[1]):
            for j in range(i):
                apart.append((weights[:, i] - weights[:, j]).abs().sum(-1).mean().item() / 2)
    figures = {"entropy": entropies, "softmax_room": rooms, "head_difference": apart or [0.0]}
    return {name: sum(values) / len(values) for name, values in figures.items()}


# ---- the letter before ----------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnop"


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterBefore(Problem):
    """An encoder names, at every position, the letter that stands one before it; letters are random.

    Without a mask and without positions nothing tells which letter that is. Lengths vary up to `longest`; one metric is
    of texts twice as long.
    """

    family: ClassVar[str] = "bert"
    shortest: int = 6
    longest: int = 20
    rows: int = 32

    def sizes(self) -> dict[str, Any]:
        return dict(vocab_size=len(LETTERS), max_len=2 * self.longest, task="mask", types=0, pooler=False)

    def batch(self, random: np.random.Generator, length: int, rows: int) -> Batch:
        ids = torch.from_numpy(random.integers(len(LETTERS), size=(rows, length)))
        targets = torch.cat([torch.full((rows, 1), IGNORE), ids[:, :-1]], dim=1)
        return Batch({"ids": ids, "lengths": torch.full((rows,), length)}, targets, ())

    def stream(self, seed: int) -> Stream:
        lengths = (self.shortest, self.longest + 1)
        return Generated(lambda random: self.batch(random, int(random.integers(*lengths)), self.rows), seed)

    @property
    def objective(self) -> Objective:
        return token_labels

    def scores(self, model: Any) -> dict[str, float]:
        scores = {}
        for name, length in (("", self.longest), ("_beyond", 2 * self.longest)):
            batch = self.batch(np.random.default_rng(length), length, 64)
            logits, targets = model(**batch.inputs)[:, 1:].flatten(0, 1), batch.targets[:, 1:].flatten()
            scores["loss" + name] = F.cross_entropy(logits, targets).item()
            scores["accuracy" + name] = (logits.argmax(-1) == targets).float().mean().item()
        return scores

    def worst(self) -> dict[str, float]:
        loss, chance = math.log(len(LETTERS)), 1 / len(LETTERS)
        return dict(loss=loss, loss_beyond=loss, accuracy=chance, accuracy_beyond=chance)

    def sample(self, model: Any) -> str:
        batch = self.batch(np.random.default_rng(1), 2 * self.longest, 1)
        named = model(**batch.inputs)[0].argmax(-1)
        text, answer = ("".join(LETTERS[i] for i in ids) for ids in (batch.inputs["ids"][0], named))
        return f"{text} → {answer[0]}{answer[1:]}"

    def example(self) -> tuple[Inputs, list[str]]:
        batch = self.batch(np.random.default_rng(2), self.longest, 1)
        return batch.inputs, [LETTERS[i] for i in batch.inputs["ids"][0]]


# ---- letters in order -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SortedLetters(Problem):
    """A decoder reads random letters and a colon, then writes the letters in alphabetical order."""

    family: ClassVar[str] = "gpt"
    count: int = 10
    rows: int = 32
    forced: bool = True
    """Read the right letters while learning to write the next; otherwise the model's own."""

    def sizes(self) -> dict[str, Any]:
        return dict(vocab_size=len(LETTERS) + 1, max_len=2 * self.count + 1)

    def batch(self, random: np.random.Generator, rows: int) -> Batch:
        letters = torch.from_numpy(random.integers(len(LETTERS), size=(rows, self.count)))
        right = letters.sort(dim=1).values
        ids = torch.cat([letters, torch.full((rows, 1), len(LETTERS)), right[:, :-1]], dim=1)
        targets = torch.cat([torch.full((rows, self.count), IGNORE), right], dim=1)
        return Batch({"ids": ids}, targets, ())

    def stream(self, seed: int) -> Stream:
        return Generated(lambda random: self.batch(random, self.rows), seed)

    @property
    def objective(self) -> Objective:
        return next_token if self.forced else self.free_running

    @torch.no_grad()
    def written(self, model: Any, ids: Int[Tensor, "B T"]) -> Int[Tensor, "B N"]:
        """Return the letters that the model writes after the colon, each the most probable after its own letters."""
        prefix, cache = ids[:, : self.count + 1], model.new_cache(2 * self.count + 1)
        letters = [model.prefill(prefix, cache).argmax(-1)]
        while len(letters) < self.count:
            letters.append(model.step(letters[-1], cache).argmax(-1))
        return torch.stack(letters, dim=1)

    def free_running(self, model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Float[Tensor, ""], int]:
        """The loss of the right letters after the letters that the model itself writes."""
        ids = batch.inputs["ids"]
        own = torch.cat([ids[:, : self.count + 1], self.written(model, ids)[:, :-1]], dim=1)
        return next_token(model, Batch({"ids": own}, batch.targets, ()), smoothing=smoothing)

    def scores(self, model: Any) -> dict[str, float]:
        batch = self.batch(np.random.default_rng(7), 128)
        ids, right = batch.inputs["ids"], batch.targets[:, self.count :]
        logits = model(ids)[:, self.count :]
        named, own = logits.argmax(-1) == right, self.written(model, ids) == right
        return {
            "loss": F.cross_entropy(logits.flatten(0, 1), right.flatten()).item(),
            "forced_accuracy": named.float().mean().item(),
            "own_accuracy": own.float().mean().item(),
            "forced_last": named[:, -self.count // 2 :].float().mean().item(),
            "own_last": own[:, -self.count // 2 :].float().mean().item(),
        }

    def worst(self) -> dict[str, float]:
        none = dict.fromkeys(("forced_accuracy", "own_accuracy", "forced_last", "own_last"), 0.0)
        return dict(loss=math.log(len(LETTERS) + 1), **none)

    def sample(self, model: Any) -> str:
        ids = self.batch(np.random.default_rng(3), 1).inputs["ids"]
        spelled = (LETTERS + ":").__getitem__
        return "".join(map(spelled, ids[0, : self.count + 1])) + "".join(map(spelled, self.written(model, ids)[0]))

    def example(self) -> tuple[Inputs, list[str]]:
        inputs = self.batch(np.random.default_rng(4), 1).inputs
        return inputs, [(LETTERS + ":")[i] for i in inputs["ids"][0]]
