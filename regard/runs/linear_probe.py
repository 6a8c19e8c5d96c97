"""A linear probe beside a fine-tuned classifier: of few examples, the better one is kept, and both are scored."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.tasks.base import Task
from regard.train.loop import Objective, evaluate
from regard.train.progress import Line

Batches = Callable[[], Iterable[Batch]]


def fit_linear(
    vectors: Float[Tensor, "N D"], labels: Int[Tensor, "N"], classes: int, strength: float = 1.0
) -> tuple[Float[Tensor, "L D"], Float[Tensor, "L"]]:
    """Weight and bias of a multinomial logistic regression: the summed cross-entropy plus |W|² / (2 · strength), of
    vectors scaled to a mean length of 1."""
    scale = vectors.norm(dim=-1).mean().clamp(min=1e-9)
    x = (vectors / scale).double()
    weight, bias = (
        torch.zeros(size, dtype=torch.float64, requires_grad=True) for size in ((classes, x.shape[1]), (classes,))
    )
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(F.linear(x, weight, bias), labels, reduction="sum")
        loss = loss + weight.square().sum() / (2 * strength)
        loss.backward()
        return loss

    with torch.enable_grad():
        optimizer.step(closure)
    return (weight / scale).detach().float(), bias.detach().float()


@torch.no_grad()
def probe(model: Any, batches: Iterable[Batch]) -> nn.Module:
    """The model with a head fitted to the frozen vectors of `embed`."""
    model.eval()
    rows = [(model.embed(**batch.inputs), batch.targets) for batch in batches]
    vectors, labels = (torch.cat(parts) for parts in zip(*rows, strict=True))
    weight, bias = fit_linear(vectors, labels, len(model.config.labels))
    model.head.out.weight.copy_(weight)
    model.head.out.bias.copy_(bias)
    return model


def keep_better(
    out: Path, task: type[Task], tuned: Any, rival: Any, valid: Batches, objective: Objective,
    publish: Callable[[Any, Path], None], line: Line,
) -> float | None:  # fmt: skip
    """Publish the probe where validation finds it better than the fine-tuned model in `out`, by the task's metric and
    then by the loss; print both figures. Return the probe's loss if it is kept."""
    with torch.no_grad():
        figures = [
            (task.load(out, model).validate(valid()), evaluate(model, valid(), objective)) for model in (tuned, rival)
        ]
    (mine, loss), (other, probe_loss) = figures
    name, score = next(iter(mine.items()))
    better = (other[name], -probe_loss) > (score, -loss)
    line.say(
        f"validation: {name} {score:.1f} fine-tuned, {other[name]:.1f} with a linear probe of the frozen encoder; "
        f"kept: {'the probe' if better else 'the fine-tuned model'}"
    )
    if better:
        publish(rival, out)
    return probe_loss if better else None
