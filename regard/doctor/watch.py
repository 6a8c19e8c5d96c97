"""The doctor beside the training loop: figures on sampled steps, and a finding with its cure when something is wrong.

It reads and never writes: a run is bit for bit the same with it and without it.
"""

import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import nn

from regard.data.sets.batches import Batch
from regard.doctor.causes import RECENT, RULES, SEVERAL, SMALLER, Signs
from regard.doctor.feed import Feed
from regard.doctor.findings import Finding, as_dict
from regard.doctor.frozen import Frozen
from regard.doctor.vitals import Update, activations, by_layer, untouched
from regard.train.config import TrainConfig
from regard.train.observer import Note, Observer, Row

WINDOW, JUMP = 64, 4
"""A loss is a spike if it exceeds the median of the last WINDOW by JUMP times as much as any of them."""
SETTLED = 4
"""Steps after which weights that were initialised to zero have a scale."""


class Watch(Observer):
    """Measures a run on sampled steps, and reports each cause of trouble once."""

    def __init__(self, model: nn.Module, objective: Callable[..., Any], config: TrainConfig) -> None:
        self.model, self.objective, self.config = model, objective, config
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.steps = 0
        """Steps of this session; those before it was resumed do not count."""
        self.losses: list[float] = []
        self.best, self.ratio = math.inf, math.nan
        self.reported: set[str] = set()
        """Causes that have been reported."""
        self.figures: list[Row] = []
        """Figures of the last sampled steps."""
        self.feed, self.frozen = Feed(), Frozen(model)
        self.update: Update | None = None
        self.batches: list[tuple[str, Batch]] = []
        """The batches of the current step by name."""
        self.last = ""
        """The names of the batches of the previous step."""
        self.spike: tuple[float, float, str, str] | None = None
        """A loss that stood out at the previous step: its value, the usual one, the batches before it and on it."""
        self.findings: list[Finding] = []
        """Findings of the current step."""

    def due(self, step: int) -> bool:
        """Whether a step is sampled: often in the beginning, where most goes wrong, later at regular intervals."""
        every = self.config.watch
        return every > 0 and (step % every == 0 or (step < every and step & (step - 1) == 0))

    # ---- callbacks of the loop --------------------------------------------------------------------------------

    def resume(self, rows: list[Row]) -> None:
        for row in rows:
            self.figures = [*self.figures, row["watch"]][-SEVERAL:] if row.get("watch") else self.figures
            self.losses += [row["loss"]] if "loss" in row else []
            self.reported |= {row["finding"]["cause"]} if "finding" in row else set()
        medians = (median(self.losses[i - RECENT : i]) for i in range(RECENT, len(self.losses)))
        self.best = min(medians, default=math.inf)

    def on_batch(self, epoch: int, index: int, batch: Batch) -> None:
        if self.config.watch:
            self.findings += self.feed.add(epoch, index, batch)
            self.batches.append((name_of(epoch, index, batch), batch))

    def on_gradients(self, step: int) -> None:
        self.steps += 1
        if self.due(step):
            self.update = Update(self.parameters)

    def on_update(self, step: int, loss: float, lr: float) -> Iterator[Note]:
        """Yields a spike, the figures of a sampled step, and findings that are new."""
        if not self.config.watch:
            return
        self.losses.append(loss)
        if len(self.losses) >= RECENT:
            self.best = min(self.best, median(self.losses[-RECENT:]))
        if (spike := self.find_spike(step, loss)) is not None:
            yield {"step": step, "spike": spike}, ""
        if self.update is not None:
            figures = self.measure(self.update, step, lr)
            self.update = None
            yield {"step": step, "watch": rounded(figures)}, ""
            signs = self.signs(step, figures)
            self.figures = [*self.figures, figures][-SEVERAL:]
            self.findings += filter(None, (rule(signs) for rule in RULES))
        for finding in self.findings:
            if finding.cause not in self.reported:
                self.reported.add(finding.cause)
                yield {"step": step, "finding": as_dict(finding) | {"step": step}}, str(finding)
        self.findings, self.last, self.batches = [], self.names, []

    def explain(self, quantity: str, value: float, step: int, batch: Batch) -> Note:
        finding = self.blame(quantity, value, step, batch)
        return {"step": step, "finding": as_dict(finding)}, str(finding)

    # ---- measurements -------------------------------------------------------------------------------------------

    @property
    def names(self) -> str:
        """The names of the current step's batches."""
        return " and ".join(name for name, _ in self.batches)

    def blame(self, quantity: str, value: float, step: int, batch: Batch) -> Finding:
        """Return the cause of a loss or gradient norm that is not finite: certain examples, or the weights."""
        broken, count = [], 0
        for each in [batch] if quantity == "loss" else [each for _, each in self.batches] or [batch]:
            names = each.examples or range(len(each.targets))
            count += len(names)
            for row, name in enumerate(names):
                if not self.finite(each.pick([row]), backward=quantity != "loss"):
                    broken.append(name)
        if 0 < len(broken) < count:
            which = ("example " if len(broken) == 1 else "examples ") + ", ".join(map(str, broken[:5]))
            return Finding(
                "a broken example",
                f"{which} of the batch's {count} by itself makes the {quantity} {value}; the others do not",
                f"correct or remove {'it' if len(broken) == 1 else 'them'}", 1.0, step,
            )  # fmt: skip
        sentence = (
            f"the {quantity} is {value} at step {step}, for {'every' if broken else 'no single'} example of the batch"
        )
        if step == 1:
            return Finding("exploding initialisation", sentence, SMALLER, 0.9, step)
        return Finding("learning rate too high", sentence, "lower --train.lr or lengthen --train.warmup", 0.9, step)

    def finite(self, batch: Batch, *, backward: bool) -> bool:
        """Whether the loss of a batch, and its gradient, is finite. The run ends here, so gradients may be lost."""
        if not backward:
            with untouched(self.model):
                return math.isfinite(self.objective(self.model, batch)[0].item())
        self.model.zero_grad(set_to_none=True)
        loss = self.objective(self.model, batch)[0]
        loss.backward()
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        return bool(torch.isfinite(torch.stack([loss.detach(), *torch._foreach_norm(grads)])).all())

    def measure(self, update: Update, step: int, lr: float) -> Row:
        """The figures of a sampled step, by layer."""
        moved, weights = update.measure()
        self.findings += self.frozen.add(update.gradient, moved if lr > 0 else None)
        ratios = [(moved[n] / weights[n]) ** 0.5 for n, p in self.parameters.items() if p.dim() > 1 and weights[n]]
        ratio = median(ratios) if ratios else math.nan
        if step >= SETTLED and not self.ratio > ratio:
            self.ratio = ratio
        sizes = by_layer(weights)
        return {
            "ratio_median": ratio,
            "gradient": by_layer(update.gradient),
            "ratio": {name: value / sizes[name] for name, value in by_layer(moved).items() if sizes[name]},
            **activations(self.model, self.objective, self.batches[-1][1]),
            **self.own_figures(self.batches[-1][1]),
        }

    @torch.no_grad()
    def own_figures(self, batch: Batch) -> Row:
        """The figures that an objective has of its own, such as CTC's share of blanks."""
        figures = getattr(self.objective, "figures", None)
        if figures is None:
            return {}
        with untouched(self.model):
            return figures(self.model, batch)

    def signs(self, step: int, figures: Row) -> Signs:
        """The evidence that the rules judge by."""
        classes = classes_of(self.model)
        # Positions of an answer are no classes, and CTC's loss is that of a whole text.
        chosen = self.feed.chooses(classes) and getattr(self.objective, "classifies", True)
        classes = classes if chosen else None
        return Signs(
            step=step, config=self.config, losses=self.losses, best=min(self.best, self.losses[0]), classes=classes,
            floor=None if classes is None else self.feed.floor(classes, self.config.smoothing), ratio=self.ratio,
            post_norm=getattr(getattr(self.model, "config", None), "norm_place", "pre") == "post", figures=figures,
            before=self.figures,
        )  # fmt: skip

    def find_spike(self, step: int, loss: float) -> Row | None:
        """A loss that stood out at the previous step; the loss of this one shows if batch or weights caused it."""
        window = self.losses[-WINDOW - 1 : -1]
        if self.spike is not None:
            (high, usual, before, on), self.spike = self.spike, None
            passed = loss < (high + usual) / 2
            sentence = f"the loss jumped from {usual:.3g} to {high:.3g} at step {step - 1}, on {on}"
            sentence += (
                ", and was back after it: that batch is unlike the others"
                if passed
                else f", and stayed: the update before, on {before}, was too large"
            )
            cure = "look at those examples" if passed else "lower --train.lr or --train.clip"
            self.findings.append(Finding("loss spike", sentence, cure, 0.4))
            return {"at": step - 1, "loss": high, "usual": usual, "batch": on if passed else before, "passed": passed}
        if len(window) >= WINDOW // 2:
            usual = median(window)
            if loss - usual > max(JUMP * (max(window) - usual), 0.1 * self.losses[0]):
                self.spike = loss, usual, self.last, self.names
        return None


def name_of(epoch: int, index: int, batch: Batch) -> str:
    """A batch in words: its number, epoch and first examples."""
    examples = ", ".join(map(str, batch.examples[:5])) + (" …" if len(batch.examples) > 5 else "")
    return f"batch {index} of epoch {epoch}" + (f" (examples {examples})" if examples else "")


def classes_of(model: nn.Module) -> int | None:
    """The number of classes (or tokens) of the model's output layer, None if it has no `head`."""
    head = getattr(model, "head", None)
    if head is None:
        return None
    weight = getattr(head, "weight", None)
    matrices = [weight] if weight is not None else [p for p in head.parameters() if p.dim() == 2]
    return len(matrices[-1]) if matrices else None


def rounded(value: Any) -> Any:
    """Figures to four digits; NaN and infinity, which JSON lacks, as None."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return None if not math.isfinite(value) else float(f"{value:.4g}")
