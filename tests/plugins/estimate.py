"""A task of one's own: the number that a text names, by regression. "forty-two" → 42

regard --plugin estimate train estimate
regard --plugin estimate estimate runs/estimate "forty-two"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from num2words import num2words
from torch import Tensor, nn

from regard import Recipe, register_model, register_recipe, register_task
from regard.data.sets.base import TextData
from regard.data.sets.batches import Batch, Stream
from regard.models import Bert, BertConfig
from regard.recipes.finetune import TextExample
from regard.runs.fit import Job, get_tokenizer, prepare, with_vocabulary
from regard.tasks import EvalSet, Option, Samples, Scored, TextEncoder, Verb
from regard.tasks.text_encoder import text_inputs
from regard.train.config import TrainConfig

TOP = 1000
"""Numbers below this are trained on; every tenth is held out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumbersConfig(TextData):
    """Numbers in words (nothing to give: they are generated), and their tokens."""

    kind: Literal["bpe", "word", "char"] = "char"

    def split(self) -> tuple[list[int], list[int]]:
        return [n for n in range(TOP) if n % 10 != 7], [n for n in range(TOP) if n % 10 == 7]


@register_model("estimator")
class Estimator(Bert):
    """An encoder, and a number read off the mean of its tokens."""

    task = "estimate"
    small: ClassVar[dict[str, Any]] = dict(
        task="none", pooler=False, types=0, dim=64, depth=2, heads=2, ffn_dim=128, max_len=64
    )
    presets: ClassVar[dict[str, dict[str, Any]]] = {"tiny": small}

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.number = nn.Linear(config.dim, 1)

    def forward(self, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        return self.number(self.embed(ids, lengths, types))


@register_task("estimate")
class NumberEstimator(TextEncoder):
    """Estimates the number that a text names."""

    verbs = (
        Verb(
            name="estimate", does="estimates numbers", help="Estimate the number in each text.",
            options=(Option(name="digits", kind=int, default=0, limits=(0, 9), help="Decimal digits."),),
        ),
    )  # fmt: skip
    data, examples = (NumbersConfig,), ""
    output = "number"

    def estimate(self, texts: Sequence[str], *, digits: int = 0) -> list[dict[str, float]]:
        return [{"number": round(TOP * float(row), digits)} for row in self.logits(self.frame(texts))]

    def evaluate(self, test: EvalSet, **options: Any) -> Scored:
        numbers = test.data.held_out()[: test.limit]
        found = [row["number"] for row in self.estimate([num2words(n) for n in numbers])]
        error = sum(abs(a - b) for a, b in zip(found, numbers, strict=True)) / len(numbers)
        constant = sum(abs(TOP / 2 - n) for n in numbers) / len(numbers)
        scores = {"mean_error": round(error, 2), "best_constant": round(constant, 2), "examples": len(numbers)}
        return Scored(scores=scores, outputs=list(map(str, found)), summary=f"mean error {error:.1f} ({constant:.1f})")

    def samples(self, test: EvalSet, run: Path) -> Samples:
        texts = [num2words(n) for n in test.data.held_out()[:3]]
        rows = [str(row["number"]) for row in self.estimate(texts)]
        return Samples(rows=list(zip(texts, rows, strict=True)), commands=[f'regard estimate {run} "{texts[0]}"'])


@register_recipe("estimate")
def recipe(data: Mapping[str, Any]) -> Recipe:
    model = BertConfig(vocab_size=64, **Estimator.presets["tiny"])
    train = TrainConfig(steps=300, batch_tokens=2048, lr=2e-3, smoothing=0.0, eval_every=100, save_every=100)
    return Recipe(name="estimate", family="estimator", model=model, data=NumbersConfig(), train=train)


@prepare.register
def prepare_numbers(data: NumbersConfig, recipe: Recipe, out: Path, resume: bool, line: Any) -> Job:
    train, valid = data.split()
    tokenizer = get_tokenizer(data, lambda: map(num2words, range(TOP)), out, resume)

    recipe = with_vocabulary(recipe, tokenizer)

    def encode(numbers: Sequence[int]) -> list[TextExample]:
        frames = tokenizer.frame([num2words(number) for number in numbers])
        return [TextExample((framed,), number / TOP, number) for framed, number in zip(frames, numbers, strict=True)]

    def collate(examples: Sequence[TextExample]) -> Batch:
        inputs = text_inputs([example.frames[0] for example in examples], tokenizer, recipe.model)
        targets = torch.tensor([example.target for example in examples])
        return Batch(inputs, targets, tuple(example.number for example in examples))

    def objective(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
        return (model(**batch.inputs)[:, 0] - batch.targets).square().sum(), len(batch.targets)

    stream = Stream(lambda epoch: encode(train), collate, recipe.train.batch_tokens, seed=recipe.train.seed)
    return Job(
        recipe=recipe, readers={"text": tokenizer}, stream=stream, valid=lambda: stream.once(encode(valid)),
        objective=objective, about=f"{len(train)} numbers",
    )  # fmt: skip
