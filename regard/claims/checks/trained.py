"""Checks that train small models: marked slow in the ledger."""

from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.claims.checks.base import build, check, numbers
from regard.data.sets.labelled_images import LabelledImages, digits
from regard.decode.batch import beam_search


def tensors(images: LabelledImages) -> tuple[Tensor, Tensor]:
    """Return pixels from −1 to 1, and labels."""
    return torch.from_numpy(images.pixels).float().permute(0, 3, 1, 2) / 127.5 - 1, torch.from_numpy(images.labels)


def accuracy(model: Any, examples: int, seed: int, steps: int = 150) -> float:
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
def lead_with_few(few: int, many: int) -> float:
    """Return by how many points more a CNN leads before a ViT with few training images than with many, on held-out
    digits of 8 × 8 pixels after 150 steps, the mean of two seeds."""
    return cnn_over_vit(few) - cnn_over_vit(many)


def cnn_over_vit(examples: int, seeds: int = 2) -> float:
    """Return by how many points a CNN labels held-out digits of 8 × 8 pixels better than a ViT, both trained on so
    many for 150 steps, the mean of two seeds."""
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


def reversed_letters(rows: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return letters, and the input and target of a decoder that writes them in reverse; 0 begins."""
    source = torch.randint(1, 20, (rows, length))
    target = source.flip(1)
    return source, torch.cat([torch.zeros(rows, 1, dtype=torch.long), target[:, :-1]], dim=1), target


def trained_to_reverse(family: str, length: int, steps: int, **settings: Any) -> Any:
    """Return a model that was trained to write so many letters in reverse."""
    model = build(family, vocab_size=20, dropout=0.0, **settings)
    optimizer, lengths = torch.optim.Adam(model.parameters(), lr=3e-3), torch.full((64,), length)
    for _ in range(steps):
        source, inputs, target = reversed_letters(64, length)
        loss = F.cross_entropy(model(source, lengths, inputs).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@check
def gain_of_attention(length: int) -> float:
    """Return by how many points a recurrent encoder–decoder writes so many letters in reverse better with attention
    than through one vector, both trained for 200 steps."""
    scores = []
    with numbers(torch.float32):
        for score in ("additive", "none"):
            torch.manual_seed(0)
            model = trained_to_reverse("seq2seq", length, 200, dim=64, score=score)
            source, inputs, target = reversed_letters(200, length)
            with torch.no_grad():
                right = model(source, torch.full((200,), length), inputs).argmax(-1) == target
            scores.append(100 * right.double().mean().item())
    return scores[0] - scores[1]


@check
def beam_over_greedy(what: str, beams: int = 4, length: int = 8, seeds: int = 2) -> float:
    """Return what beams gain over greedy choice where a small Transformer, after 100 steps, writes letters in reverse,
    the mean of two seeds: log-probability of a letter, or points of sequences without a mistake."""
    gains = []
    with numbers(torch.float32):
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = trained_to_reverse("transformer", length, 100, dim=48, depth=1, heads=4, ffn_dim=96)
            source, _, target = reversed_letters(300, length)
            rest: Any = dict(source=source, lengths=torch.full((300,), length), max_len=length, eos=())
            found = [beam_search(model, torch.zeros(300, 1, dtype=torch.long), beams=n, **rest) for n in (beams, 1)]
            if what == "probability":
                gains.append(fmean(best[0].score - greedy[0].score for best, greedy in zip(*found, strict=True)))
            else:
                right = [
                    fmean(best[0].ids == row for best, row in zip(each, target.tolist(), strict=True)) for each in found
                ]
                gains.append(100 * (right[0] - right[1]))
    return fmean(gains)
