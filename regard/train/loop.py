"""The training loop: one for every model, readable from top to bottom."""

import json
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.doctor.findings import Finding, as_dict
from regard.doctor.watch import Watch
from regard.train import checkpoint
from regard.train.board import Board
from regard.train.checkpoint import Progress
from regard.train.config import TrainConfig
from regard.train.optim import build_optimizers
from regard.train.progress import Line, clock
from regard.train.schedule import SCHEDULES


@runtime_checkable
class Stream(Protocol):
    """Endless batches, from any place on."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]: ...


Objective = Callable[..., tuple[Tensor, int]]


class Interrupted(Exception):  # noqa: N818  nothing went wrong
    """Ctrl-C or SIGTERM, after everything was saved."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a run ended: its last step, its training seconds and the validation loss of the weights it kept."""

    step: int
    seconds: float
    valid_loss: float


def fit(
    model: Any,
    stream: Stream,
    valid: Callable[[], Iterable[Batch]],
    objective: Objective,
    config: TrainConfig,
    out: Path,
    *,
    publish: Callable[[], None],
    resume: bool = False,
    quiet: bool = False,
) -> Fitted:
    """Trains `model` and keeps its run in `out`. `publish` writes the weights that others load: it is called at every
    new lowest validation loss, or once at the end with the mean of the last checkpoints."""
    torch.manual_seed(config.seed)
    line, saved = Line(quiet), out / "checkpoints"
    peak = config.lr or (model.config.dim * config.warmup) ** -0.5
    optimizers = build_optimizers(
        model, name=config.optimizer, lr=peak, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )
    at = Progress()
    if resume and (existing := checkpoint.found(saved)):
        at = checkpoint.load(existing[-1], model, optimizers)
        line.say(f"resuming {out} at step {at.step}")
    batches = stream.batches(at.epoch, at.index)
    parameters = [p for p in model.parameters() if p.requires_grad]
    started, speed = time.monotonic() - at.seconds, Speed()

    def used() -> float:
        """The share of the budget that is used up."""
        return at.step / config.steps if config.minutes is None else at.seconds / (60 * config.minutes)

    def finished() -> bool:
        return used() >= 1 or 0 < config.patience <= at.waited

    with interrupts() as interrupted, Metrics(out / "metrics.jsonl", at.step) as metrics:
        watch = Watch(model, objective, config, metrics.past)
        while not finished():
            step = at.step + 1
            rate = peak * SCHEDULES[config.schedule](step, config.warmup, used())
            for group in [group for optimizer in optimizers for group in optimizer.param_groups]:
                group["lr"] = rate * group.get("pace", 1.0)

            model.train()
            loss, counted, tokens = 0.0, 0, 0
            for _ in range(config.accumulate):
                epoch, index, batch = next(batches)
                watch.read(epoch, index, batch)
                summed, count = objective(model, batch, smoothing=config.smoothing)
                check_finite("loss", summed.item(), step, epoch, index, batch, watch, metrics)
                summed.backward()
                loss, counted, tokens = loss + summed.item(), counted + count, tokens + batch.tokens
            torch._foreach_div_([p.grad for p in parameters if p.grad is not None], counted)
            loss /= counted
            watch.before(step)
            norm = nn.utils.clip_grad_norm_(parameters, config.clip or math.inf).item()
            check_finite("gradient norm", norm, step, epoch, index, batch, watch, metrics)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            at = replace(at, step=step, epoch=epoch, index=index, seconds=time.monotonic() - started)
            speed.add(tokens)
            metrics.add(step=step, loss=loss, lr=rate, norm=norm, tokens=tokens, seconds=round(at.seconds, 3))
            for row in watch.after(step, loss, rate):
                metrics.add(**row)
                if "finding" in row:
                    line.say(f"doctor: {Finding(**row['finding'])}")
            unit = "pictures" if "pixels" in batch.inputs else "tokens"
            line.show(
                f"step {step:>6}  loss {loss:6.3f}  lr {rate:.2e}  grad norm {norm:5.2f}"
                f"  {speed.tokens:>7,.0f} {unit}/s  {clock(at.seconds * (1 - used()) / max(used(), 1e-9))} left"
            )
            if step % config.eval_every == 0 or finished():
                value = evaluate(model, valid(), objective)
                metrics.add(step=step, valid_loss=value, seconds=round(at.seconds, 3))
                line.say(f"step {step:>6}  validation loss {value:.4f}  {clock(at.seconds)}")
                at = replace(at, waited=at.waited + 1)
                if at.best is None or value < at.best:
                    at = replace(at, best=value, waited=0)
                    publish()
            if step % config.save_every == 0 or finished() or interrupted():
                checkpoint.save(saved, model, optimizers, at)
                checkpoint.prune(saved, keep=max(2, config.average))
            if interrupted() and not finished():
                raise Interrupted(f"stopped at step {step}, everything is saved; go on with --resume")
    if config.average > 1:
        checkpoint.average(checkpoint.found(saved)[-config.average :], model)
        publish()
        return Fitted(at.step, at.seconds, evaluate(model, valid(), objective))
    return Fitted(at.step, at.seconds, at.best if at.best is not None else math.nan)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], objective: Objective) -> float:
    """Mean loss a token, without smoothing."""
    model.eval()
    loss, tokens = 0.0, 0
    for batch in batches:
        summed, count = objective(model, batch)
        loss, tokens = loss + summed.item(), tokens + count
    return loss / max(1, tokens)


def check_finite(
    what: str, value: float, step: int, epoch: int, index: int, batch: Batch, watch: Watch, metrics: "Metrics"
) -> None:
    """Stops a run that has gone wrong, before it spoils weights or checkpoints, and says who did it."""
    if not math.isfinite(value):
        examples = ", ".join(map(str, batch.examples[:5])) + (" …" if len(batch.examples) > 5 else "")
        found = watch.blame(what, value, step, batch)
        metrics.add(step=step, finding=as_dict(found))
        raise ValueError(
            f"the {what} is {value} at step {step} (epoch {epoch}, batch {index}, examples {examples}); "
            f"{found.cause}: {found.sentence}; "
            f"{found.cure} and go on with --resume: the last checkpoint is untouched"
        )


class Speed:
    """Tokens a second over the last steps."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=50)

    def add(self, tokens: int) -> None:
        self.recent.append((time.monotonic(), tokens))

    @property
    def tokens(self) -> float:
        seconds = self.recent[-1][0] - self.recent[0][0]
        return sum(tokens for _, tokens in list(self.recent)[1:]) / max(seconds, 1e-9)


class Metrics:
    """`metrics.jsonl`: a line a step, and the doctor's. On resuming, lines past the checkpoint are dropped, as they
    come again."""

    def __init__(self, path: Path, step: int) -> None:
        self.past = [row for row in read_metrics(path) if row["step"] <= step] if step and path.exists() else []
        draft = path.with_suffix(".draft")
        draft.write_text("".join(json.dumps(row) + "\n" for row in self.past))
        draft.replace(path)
        self.file, self.board = path.open("a", buffering=1), Board(path.parent)

    def add(self, **row: Any) -> None:
        try:
            self.file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise OSError(
                f"could not write {self.file.name}: {error.strerror}; free some space, then --resume"
            ) from None
        self.board.add(row)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every complete line; a run that was killed may have left half of one."""
    rows = []
    for text in path.read_text().splitlines():
        try:
            rows.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return rows


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C or SIGTERM into a wish that the loop grants after the step; the second one kills."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
