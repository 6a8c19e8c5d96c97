"""Components of image models: the size of patches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.sets.batches import Batch, shuffled
from regard.data.sets.labelled_images import digits
from regard.objectives.labels import text_labels
from regard.train.loop import Objective, Stream
from regard.why.component import Arm, Claim, Component, higher, lower, register
from regard.why.problems import Inputs, Problem

NAMES = tuple("0123456789")


@lru_cache(maxsize=2)
def digit_tensors(split: str) -> tuple[Tensor, Tensor]:
    """Return the embedded digits as pixels around zero, and their labels."""
    images = digits(split)
    pixels = torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2).float() / 128 - 1
    return pixels.contiguous(), torch.from_numpy(images.labels)


@dataclass(frozen=True)
class DigitStream:
    """Endless batches of digits, in a new order in each epoch."""

    rows: int
    seed: int

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]:
        pixels, labels = digit_tensors("train")
        for now, position, chosen, _ in shuffled(len(labels), self.rows, self.seed, epoch, index):
            yield now, position, Batch({"pixels": pixels[chosen]}, labels[chosen], tuple(chosen))


@dataclass(frozen=True, kw_only=True, slots=True)
class Digits(Problem):
    """Scikit-learn's digits of 8 × 8 pixels, named by a ViT."""

    family: ClassVar[str] = "vit"
    rows: int = 64

    def sizes(self) -> dict[str, Any]:
        return dict(image=8, channels=1, labels=NAMES)

    def stream(self, seed: int) -> Stream:
        return DigitStream(self.rows, seed)

    @property
    def objective(self) -> Objective:
        return text_labels

    def scores(self, model: Any) -> dict[str, float]:
        pixels, labels = digit_tensors("test")
        logits = model(pixels)
        right = (logits.argmax(-1) == labels).float().mean().item()
        return {"loss": F.cross_entropy(logits, labels).item(), "accuracy": right}

    def worst(self) -> dict[str, float]:
        return {"loss": math.log(len(NAMES)), "accuracy": 1 / len(NAMES)}

    def sample(self, model: Any) -> str:
        pixels, labels = digit_tensors("test")
        named = model(pixels[:20]).argmax(-1).tolist()
        return f"{''.join(map(str, labels[:20].tolist()))} read as {''.join(map(str, named))}"

    def example(self) -> tuple[Inputs, list[str]]:
        return {"pixels": digit_tensors("test")[0][:1]}, []


register(
    Component(
        name="patch",
        question="Why small patches, and why not the smallest?",
        problem=Digits(model=dict(dim=48, depth=3, heads=4, ffn_dim=96, dropout=0.0)),
        arms=(
            Arm(name="patch-2", about="patches of 2 × 2 pixels, 16 of them", model=dict(patch=2)),
            Arm(name="patch-4", about="patches of 4 × 4 pixels, 4 of them", model=dict(patch=4)),
            Arm(name="patch-1", about="a token for each of the 64 pixels", model=dict(patch=1)),
        ),
        claims=(
            Claim(
                text="Smaller patches preserve finer detail.", lecture="000, image patch tokenization",
                unit="accuracy", least=0.005, terms=higher("accuracy", "patch-2", "patch-4"),
            ),
            Claim(
                text="Smaller patches are more tokens, and cost more.", lecture="000, image patch tokenization",
                unit="doublings of CPU time", least=0.1, terms=lower("log2_cpu", "patch-4", "patch-2"),
            ),
            Claim(
                text="The best patch size is no extreme: single pixels are worse than small patches.",
                lecture="004, sensitivity to patch size", unit="accuracy", least=0.005,
                terms=higher("accuracy", "patch-2", "patch-1"),
            ),
        ),
        metric="accuracy",
        steps=300,
    )
)  # fmt: skip
