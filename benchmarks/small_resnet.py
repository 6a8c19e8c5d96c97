"""Train `regard train cnn-attention` and a plain small ResNet on the same images, each for the same CPU minutes.

    python benchmarks/small_resnet.py IMAGES.npz --minutes 10                both, one seed
    python benchmarks/small_resnet.py IMAGES.npz --minutes 10 --only resnet  one of them

IMAGES.npz holds x_train, y_train, x_test and y_test; x are bytes, grey or in colour. The ResNet has three stages of one
block, 16 to 64 channels, batches of 128, SGD 0.1 with momentum and a cosine, shifts by up to an eighth and flips; it
learns from all training images. Ours is the command with `--train.minutes` and nothing else: a tenth of the training
images is for validation. Both count the CPU time of this process, on one thread, so that a busy machine takes from
neither; a line of JSON for each has its score on the test images and its CPU seconds, start and scoring included.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from regard.eval.scores import evaluate
from regard.recipes import fit, recipe

BATCH, RATE = 128, 0.1


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(after) for _ in range(2))
        self.short = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.short(x))


def resnet(channels: int, labels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, labels),
    )  # fmt: skip


def varied(x: Tensor, rng: np.random.Generator) -> Tensor:
    """The images, half of them mirrored, each shifted by up to an eighth of its side."""
    x = torch.where(torch.from_numpy(rng.random(len(x)) < 0.5)[:, None, None, None], x.flip(3), x)
    side, most = x.shape[2:], x.shape[2] // 8
    wide = F.pad(x, (most,) * 4)
    tops, lefts = rng.integers(0, 2 * most + 1, (2, len(x)))
    shifted = [
        row[:, top : top + side[0], left : left + side[1]] for row, top, left in zip(wide, tops, lefts, strict=True)
    ]
    return torch.stack(shifted)


def train_resnet(sets: dict[str, np.ndarray], minutes: float, seed: int) -> tuple[float, int]:
    """The accuracy in percent, and the steps."""
    started = time.process_time()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x = {part: sets[f"x_{part}"].reshape(*sets[f"x_{part}"].shape[:3], -1) for part in ("train", "test")}
    mean, std = x["train"].mean((0, 1, 2)) / 255, x["train"].std((0, 1, 2)) / 255
    pixels = {
        part: torch.from_numpy(((v / 255 - mean) / std).astype(np.float32)).movedim(3, 1) for part, v in x.items()
    }
    labels = {part: torch.from_numpy(sets[f"y_{part}"].astype(np.int64)) for part in x}
    model = resnet(len(mean), int(labels["train"].max()) + 1).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    step = 0
    while True:
        order = torch.from_numpy(rng.permutation(len(pixels["train"])))
        for chosen in order[: len(order) // BATCH * BATCH].split(BATCH):
            used = (time.process_time() - started) / (60 * minutes)
            if used >= 1:
                model.eval()
                with torch.inference_mode():
                    right = [model(part).argmax(1) for part in pixels["test"].split(500)]
                return 100 * (torch.cat(right) == labels["test"]).float().mean().item(), step
            optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * used)) / 2
            batch = varied(pixels["train"][chosen], rng).contiguous(memory_format=torch.channels_last)
            F.cross_entropy(model(batch), labels["train"][chosen]).backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1


def train_regard(images: Path, minutes: float, seed: int, more: dict[str, Any]) -> tuple[float, int]:
    """The accuracy in percent, and the steps."""
    out = Path(tempfile.mkdtemp()) / "run"
    fields = {"data.images": str(images), "train.minutes": minutes, "train.seed": seed} | more
    fitted = fit(recipe("cnn-attention", fields), out, quiet=True)
    return evaluate(out, {}).scores["accuracy"], fitted.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--only", choices=("regard", "resnet"))
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="fields of ours, for trials")
    args = parser.parse_args()
    torch.set_num_threads(1)
    time.monotonic = time.process_time  # --train.minutes counts these
    with np.load(args.images) as stored:
        sets = dict(stored)
    for seed in args.seeds:
        for by in (args.only,) if args.only else ("resnet", "regard"):
            started = time.process_time()
            if by == "resnet":
                score, steps = train_resnet(sets, args.minutes, seed)
            else:
                score, steps = train_regard(args.images, args.minutes, seed, dict(one.split("=") for one in args.set))
            row = {"by": by, "seed": seed, "score": round(score, 2), "steps": steps}
            print(json.dumps(row | {"cpu": round(time.process_time() - started)}), flush=True)


if __name__ == "__main__":
    main()
