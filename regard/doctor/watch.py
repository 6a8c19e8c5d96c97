"""The doctor beside the training loop: figures on sampled steps, a sentence with the cure when something is wrong.

It reads and never writes: a run is bit for bit the same with it and without it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import torch
from torch import nn

from regard.data.sets.batches import Batch
from regard.doctor.causes import RECENT, RULES, SEVERAL, SMALLER, Signs
from regard.doctor.feed import Feed
from regard.doctor.findings import Finding, as_dict
from regard.doctor.frozen import Frozen
from regard.doctor.vitals import Update, activations, by_layer, pick, untouched
from regard.train.config import TrainConfig

Row = dict[str, Any]
WINDOW, JUMP = 64, 4
"""A loss is a spike if it stands out so many times as far as any of the last ones."""
SETTLED = 4
"""Steps after which weights that began at zero have a size."""


class Watch:
    """What is remembered between steps. `past` are the rows of a run that goes on."""

    def __init__(
        self,
        model: nn.Module,
        objective: Callable[..., Any],
        config: TrainConfig,
        past: Iterable[Row] = (),
    ) -> None:
        self.model, self.objective, self.config = model, objective, config
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.losses: list[float] = []
        self.told: set[str] = set()
        self.figures: list[Row] = []
        """Of the last sampled steps."""
        for row in past:
            self.figures = [*self.figures, row["watch"]][-SEVERAL:] if row.get("watch") else self.figures
            self.losses += [row["loss"]] if "loss" in row else []
            self.told |= {row["finding"]["cause"]} if "finding" in row else set()
        medians = (median(self.losses[i - RECENT : i]) for i in range(RECENT, len(self.losses)))
        self.best, self.ratio = min(medians, default=math.inf), math.nan
        self.feed, self.frozen = Feed(), Frozen(model)
        self.update: Update | None = None
        self.batches: list[tuple[str, Batch]] = []
        """Of this step, with their names."""
        self.last = ""
        """Those of the step before, by name, for whoever blames them."""
        self.jumped: tuple[float, float, str, str] | None = None
        self.found: list[Finding] = []

    def due(self, step: int) -> bool:
        """Often in the beginning, where most goes wrong, later now and then."""
        every = self.config.watch
        return every > 0 and (step % every == 0 or (step < every and step & (step - 1) == 0))

    # ---- what the loop calls ----------------------------------------------------------------------------------

    def read(self, epoch: int, index: int, batch: Batch) -> None:
        """Before a batch goes to the model."""
        if self.config.watch:
            self.found += self.feed.add(epoch, index, batch)
            self.batches.append((name_of(epoch, index, batch), batch))

    def before(self, step: int) -> None:
        """When gradients are there, and weights are still the old ones."""
        if self.due(step):
            self.update = Update(self.parameters)

    def after(self, step: int, loss: float, rate: float) -> Iterator[Row]:
        """When weights are the new ones: rows for metrics.jsonl, figures and findings."""
        if not self.config.watch:
            return
        self.losses.append(loss)
        if len(self.losses) >= RECENT:
            self.best = min(self.best, median(self.losses[-RECENT:]))
        if (row := self.jump(step, loss)) is not None:
            yield {"step": step, "spike": row}
        if self.update is not None:
            figures = self.measure(step, rate)
            yield {"step": step, "watch": rounded(figures)}
            signs = self.signs(step, figures)
            self.figures = [*self.figures, figures][-SEVERAL:]
            self.found += filter(None, (rule(signs) for rule in RULES))
        for finding in self.found:
            if finding.cause not in self.told:
                self.told.add(finding.cause)
                yield {"step": step, "finding": as_dict(finding) | {"step": step}}
        self.found, self.last, self.batches = [], self.names, []

    @property
    def names(self) -> str:
        """The batches of this step."""
        return " and ".join(name for name, _ in self.batches)

    def blame(self, what: str, value: float, step: int, batch: Batch) -> Finding:
        """Who made a loss or a gradient that is no number: one example, or all of them."""
        wrong, count = [], 0
        for some in [batch] if what == "loss" else [one for _, one in self.batches] or [batch]:
            names = some.examples or range(len(some.targets))
            count += len(names)
            for row, name in enumerate(names):
                if not self.finite(pick(some, [row]), backward=what != "loss"):
                    wrong.append(name)
        if 0 < len(wrong) < count:
            which = ("example " if len(wrong) == 1 else "examples ") + ", ".join(map(str, wrong[:5]))
            return Finding(
                "a broken example",
                f"{which} of the batch's {count} by itself makes the {what} {value}; the others do not",
                f"correct or remove {'it' if len(wrong) == 1 else 'them'}",
                1.0,
                step,
            )
        seen = f"the {what} is {value} at step {step}, for {'every' if wrong else 'no single'} example of the batch"
        if step == 1:
            return Finding("exploding initialisation", seen, SMALLER, 0.9, step)
        return Finding("learning rate too high", seen, "lower --train.lr or lengthen --train.warmup", 0.9, step)

    # ---- how ----------------------------------------------------------------------------------------------------

    def finite(self, batch: Batch, *, backward: bool) -> bool:
        """Whether one example's loss, and gradient, is a number. The run ends here, so the gradients may go."""
        if not backward:
            with untouched(self.model):
                return math.isfinite(self.objective(self.model, batch)[0].item())
        self.model.zero_grad(set_to_none=True)
        loss = self.objective(self.model, batch)[0]
        loss.backward()
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        return bool(torch.isfinite(torch.stack([loss.detach(), *torch._foreach_norm(grads)])).all())

    def measure(self, step: int, rate: float) -> Row:
        """Figures by layer of a sampled step."""
        assert self.update is not None
        moved, weights = self.update.measure()
        gradient, self.update = self.update.gradient, None
        self.found += self.frozen.add(gradient, moved if rate > 0 else None)
        ratios = [(moved[n] / weights[n]) ** 0.5 for n, p in self.parameters.items() if p.dim() > 1 and weights[n]]
        ratio = median(ratios) if ratios else math.nan
        if step >= SETTLED and not self.ratio > ratio:
            self.ratio = ratio
        sizes = by_layer(list(weights), list(weights.values()))
        return {
            "ratio_median": ratio,
            "gradient": by_layer(list(gradient), list(gradient.values())),
            "ratio": {
                name: value / sizes[name]
                for name, value in by_layer(list(moved), list(moved.values())).items()
                if sizes[name]
            },
            **activations(self.model, self.objective, self.batches[-1][1]),
        }

    def signs(self, step: int, figures: Row) -> Signs:
        classes = classes_of(self.model)
        classes = classes if self.feed.chooses(classes) else None  # positions of an answer are no classes
        return Signs(
            step=step, config=self.config, losses=self.losses, best=min(self.best, self.losses[0]), classes=classes,
            floor=None if classes is None else self.feed.floor(classes, self.config.smoothing), ratio=self.ratio,
            post_norm=getattr(getattr(self.model, "config", None), "norm_place", "pre") == "post", figures=figures,
            before=self.figures,
        )  # fmt: skip

    def jump(self, step: int, loss: float) -> Row | None:
        """A loss that stands out, told when the next one shows whether the batch or the weights made it."""
        window = self.losses[-WINDOW - 1 : -1]
        if self.jumped is not None:
            (high, usual, before, on), self.jumped = self.jumped, None
            passed = loss < (high + usual) / 2
            seen = f"the loss jumped from {usual:.3g} to {high:.3g} at step {step - 1}, on {on}"
            self.found.append(
                Finding(
                    "loss spike",
                    f"{seen}, and was back after it: that batch is unlike the others"
                    if passed
                    else f"{seen}, and stayed: the update before, on {before}, was too large",
                    "look at those examples" if passed else "lower --train.lr or --train.clip",
                    0.4,
                )
            )
            return {"at": step - 1, "loss": high, "usual": usual, "batch": on if passed else before, "passed": passed}
        if len(window) >= WINDOW // 2:
            usual = median(window)
            if loss - usual > max(JUMP * (max(window) - usual), 0.1 * self.losses[0]):
                self.jumped = loss, usual, self.last, self.names
        return None


def name_of(epoch: int, index: int, batch: Batch) -> str:
    """A batch, in words."""
    examples = ", ".join(map(str, batch.examples[:5])) + (" …" if len(batch.examples) > 5 else "")
    return f"batch {index} of epoch {epoch}" + (f" (examples {examples})" if examples else "")


def classes_of(model: nn.Module) -> int | None:
    """Among how many a model's head chooses."""
    head = getattr(model, "head", None)
    if head is None:
        return None
    weight = getattr(head, "weight", None)
    matrices = [weight] if weight is not None else [p for p in head.parameters() if p.dim() == 2]
    return len(matrices[-1]) if matrices else None


def rounded(value: Any) -> Any:
    """Figures with as many digits as mean something; what is no number is null, as JSON knows none."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return None if not math.isfinite(value) else float(f"{value:.4g}")
