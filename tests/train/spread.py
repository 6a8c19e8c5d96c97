"""Trains small models of every family, in one process or as one of several: `python -m tests.train.spread TASKS OUT`.

A task is (family, case, optimizer, layout). The losses, gradient norms and the last weights' sum of each are written as
JSON, so that those of one process and of many can be compared.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.sets.batches import IGNORE, Batch
from regard.objectives.contrastive import image_text_contrast
from regard.objectives.labels import similarity
from regard.objectives.masked import masked_tokens
from regard.objectives.matching import matched_boxes
from regard.objectives.next_token import next_token
from regard.objectives.views import two_views
from regard.train import processes
from regard.train.config import TrainConfig
from regard.train.loop import fit, read_metrics
from tests.laws.cases import SMALL, example, has, make

STEPS = 3
EVEN: dict[str, Any] = dict(ffn_dim=30, depth=2, text_depth=2, text_ffn_dim=30, decoder_ffn_dim=30, decoder_depth=2)
"""Sizes that two processes can divide."""
HEADS: dict[str, Any] = dict(heads=4, text_heads=4, decoder_heads=4)
OWN: dict[str, dict[str, Any]] = {
    "swin": {}, "mvit": dict(heads=2), "cnn-attention": dict(dim=6, heads=2), "lr-net": {}, "captioner": dict(heads=2),
    "clip": HEADS | dict(dim=24, text_dim=16), "mae": HEADS | dict(dim=24, decoder_dim=20),
    "detr": HEADS | dict(dim=36, frozen=False, widths=(8, 12), blocks=(1, 1)),
}  # fmt: skip
"""Sizes of families whose heads are not HEADS of six numbers each."""
DROPS = dict(dropout=0.2, attention_dropout=0.1, ffn_dropout=0.1, path_dropout=0.2)


def changes(family: str, number: int) -> dict[str, Any]:
    """Fields of a family's small config that make it divisible, and that drop."""
    sizes = SMALL.get(family, [{}])[number]
    plain = dict(heads=4, head_dim=6) | (dict(kv_heads=2) if sizes.get("kv_heads") else {})
    fields = EVEN | OWN.get(family, plain) | DROPS
    if sizes.get("attention") == "edges":  # whose kernel drops no weights
        del fields["attention_dropout"]
    return {name: value for name, value in fields.items() if has(family, name)}


def outputs(model: Any, batch: Batch, *, smoothing: float = 0.0) -> tuple[Tensor, int]:
    """A loss of whatever a model returns, a sum over rows."""
    out = model(**batch.inputs)
    scale = torch.linspace(0.5, 1.5, out[0].numel(), dtype=out.dtype).view(out.shape[1:])
    return ((out - scale) ** 2).mean(tuple(range(1, out.dim()))).sum() if out.dim() > 1 else (out**2).sum(), len(out)


def texts(model: Any, rows: int, objective: Any) -> tuple[Any, list[Batch]]:
    """Batches of tokens with targets."""
    batches = []
    for count in (rows, rows - 2, 3):
        inputs = example(model, count)
        name = "target" if "target" in inputs else "ids"
        targets = torch.randint(model.config.vocab_size, inputs[name].shape)
        targets[torch.rand(targets.shape) < 0.3] = IGNORE
        targets[:, 0] = 1
        labels = torch.randint(2, (count,)) if getattr(model.config, "task", "") == "pretrain" else None
        batches.append(Batch(inputs, targets, tuple(range(count)), labels))
    return objective, batches


def twice(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """All texts, and below them others that mean the same."""
    return {name: torch.cat([value, value.roll(1, -1) if value.dim() > 1 else value]) for name, value in inputs.items()}


def problem(family: str, model: Any) -> tuple[Any, list[Batch]]:
    """An objective for a family, its own where it compares rows, and batches, of which one has one row."""
    if family in ("gpt", "transformer", "t5", "rnn", "gru", "lstm", "seq2seq"):
        return texts(model, 7, next_token)
    if family == "bert" and model.config.task in ("mask", "pretrain"):
        return texts(model, 7, masked_tokens)
    batches = []
    for count in (6, 5, 1):
        inputs = example(model, count)
        if family == "clip":
            batches.append(Batch(inputs, torch.rand(count, count) < 0.2, tuple(range(count))))
        elif family == "detr":
            targets = torch.rand(count, 3, 5) * 0.5 + 0.2
            targets[..., 0] = torch.randint(5, (count, 3))
            targets[count // 2 :, 2, 0] = IGNORE
            batches.append(Batch(inputs, targets.double(), tuple(range(count))))
        elif (family, len(getattr(model.config, "labels", "some"))) == ("vit", 0):
            both = {name: torch.cat([value, value + 0.1 * torch.randn_like(value)]) for name, value in inputs.items()}
            batches.append(Batch(both, torch.zeros(count), tuple(range(count))))
        else:
            batches.append(Batch(inputs, torch.zeros(count), tuple(range(count))))
    if family == "bert":
        return similarity, [
            Batch(twice(each.inputs), torch.ones(each.count).double(), each.examples) for each in batches
        ]
    if family == "vit" and not model.config.labels:
        return two_views, batches
    return {"clip": image_text_contrast, "detr": matched_boxes}.get(family, outputs), batches


class Fixed:
    """A stream of the same few batches."""

    def __init__(self, batches: list[Batch]) -> None:
        self.each = batches

    def batches(self, epoch: int = 0, index: int = 0) -> Any:
        while True:
            for position in range(index, len(self.each)):
                yield epoch, position + 1, self.each[position]
            epoch, index = epoch + 1, 0


def train(family: str, number: int, optimizer: str, layout: str, out: Path, **fields: Any) -> dict[str, Any]:
    """Train a small model; return what must not depend on the layout."""
    torch.manual_seed(7)
    model = make(family, number, **changes(family, number)).double()
    torch.manual_seed(8)
    objective, batches = problem(family, model)
    plan: dict[str, Any] = dict(steps=STEPS, warmup=2, lr=0.01, eval_every=2, save_every=2, accumulate=2, clip=0.5,
                                smoothing=0.0, watch=0, optimizer=optimizer, parallel=layout)  # fmt: skip
    resume = fields.pop("resume", False)
    out.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng():
        fit(model, Fixed(batches), lambda: batches, objective, TrainConfig(**plan | fields), out, publish=lambda: None,
            resume=resume, quiet=True)  # fmt: skip
    if processes.rank():
        return {}
    rows = read_metrics(out / "metrics.jsonl")
    return {name: [row[name] for row in rows if name in row] for name in ("loss", "norm", "valid_loss")}


def main(tasks: list[list[Any]], done: Path) -> None:
    """Train each task, and write a line for it."""
    torch.set_num_threads(1)
    for index, (family, number, optimizer, layout, *rest) in enumerate(tasks):
        fields = dict(rest[0]) if rest else {}
        folder = done.parent / fields.pop("out", f"{processes.count()}-{index}")
        processes.join()  # anew, since each group has threads of its own
        try:
            result = train(family, number, optimizer, layout, folder, **fields)
        except ValueError as error:  # of all processes alike, so that they go on together
            result = {"error": str(error)}
        if not processes.rank():
            with done.open("a") as file:
                file.write(json.dumps(result) + "\n")
        processes.leave()


def run(count: int, tasks: list[Any], folder: Path) -> list[dict[str, Any]]:
    """What so many processes make of tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    listed, done = folder / f"tasks-{count}.json", folder / f"done-{count}.jsonl"
    listed.write_text(json.dumps(tasks))
    done.unlink(missing_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command, started = [sys.executable, "-m", "tests.train.spread", str(listed), str(done)], []
    for rank in range(count):
        own = dict(WORLD_SIZE=str(count), RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        started.append(subprocess.Popen(command, env=os.environ | own, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate()[1] for process in started]
    assert not any(process.returncode for process in started), "\n".join(error[-3000:] for error in errors)
    return [json.loads(line) for line in done.read_text().splitlines()]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
