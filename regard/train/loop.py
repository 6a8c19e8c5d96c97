"""The training loop: one for every model, readable from top to bottom."""

import json
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.data.sets.batches import Batch
from regard.files import read_bytes
from regard.train import checkpoint
from regard.train.board import Board
from regard.train.checkpoint import Progress
from regard.train.compute import Placed, check_computing, computing, overflows, scaler_of
from regard.train.config import TrainConfig
from regard.train.device import pick
from regard.train.footprint import Gauge
from regard.train.memory import memory_errors
from regard.train.observer import Observer, Row
from regard.train.optim import build_optimizers
from regard.train.parallel import Parallel
from regard.train.progress import Line, clock
from regard.train.schedule import SCHEDULES, peak_rate, warmup_steps
from regard.train.spread import spread


@runtime_checkable
class Stream(Protocol):
    """Interface of an endless source of batches that can start at any batch of any epoch."""

    def batches(self, epoch: int = 0, index: int = 0) -> Iterator[tuple[int, int, Batch]]: ...


Objective = Callable[..., tuple[Tensor, int]]
"""(model, batch, smoothing=…) → the summed loss, and the number of targets in the sum."""


SHARE = 0.2
"""Under a budget of minutes, a run is validated at least each time that this share of it has passed."""


class Interrupted(Exception):  # noqa: N818  nothing went wrong
    """Raised on Ctrl-C or SIGTERM, after everything was saved."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The outcome of a run: its last step, its training seconds and the validation loss of the weights it kept."""

    step: int
    seconds: float
    valid_loss: float
    kept: int = 0
    """The step of these weights, the last one for the mean of several; 0 where it is not known."""


def fit(
    model: Any,
    stream: Stream,
    valid: Callable[[], Iterable[Batch]] | None,
    objective: Objective,
    config: TrainConfig,
    out: Path,
    *,
    publish: Callable[[], None],
    metrics: Callable[[], dict[str, float]] = dict,
    observer: Observer | None = None,
    again: float = 0.0,
    resume: bool = False,
    quiet: bool = False,
) -> Fitted:
    """Trains `model` and keeps its run in `out`. `publish` writes the weights that others load: it is called at every
    best validation, or once at the end with the mean of the last checkpoints. A validation takes the loss and the
    task's `metrics`, the first of which `config.select` may choose by. Without `valid`, the last weights are published.
    `observer` reads along; `again` is the length of a second training that follows, as a multiple of this one, for the
    time that is left."""
    device = pick(config.device, "--train.device")
    model.to(device)
    torch.manual_seed(config.seed)
    objective, scaler = Placed(objective, config.precision), scaler_of(config, device)
    parallel = spread(model, objective, config.parallel, config.seed if config.noise == "counted" else None)
    model, quiet = parallel.model, quiet or not parallel.chief
    line, folder = Line(quiet), out / "checkpoints"
    if parallel.about:
        line.say(parallel.about)
    observer = observer if observer is not None and parallel.alone else Observer()
    peak = peak_rate(config, model)
    betas = (config.beta1, config.beta2)
    optimizers = build_optimizers(
        model, name=config.optimizer, lr=peak, betas=betas, weight_decay=config.weight_decay, parallel=parallel
    )
    state = Progress()
    if resume and checkpoint.saved(folder):
        state = checkpoint.resume(folder, parallel, optimizers, line.say)
        scaler.load_state_dict(state.scaling(scaler.state_dict()))
        line.say(f"resuming {out} at step {state.step}")
    batches = stream.batches(state.epoch, state.index)
    parameters = [p for p in model.parameters() if p.requires_grad]
    now = time.process_time if config.clock == "cpu" else time.monotonic
    started, speed, gauge = now() - state.seconds, Speed(), Gauge(model, device, parallel.alone and not quiet)

    def used() -> float:
        """The share of the budget that is used up."""
        return state.step / config.steps if config.minutes is None else state.seconds / (60 * config.minutes)

    checked = used()  # the share of the budget that was used at the last validation

    def finished() -> bool:
        return used() >= 1 or 0 < config.patience <= state.waited

    def needy() -> str:
        return f"step {state.step + 1} (batches of {config.batch_tokens:,} tokens)"

    def lower() -> str:
        """The parts that fill the memory, and the fields to lower."""
        filled = gauge.cause(objective, config) if parallel.alone else ""
        fields = filled or "lower --train.batch-tokens, or the model's sizes in a new run"
        return f"{fields}; then --resume: the last checkpoint is untouched"

    for remark in check_computing(model, config, device):
        line.say(remark)
    with (
        computing(model, config),
        memory_errors(needy, lower),
        interrupts() as interrupted,
        Metrics(out / "metrics.jsonl", state.step, parallel.chief) as log,
    ):
        observer.resume(log.past)
        while not finished():
            step = state.step + 1
            lr = peak * SCHEDULES[config.schedule](step, warmup_steps(config, step, used()), used())
            for group in [group for optimizer in optimizers for group in optimizer.param_groups]:
                group["lr"] = lr * group.get("pace", 1.0)

            gauge.start(optimizers)
            model.train()
            loss, counted, tokens, rows = 0.0, 0, 0, 0
            for _ in range(config.accumulate):
                epoch, index, batch = next(batches)
                observer.on_batch(epoch, index, batch)
                gauge.add(batch)
                summed, count = parallel.loss(batch, smoothing=config.smoothing, step=step, before=rows)
                check_finite("loss", summed.item(), step, epoch, index, batch, observer, log)
                scaler.scale(summed).backward()
                loss, counted, tokens = loss + summed.item(), counted + count, tokens + batch.tokens
                rows += batch.rows
            loss, counted, asked = parallel.sum(loss, counted, interrupted())
            loss /= counted
            for optimizer in optimizers:
                scaler.unscale_(optimizer)
            parallel.gradients(parameters, counted)
            observer.on_gradients(step)
            norm = parallel.clip(parameters, config.clip or math.inf)
            if not overflows(scaler):
                check_finite("gradient norm", norm, step, epoch, index, batch, observer, log)
            for optimizer in optimizers:
                scaler.step(optimizer)
                optimizer.zero_grad(set_to_none=True)
            scaler.update()
            gauge.stop()

            state = replace(state, step=step, epoch=epoch, index=index, seconds=parallel.agree(now() - started))
            speed.add(tokens)
            seconds = round(state.seconds, 3)
            log.add({"step": step, "loss": loss, "lr": lr, "norm": norm, "tokens": tokens, "seconds": seconds})
            for row, message in observer.on_update(step, loss, lr):
                log.add(row, message)
                if message:
                    line.say(f"doctor: {message}")
            left = clock(state.seconds * (1 - used() + again) / max(used(), 1e-9))
            line.show(
                f"step {step:>6}  loss {loss:6.3f}  lr {lr:.2e}  grad norm {norm:5.2f}"
                f"  {speed.tokens:>7,.0f} {batch.unit}/s  {left} left"
            )
            late = config.minutes is not None and used() - checked >= SHARE
            if valid is not None and (step % config.eval_every == 0 or late or finished()):
                checked = used()
                value = evaluate(model, valid(), objective, parallel)
                scores = parallel.agree(parallel.score(metrics))
                log.add({"step": step, "valid_loss": value, "seconds": seconds} | scores)
                shown = "".join(f"  {name.replace('_', ' ')} {score:.1f}" for name, score in scores.items())
                line.say(f"step {step:>6}  validation loss {value:.4f}{shown}  {clock(state.seconds)}")
                state, better = state.validated(value, scores, config.select)
                if better:
                    parallel.publish(publish)
            if step % config.save_every == 0 or finished() or asked:
                state = state.scaled(scaler.state_dict())
                checkpoint.save(folder, parallel, optimizers, state)
                if parallel.chief:
                    checkpoint.prune(folder, keep=max(2, config.average))
            if asked and not finished():
                raise Interrupted(f"stopped at step {step}, everything is saved; go on with --resume")
    if memory := gauge.compare(objective, config):
        line.say(memory)
    with memory_errors(lambda: "the last validation", lower):
        if config.average > 1:
            checkpoint.average(checkpoint.saved(folder)[-config.average :], parallel)
        if config.average > 1 or valid is None:
            parallel.publish(publish)
        if config.average > 1 and valid is not None:
            return Fitted(state.step, state.seconds, evaluate(model, valid(), objective, parallel), state.step)
    return Fitted(state.step, state.seconds, state.best if state.best is not None else math.nan, state.best_step)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], objective: Objective, parallel: Parallel | None = None
) -> float:
    """The mean loss per token in evaluation mode, without label smoothing."""
    parallel = parallel or Parallel(model, objective)
    model.eval()
    loss, tokens = 0.0, 0
    for batch in batches:
        summed, count = parallel.loss(batch)
        loss, tokens = loss + summed.item(), tokens + count
    loss, tokens = parallel.sum(loss, tokens)
    return loss / max(1, tokens)


def check_finite(
    quantity: str, value: float, step: int, epoch: int, index: int, batch: Batch, observer: Observer, metrics: "Metrics"
) -> None:
    """Stops a run whose loss or gradient norm is not finite before it spoils weights or checkpoints."""
    if not math.isfinite(value):
        examples = ", ".join(map(str, batch.examples[:5])) + (" …" if len(batch.examples) > 5 else "")
        row, message = observer.explain(quantity, value, step, batch)
        if row:
            metrics.add(row, message)
        raise ValueError(
            f"the {quantity} is {value} at step {step} (epoch {epoch}, batch {index}, examples {examples}); "
            f"{message} and go on with --resume: the last checkpoint is untouched"
        )


class Speed:
    """Tokens per second over the last 50 steps."""

    def __init__(self) -> None:
        self.recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=50)

    def add(self, tokens: int) -> None:
        self.recent.append((time.monotonic(), tokens))

    @property
    def tokens(self) -> float:
        seconds = self.recent[-1][0] - self.recent[0][0]
        return sum(tokens for _, tokens in list(self.recent)[1:]) / max(seconds, 1e-9)


class Metrics:
    """`metrics.jsonl`: a row per step, and those of the observer. On resuming, rows past the checkpoint are dropped,
    since their steps are repeated."""

    def __init__(self, path: Path, step: int, writes: bool = True) -> None:
        self.past = [row for row in read_metrics(path) if row["step"] <= step] if step and path.exists() else []
        self.writes = writes
        if not writes:
            return
        draft = path.with_suffix(".draft")
        draft.write_text("".join(json.dumps(row) + "\n" for row in self.past))
        draft.replace(path)
        self.file, self.board = path.open("a", buffering=1), Board(path.parent)

    def add(self, row: Row, message: str = "") -> None:
        if not self.writes:
            return
        try:
            self.file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise OSError(
                f"could not write {self.file.name}: {error.strerror}; free some space, then --resume"
            ) from None
        self.board.add(row, message)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        if self.writes:
            self.file.close()
            self.board.close()


MOST_METRICS = 1 << 30
"""Most bytes of a metrics.jsonl that are read; a step takes about 100."""


def read_metrics(path: Path) -> list[Row]:
    """Return every complete row of metrics.jsonl; the last one may be cut short."""
    rows = []
    for text in read_bytes(path, MOST_METRICS).decode("utf-8", "replace").splitlines():
        with suppress(ValueError, RecursionError):  # of JSON, or for a number of thousands of digits
            rows.append(json.loads(text))
    return [row for row in rows if isinstance(row, dict)]


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Defers the first Ctrl-C or SIGTERM until the loop asks for it after a step; the second one interrupts at once."""
    received: list[int] = []

    def receive(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
