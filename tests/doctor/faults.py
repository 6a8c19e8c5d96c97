"""Small trainings that are healthy, and what breaks them: the doctor must name each, and be silent before.

`HEALTHY[name](seed)` is a set-up; `FAULTS[cause]` is the name of its healthy twin and a function that breaks it.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.sets.batches import IGNORE, Batch, Stream, TextStream, pad
from regard.doctor.findings import Finding, shortlist
from regard.doctor.watch import Watch
from regard.models import build, preset
from regard.objectives.ctc import ctc
from regard.objectives.labels import text_labels
from regard.objectives.next_token import next_token
from regard.train.compute import Placed
from regard.train.config import TrainConfig
from regard.train.loop import fit, read_metrics

WORDS = 48


@dataclass(frozen=True)
class Setup:
    """What `fit` is given."""

    model: Any
    stream: Any
    objective: Callable[..., Any]
    config: TrainConfig

    def valid(self) -> list[Batch]:
        return [next(self.stream.batches())[2]]


def train(setup: Setup, out: Path, **options: Any) -> None:
    """Trains a set-up with the doctor beside it."""
    watch = Watch(setup.model, setup.objective, setup.config)
    fit(
        setup.model, setup.stream, setup.valid, setup.objective, setup.config, out, publish=lambda: None,
        observer=watch, **dict(quiet=True) | options,
    )  # fmt: skip


def examine(setup: Setup, out: Path) -> list[Finding]:
    """Trains, and returns the findings that the doctor wrote."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        train(setup, out)
    except ValueError as error:
        assert " is nan at step" in str(error) or " is inf at step" in str(error)
    rows = read_metrics(out / "metrics.jsonl")
    return shortlist(Finding(**row["finding"]) for row in rows if "finding" in row)


# ---- healthy ------------------------------------------------------------------------------------------------------

TRAIN: dict[str, Any] = dict(
    steps=160, lr=3e-3, schedule="constant", warmup=20, smoothing=0.0, eval_every=1000, save_every=1000, watch=20
)  # fmt: skip


def chain(seed: int, length: int = 6000) -> np.ndarray:
    """A text in which each word is followed by one of three."""
    draw = np.random.default_rng(seed)
    after = draw.integers(WORDS, size=(WORDS, 3))
    ids = [0]
    for choice in draw.integers(3, size=length - 1):
        ids.append(int(after[ids[-1], choice]))
    return np.array(ids, dtype=np.int32)


def writer(seed: int, **changes: Any) -> Setup:
    """A GPT with norms before each part, on running text."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = dict(dim=32, depth=2, heads=2, ffn_dim=64, vocab_size=WORDS, max_len=16, dropout=0.0)
    model = build("gpt", preset("gpt", "tiny", **sizes | changes))
    return Setup(model, TextStream(chain(seed), 16, 8, seed), next_token, TrainConfig(**TRAIN, seed=seed))


def wide_writer(seed: int) -> Setup:
    """The same with large heads."""
    return writer(seed, dim=256, depth=1, heads=1, ffn_dim=64)


def deep_writer(seed: int) -> Setup:
    """Many blocks with norms behind each part, a high rate, and the warm-up that makes both possible."""
    setup = writer(seed, depth=8, norm_place="post", final_norm=False)
    return replace(setup, config=replace(setup.config, lr=6e-3, warmup=100, steps=220))


def long_writer(seed: int) -> Setup:
    """Many blocks with norms before each part."""
    setup = writer(seed, depth=8)
    return replace(setup, config=replace(setup.config, steps=200))


def classifier(seed: int, own: int = 3, others: int = 0, rest: int = 8) -> Setup:
    """An encoder that tells which of four words a text has most of: `own` of its own, `others` of each other."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = dict(dim=32, depth=2, heads=2, ffn_dim=64, vocab_size=WORDS, max_len=16, dropout=0.0)
    how: dict[str, Any] = dict(task="classify", labels=("a", "b", "c", "d"))
    model = build("bert", preset("bert", "tiny", **sizes, **how))
    draw = random.Random(seed)
    texts = []
    for number in range(800):
        label = draw.randrange(4)
        ids = [draw.randrange(8, WORDS) for _ in range(rest)] + [label + 2] * (own - others) + [2, 3, 4, 5] * others
        draw.shuffle(ids)
        texts.append(Labelled(ids, label, number))
    stream = Stream(lambda epoch: texts, with_labels, 352, seed)
    return Setup(model, stream, text_labels, TrainConfig(**TRAIN, seed=seed))


def counter(seed: int) -> Setup:
    """The same where texts have all four, so that one look at one place tells little."""
    return classifier(seed, own=5, others=3, rest=1)


@dataclass(frozen=True)
class Labelled:
    ids: list[int]
    label: int
    number: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (len(self.ids),)


def with_labels(texts: Any) -> Batch:
    inputs = {"ids": torch.tensor([one.ids for one in texts]), "lengths": torch.tensor([len(one.ids) for one in texts])}
    return Batch(inputs, torch.tensor([one.label for one in texts]), tuple(one.number for one in texts))


def listener(seed: int) -> Setup:
    """A Conformer with CTC on recordings in which every token is a tone of its own."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = dict(dim=16, depth=1, heads=2, ffn_dim=32, channels=4, bands=24, vocab_size=24)
    model = build("conformer", preset("conformer", "tiny", **sizes, subsampling=2, conv_size=3, dropout=0.0))
    draw = random.Random(seed)
    spoken = [Tones([draw.randrange(1, 24) for _ in range(draw.randrange(4))], number) for number in range(160)]
    config = TrainConfig(**TRAIN | dict(steps=430, lr=1e-2), seed=seed)
    return Setup(model, Stream(lambda epoch: spoken, with_tones, 320, seed), Placed(ctc, "float32"), config)


@dataclass(frozen=True)
class Tones:
    ids: list[int]
    number: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (40,)


def with_tones(spoken: Any) -> Batch:
    audio = 0.3 * torch.randn(len(spoken), 40, 24)
    for row, one in zip(audio, spoken, strict=True):
        for place, id in enumerate(one.ids):
            row[11 + 6 * place : 17 + 6 * place, id] += 3
    inputs = {"audio": audio, "lengths": torch.full((len(spoken),), 40)}
    return Batch(inputs, pad([one.ids for one in spoken], IGNORE), tuple(one.number for one in spoken))


HEALTHY: dict[str, Callable[[int], Setup]] = {
    "writer": writer, "wide writer": wide_writer, "deep writer": deep_writer, "long writer": long_writer,
    "classifier": classifier, "counter": counter, "listener": listener,
}  # fmt: skip


# ---- what goes wrong ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Altered:
    """A stream whose batches are changed on their way."""

    stream: Any
    change: Callable[[Any], Any]

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Any]]:
        for *place, batch in self.stream.batches(epoch, index):
            yield *place, self.change(batch)


def unscaled(setup: Setup) -> Setup:
    """Scores are not divided by √d_k."""
    return replace(setup, model=rebuilt(setup, kernel="dot"))


def rebuilt(setup: Setup, **changes: Any) -> Any:
    torch.manual_seed(setup.config.seed)
    return type(setup.model)(replace(setup.model.config, **changes))


def fast(setup: Setup) -> Setup:
    """A hundred times the learning rate; for a while such a run may still learn a little."""
    return replace(setup, config=replace(setup.config, lr=100 * setup.config.lr, steps=240))


def cold(setup: Setup) -> Setup:
    """No warm-up."""
    return replace(setup, config=replace(setup.config, warmup=0))


def unshifted(setup: Setup) -> Setup:
    """Targets are the inputs."""
    return replace(setup, stream=Altered(setup.stream, lambda batch: replace(batch, targets=batch.inputs["ids"])))


def frozen(setup: Setup) -> Setup:
    """One block does not learn."""
    setup.model.decoder.blocks[1].requires_grad_(False)
    return setup


def cut(setup: Setup) -> Setup:
    """One block's output is detached: it wants to learn, and no gradient reaches it."""
    block = setup.model.decoder.blocks[1].feedforward
    block.register_forward_hook(lambda module, args, out: out.detach())
    return setup


@dataclass(frozen=True)
class Ordered:
    """Every epoch is the first one."""

    stream: Any

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Any]]:
        while True:
            for first, place, batch in self.stream.batches(0, index):
                if first:
                    break
                yield epoch, place, batch
            epoch, index = epoch + 1, 0


def ordered(setup: Setup) -> Setup:
    """The same order of batches in every epoch."""
    return replace(setup, stream=Ordered(setup.stream))


def shuffled(setup: Setup) -> Setup:
    """Labels are dealt out anew."""
    draw = torch.Generator().manual_seed(setup.config.seed)

    def deal(batch: Any) -> Any:
        return replace(batch, targets=batch.targets[torch.randperm(len(batch.targets), generator=draw)])

    return replace(setup, stream=Altered(setup.stream, deal))


def silenced(setup: Setup) -> Setup:
    """Recordings hold nothing of what their transcripts say."""

    def still(batch: Any) -> Any:
        audio = torch.randn_like(batch.inputs["audio"])
        return replace(batch, inputs=batch.inputs | {"audio": audio})

    return replace(setup, stream=Altered(setup.stream, still))


def poisoned(setup: Setup) -> Setup:
    """One example of the data makes the loss no number."""
    bad = next(islice(setup.stream.batches(), 9, None))[2].examples[3]

    def spoil(model: Any, batch: Any, **how: Any) -> Any:
        loss, count = setup.objective(model, batch, **how)
        return (loss * math.nan if bad in batch.examples else loss), count

    return replace(setup, objective=spoil)


def exploding(setup: Setup) -> Setup:
    """All matrices are drawn with deviation 1."""
    with torch.no_grad():
        for p in setup.model.parameters():
            if p.dim() > 1:
                p.normal_()
    return setup


def sharpened(setup: Setup) -> Setup:
    """Queries so large that every head looks at one place."""
    with torch.no_grad():
        for name, p in setup.model.named_parameters():
            if ".attention.query." in name:
                p.mul_(100)
    return setup


def squashed(setup: Setup) -> Setup:
    """What leaves a block goes through a steep sigmoid, residual and all: after a while it saturates."""
    setup = replace(setup, config=replace(setup.config, steps=240))
    return behind_blocks(setup, lambda x: torch.sigmoid(16 * x))


def switched(setup: Setup) -> Setup:
    """What leaves a block is nearly its sign: a small difference becomes a large one, block by block."""
    return behind_blocks(setup, lambda x: torch.tanh(50 * x))


def behind_blocks(setup: Setup, then: Callable[[Any], Any]) -> Setup:
    for block in setup.model.decoder.blocks:
        block.register_forward_hook(lambda module, args, out: then(out))
    return setup


FAULTS: dict[str, tuple[str, str, Callable[[Setup], Setup]]] = {
    "missing √d_k, large heads": ("scores not divided by √d_k", "wide writer", unscaled),
    "learning rate × 100": ("learning rate too high", "writer", fast),
    "no warm-up with post-norm": ("no warm-up with post-norm", "deep writer", cold),
    "targets not shifted": ("targets not shifted", "writer", unshifted),
    "a frozen layer": ("a frozen layer", "writer", frozen),
    "a layer cut off": ("a frozen layer", "writer", cut),
    "duplicated batch order": ("duplicated batch order", "classifier", ordered),
    "labels shuffled": ("labels shuffled", "classifier", shuffled),
    "recordings of nothing": ("CTC stuck at blank", "listener", silenced),
    "NaN in one example": ("a broken example", "classifier", poisoned),
    "exploding initialisation": ("exploding initialisation", "writer", exploding),
    "queries × 100": ("attention collapse", "counter", sharpened),
    "a steep sigmoid behind each block": ("vanishing gradient", "long writer", squashed),
    "nearly a sign behind each block": ("exploding gradient", "long writer", switched),
}
"""By name: the cause that must be found, the healthy twin, and what breaks it."""
