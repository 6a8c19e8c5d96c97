"""Checks that train small models: marked slow in the ledger."""

import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.checks.base import build, check, numbers
from regard.data.sets.labelled_images import LabelledImages, digits
from regard.recipes import recipe
from regard.runs.fit import fit_job, prepare
from regard.tasks import load
from regard.train.progress import Line


@check
def beam_over_greedy(steps: int, beams: int = 4, phrases: int = 400) -> float:
    """Return by how much BLEU on held-out phrases is higher with beams than with greedy choice, of a translator that
    was trained for so many steps."""
    with tempfile.TemporaryDirectory() as folder, numbers(torch.float32):
        plan = recipe("translate", {"train.steps": steps, "train.eval_every": steps, "train.save_every": steps})
        fit_job(prepare(plan.data, plan, Path(folder), False, Line(True)), Path(folder), resume=False, quiet=True)
        translator: Any = load(folder)
        held_out = plan.data.split()[1][:phrases]
        beam, greedy = (translator.evaluate_pairs(held_out, beams=n).scores["bleu"] for n in (beams, 1))
    return beam - greedy


def tensors(images: LabelledImages) -> tuple[Tensor, Tensor]:
    """Return pixels from −1 to 1, and labels."""
    return torch.from_numpy(images.pixels).float().permute(0, 3, 1, 2) / 127.5 - 1, torch.from_numpy(images.labels)


def accuracy(model: Any, examples: int, seed: int, steps: int = 300) -> float:
    """Return the percentage of held-out digits that a model labels rightly after training on so many."""
    pixels, labels = tensors(digits("train").sample(examples, seed))
    others, truth = tensors(digits("test"))
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=2e-3, weight_decay=0.05)
    for _ in range(steps):
        rows = torch.randint(len(labels), (50,))
        loss = F.cross_entropy(model(pixels[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return 100 * (model.eval()(others).argmax(-1) == truth).double().mean().item()


@check
def cnn_over_vit(examples: int, seeds: int = 3) -> float:
    """Return by how many points a CNN labels held-out digits of 8 × 8 pixels better than a ViT, both trained on so
    many for 300 steps, the mean of three seeds."""
    sizes: dict[str, dict[str, Any]] = {
        "vit": dict(image=8, patch=2, channels=1, dim=48, depth=3, heads=4, ffn_dim=96, labels=tuple("0123456789")),
        "cnn-attention": dict(
            image=8, patch=1, channels=1, dim=24, depths=(1, 1), attention=0, labels=tuple("0123456789")
        ),
    }
    scores: dict[str, list[float]] = {name: [] for name in sizes}
    with numbers(torch.float32):
        for seed in range(seeds):
            for name, settings in sizes.items():
                torch.manual_seed(seed)
                scores[name].append(accuracy(build(name, **settings), examples, seed))
    return fmean(scores["cnn-attention"]) - fmean(scores["vit"])
