"""Rules from figures to causes: each returns the finding that the signs of a run point to, or None.

A rule that fires on a healthy run is worse than none. So a symptom that healthy runs can have (a large update, a
sharp head) is never enough: the loss has to suffer as well.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from regard.doctor.findings import Finding
from regard.doctor.vitals import SHARP
from regard.train.config import TrainConfig

Rule = Callable[["Signs"], Finding | None]
RECENT = 16
"""Steps whose median loss is the current one."""
PATIENCE = 100
"""Steps after the warm-up before a run is expected to have learned something."""
SPREAD = 5.0
"""Standard deviation of attention scores at initialisation; healthy ones have 1, up to 3 where queries equal keys."""
LARGE, SMALL = 0.1, 3e-5
"""Bounds of the update-to-weight ratio of the median matrix in healthy runs."""
SEVERAL = 3
"""Consecutive sampled steps that must show a symptom."""
FAINT = 1e-4
"""Share of the largest layer's gradient below which a block does not learn."""
STEEP = 100.0
"""Ratio of a block's gradient to that of its stack's last, where blocks amplify; below ten in healthy runs."""
ALL_BLANK, BLANK_PATIENCE = 0.99, 400
"""Share of vectors that say nothing, and the steps after the warm-up for which CTC does so in healthy runs, too."""
SMALLER = "initialise the weights smaller (for matrices a deviation of 1/√inputs, for embeddings 1/√dim)"
"""The cure of an exploding initialisation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signs:
    """The evidence about a run at a sampled step."""

    step: int
    config: TrainConfig
    losses: Sequence[float]
    best: float
    """The lowest median of RECENT consecutive losses so far."""
    classes: int | None = None
    """The number of classes or tokens, where targets are such."""
    floor: float | None = None
    """The loss of the best constant guess: the entropy of the targets."""
    ratio: float = math.nan
    """The largest update-to-weight ratio of the median matrix, the first steps left out."""
    post_norm: bool = False
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Figures of this step, by layer."""
    before: Sequence[Mapping[str, Any]] = ()
    """Figures of earlier sampled steps."""

    @property
    def start(self) -> float:
        return self.losses[0]

    @property
    def now(self) -> float:
        return median(self.losses[-RECENT:])

    @property
    def since(self) -> int:
        """Number of steps since the end of the warm-up."""
        return self.step - self.config.warmup_steps

    @property
    def rises(self) -> bool:
        """Whether the loss is above its start, or has lost much of what was gained."""
        gained = self.start - self.best
        return self.step >= RECENT and (
            self.now > 1.1 * self.start or (gained > 0.05 * self.start and self.now > self.best + 0.25 * gained)
        )

    @property
    def halves(self) -> tuple[float, float] | None:
        """The median loss of the last PATIENCE/2 steps and of those before them, once there was time to learn."""
        if self.since < PATIENCE or len(self.losses) < PATIENCE:
            return None
        return median(self.losses[-PATIENCE // 2 :]), median(self.losses[-PATIENCE : -PATIENCE // 2])

    @property
    def stuck(self) -> bool:
        """Whether the loss is no better than a constant guess, though there was time to learn."""
        return self.halves is not None and self.floor is not None and self.halves[0] > 0.97 * self.floor

    @property
    def stalls(self) -> bool:
        """Whether little was learned and the loss no longer falls."""
        return self.halves is not None and self.halves[0] > max(0.98 * self.halves[1], 0.6 * self.start)

    def lately(self, kind: str) -> Sequence[Mapping[str, Any]]:
        """Return a figure by layer at the last SEVERAL sampled steps; empty before that many."""
        past = [figures.get(kind, {}) for figures in (*self.before, self.figures)][-SEVERAL:]
        return past if len(past) == SEVERAL else ()

    @property
    def rests(self) -> bool:
        """Whether the loss lies at that of a constant guess and does not move."""
        if self.halves is None or self.floor is None or not self.stuck:
            return False
        now, then = self.halves
        return then - 0.02 * self.floor < now < 1.03 * self.floor


def exploding_start(signs: Signs) -> Finding | None:
    if signs.step > 1 or signs.classes is None:
        return None
    even = math.log(signs.classes)
    if signs.start < 1.5 * even + 1:
        return None
    return Finding(
        "exploding initialisation",
        f"the first loss is {signs.start:.3g}, but equal probabilities of {signs.classes} classes give {even:.3g}",
        SMALLER,
        0.95,
        signs.step,
    )


def large_scores(signs: Signs) -> Finding | None:
    spreads = signs.figures.get("spread", {})
    if signs.step > 1 or not spreads:
        return None
    layer, spread = max(spreads.items(), key=lambda item: item[1])
    size = signs.figures["size"][layer]
    if median(spreads.values()) < SPREAD:
        return None
    seen = f"before any learning, attention scores deviate by {spread:.3g} over the keys of {layer}"
    if spread < 2 * math.sqrt(size) and size >= 16:
        seen += f", which √{size} for heads of {size} would bring to {spread / math.sqrt(size):.2g}"
        return Finding(
            "scores not divided by √d_k", seen, "divide q·k by √d_k (kernel full does)", 0.9, signs.step, layer
        )
    return Finding("exploding initialisation", seen, "initialise queries and keys smaller", 0.6, signs.step, layer)


def rate_too_high(signs: Signs) -> Finding | None:
    suffers, large = signs.rises or signs.stuck, signs.ratio > LARGE
    wild = signs.ratio > 3 * LARGE and signs.step >= 2 * RECENT and signs.now > 0.75 * signs.start
    if not (suffers and signs.ratio > LARGE / 3) and not (signs.stalls and large) and not wild:
        return None
    trend = "rises" if signs.rises else "hardly falls"
    return Finding(
        "learning rate too high",
        f"a step moves the median matrix by {signs.ratio:.1%} of its size, and the loss {trend} "
        f"(first {signs.start:.3g}, lowest {signs.best:.3g}, now {signs.now:.3g})",
        "lower --train.lr, by ten to begin with, or lengthen --train.warmup",
        0.85 if large else 0.55,
        signs.step,
    )


def no_warmup(signs: Signs) -> Finding | None:
    if not signs.post_norm or signs.config.warmup_steps >= RECENT or not (signs.rises or signs.stuck):
        return None
    return Finding(
        "no warm-up with post-norm",
        f"norms stand behind the residuals, the warm-up is {signs.config.warmup_steps} steps, "
        f"and the loss is {signs.now:.3g} after {signs.step} (first {signs.start:.3g})",
        "set --train.warmup to a few hundred steps, or --model.norm-place pre",
        0.9 if not signs.ratio > LARGE else 0.8,
        signs.step,
    )


def rate_too_low(signs: Signs) -> Finding | None:
    if signs.since < PATIENCE or not signs.ratio < SMALL or signs.now < 0.98 * signs.start:
        return None
    return Finding(
        "learning rate too low",
        f"a step moves the median matrix by {signs.ratio:.1e} of its size, "
        f"and the loss went from {signs.start:.3g} to {signs.now:.3g} in {signs.step} steps",
        "raise --train.lr, by ten to begin with",
        0.7,
        signs.step,
    )


def no_relation(signs: Signs) -> Finding | None:
    if not signs.rests or signs.rises or not signs.ratio > SMALL:
        return None
    return Finding(
        "labels shuffled",
        f"after {signs.step} steps the loss is {signs.now:.3g}, what the targets' frequencies alone give "
        f"({signs.floor:.3g}): the inputs do not predict their targets, though gradients flow",
        "check that each example keeps its own target (was one side sorted or shuffled?), or train longer",
        0.7 if signs.ratio < LARGE else 0.5,
        signs.step,
    )


def dead_units(signs: Signs) -> Finding | None:
    layer, share = max(signs.figures.get("dead", {}).items(), key=lambda item: item[1], default=("", 0.0))
    if share < 0.8 or signs.step < RECENT:
        return None
    return Finding(
        "dead units",
        f"{share:.0%} of the hidden units of {layer} were never active on the sampled rows",
        "lower --train.lr, or use --model.activation gelu",
        0.4,
        signs.step,
        layer,
    )


def attention_collapse(signs: Signs) -> Finding | None:
    past = signs.lately("entropy")
    if not past or not (signs.stalls or signs.stuck):
        return None

    def sharp(heads: Sequence[float | None]) -> bool:
        return bool(heads) and sum(entropy is not None and entropy < SHARP for entropy in heads) >= 0.9 * len(heads)

    collapsed = [layer for layer in past[-1] if all(sharp(row.get(layer, ())) for row in past)]
    if not collapsed:
        return None
    return Finding(
        "attention collapse",
        f"the heads of {collapsed[0]}{' and other layers' if len(collapsed) > 1 else ''} attend to one position each "
        f"(entropy {max(past[-1][collapsed[0]]):.2g} of 1), and the loss stays at {signs.now:.3g}: through such a "
        "softmax no gradient comes",
        "lower --train.lr, initialise queries and keys smaller, or use --model.kernel normalized",
        0.72,
        signs.step,
        collapsed[0],
    )


def vanishing_gradient(signs: Signs) -> Finding | None:
    past = signs.lately("gradient")
    if not past or not (signs.stalls or signs.stuck):
        return None
    for first, *_ in stacks_of(past[-1]):
        shares = [row[first] / max(filter(None, row.values())) for row in past if row.get(first)]
        if len(shares) == SEVERAL and max(shares) < FAINT:  # none at all is what a frozen layer gets
            return Finding(
                "vanishing gradient",
                f"the gradient of {first} is {shares[-1]:.1e} of the largest layer's, "
                f"and the loss stays at {signs.now:.3g}",
                "keep residuals and norms around every part, nothing that saturates between blocks, or fewer blocks",
                0.75,
                signs.step,
                first,
            )
    return None


def exploding_gradient(signs: Signs) -> Finding | None:
    past = signs.lately("gradient")
    if not past or not (signs.stalls or signs.stuck or signs.rises):
        return None
    for blocks in stacks_of(past[-1]):
        last, most = blocks[-1], max(blocks, key=lambda block: past[-1][block] or 0.0)
        growth = [max(row.get(block) or 0.0 for block in blocks) / row[last] for row in past if row.get(last)]
        if len(growth) == SEVERAL and min(growth) > STEEP:
            return Finding(
                "exploding gradient",
                f"on its way from {last} to {most} the gradient grows {growth[-1]:,.0f} times, "
                f"and the loss is {signs.now:.3g} (first {signs.start:.3g})",
                "keep residuals and norms around every part, initialise the weights smaller, or use fewer blocks",
                0.75,
                signs.step,
                most,
            )
    return None


def stuck_at_blank(signs: Signs) -> Finding | None:
    shares = [row.get("blank", 0.0) for row in (*signs.before, signs.figures)][-SEVERAL:]
    if len(shares) < SEVERAL or min(shares) < ALL_BLANK or signs.since < BLANK_PATIENCE:
        return None
    return Finding(
        "CTC stuck at blank",
        f"{signs.since} steps after the warm-up blank is the most probable token of {shares[-1]:.1%} of all vectors, "
        f"and the loss stays at {signs.now:.3g}",
        "train a decoder beside it: --model.decoder-depth 2; or lower --train.lr, and check that the transcripts "
        "belong to their recordings",
        0.85,
        signs.step,
    )


def stacks_of(layers: Iterable[str]) -> list[list[str]]:
    """The names of the blocks of each stack that has several, first to last."""
    stacks: dict[str, list[int]] = {}
    for stack, dot, number in (layer.rpartition(".") for layer in layers):
        if dot and number.isdecimal():
            stacks.setdefault(stack, []).append(int(number))
    return [[f"{stack}.{i}" for i in sorted(numbers)] for stack, numbers in stacks.items() if len(numbers) > 1]


RULES: tuple[Rule, ...] = (
    exploding_start, large_scores, rate_too_high, no_warmup, rate_too_low, no_relation, dead_units,
    attention_collapse, vanishing_gradient, exploding_gradient, stuck_at_blank,
)  # fmt: skip
