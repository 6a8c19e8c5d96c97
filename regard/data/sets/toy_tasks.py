"""Prompts and answers of the toy tasks."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from regard.data.generated.toys import SYMBOLS, Toy, longest, toys
from regard.data.readers.examples import Instruction
from regard.data.sets.base import TextData

HELD_OUT = 500
"""Examples for validation, and for the test."""
BEYOND = 2
"""Sequences and gaps up to so many times the trained ones must fit into the model's context."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToyConfig(TextData):
    """A task whose answers are known, its lengths, and the distance that it must be remembered over."""

    decides: ClassVar[dict[str, str]] = {
        "model.vocab_size": "follows from the symbols of the toy tasks",
        "model.max_len": "follows from --data.length and --data.distance",
    }

    task: Toy = "copy"
    """The task: copy or sort letters, recall the value of a key, add two numbers, parity of bits."""
    length: int = 8
    """Longest sequence: letters, pairs of key and value, digits of each number, bits."""
    shortest: int = 1
    """Shortest sequence."""
    distance: int = 0
    """Longest gap between the sequence and the question, in tokens."""
    nearest: int = 0
    """Shortest gap."""
    kind: Literal["bpe", "word", "char"] = "word"
    vocab_size: int = 320
    epoch_size: int = 20_000
    """Examples in an epoch; every epoch has new ones."""

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.length:
            raise ValueError(f"shortest={self.shortest} must be from 1 to length={self.length}")
        if not 0 <= self.nearest <= self.distance:
            raise ValueError(f"nearest={self.nearest} must be from 0 to distance={self.distance}")
        if self.task == "recall" and self.length > 16:
            raise ValueError(f"length={self.length}: recall has 16 keys; take 16 or fewer, or a longer --data.distance")
        if self.epoch_size < 1:
            raise ValueError(f"epoch_size={self.epoch_size} must be at least 1")

    @property
    def context(self) -> int:
        """The tokens of the longest prompt with its answer, at `BEYOND` times the trained length and distance."""
        return longest(self.task, BEYOND * self.length, BEYOND * self.distance) + 2

    def examples(self, split: str, count: int, start: int = 0) -> list[Instruction]:
        """Prompts with their answers."""
        lengths, gaps = (self.shortest, self.length), (self.nearest, self.distance)
        items = toys(self.task, split, count, start, length=lengths, gap=gaps)
        return [Instruction(prompt, answer) for prompt, answer in items]

    def epoch(self, number: int) -> list[Instruction]:
        """The training examples of an epoch."""
        return self.examples("train", self.epoch_size, number * self.epoch_size)

    def split(self) -> tuple[list[Instruction], list[Instruction]]:
        return self.epoch(0), self.examples("valid", HELD_OUT)

    def held_out(self) -> list[Instruction]:
        return self.examples("test", HELD_OUT)

    @staticmethod
    def symbols() -> list[str]:
        """A text of all symbols, from which a tokenizer learns them."""
        return [" ".join(SYMBOLS)]
