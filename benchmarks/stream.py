"""Training from disk beside training from memory: images per second in interleaved rounds, and peak memory.

    python benchmarks/stream.py [--images 200000] [--side 256] [--rounds 8] [--steps 20] [--folder DIR] [--json]

Writes so many JPEG files (kept in DIR if one is given, and found there again), then trains one small ViT twice: its
images are read from disk in one process, and lie in memory in another. The two take turns of some steps each, in an
order that changes; what counts is the ratio, round by round (its median, and the middle half of the rounds). The one in
memory holds a tenth of the images, again and again, where all of them would not fit. Peak memory is that of the whole
process that reads from disk, with its interpreter, PyTorch and model.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = 10


def write_images(folder: Path, count: int, side: int) -> None:
    """Write JPEG files of gratings, a direction a class: few are encoded, each file is one of them with its own comment
    segment, so that no two are equal."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:side, :side] / side
    bases: dict[int, list[bytes]] = {}
    for label in range(CLASSES):
        angle = np.pi * label / CLASSES
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        for _ in range(20):
            wave = np.sin(2 * np.pi * rng.uniform(4, 12) * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))
            pixels = 127 + 80 * wave[..., None] * rng.uniform(0.3, 1, 3) + rng.normal(0, 12, (side, side, 3))
            file = BytesIO()
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
            bases.setdefault(label, []).append(file.getvalue())
    for number in range(count):
        label = number % CLASSES
        base, note = bases[label][number // CLASSES % 20], f"{number:012}".encode()
        segment = b"\xff\xfe" + (len(note) + 2).to_bytes(2, "big") + note  # after the two bytes that open every JPEG
        (folder / str(label) / f"{number:07}.jpg").write_bytes(base[:2] + segment + base[2:])


def trained(pipe: Connection, folder: str, memory: float, share: float, steps: int) -> None:
    """Train in a process of its own: for every message, some steps and their images per second."""
    import torch

    from regard.data.sets.labelled_images import ImagesConfig
    from regard.models import build
    from regard.objectives.labels import text_labels
    from regard.recipes import recipe
    from regard.runs.fit import prepare
    from regard.train.progress import Line

    if share < 1:
        whole = ImagesConfig.files
        ImagesConfig.files = lambda self, source: whole(self, source)[:: round(1 / share)]  # type: ignore[method-assign]
    plan = recipe("vit", {"data.images": folder, "data.memory": memory})
    started = time.perf_counter()
    job = prepare(plan.data, plan, Path(folder), False, Line(quiet=True))
    seconds = time.perf_counter() - started
    torch.manual_seed(0)
    model: Any = build(job.recipe.family, job.recipe.model)
    optimizer, batches = torch.optim.AdamW(model.parameters(), lr=1e-3), job.stream.batches()
    pixels = job.stream.images.pixels  # type: ignore[attr-defined]
    pipe.send({"kind": type(pixels).__name__, "images": len(pixels), "shape": pixels.shape[1:], "seconds": seconds})
    while pipe.recv():
        started, images = time.perf_counter(), 0
        for _ in range(steps):
            _, _, batch = next(batches)
            loss, count = text_labels(model, batch, smoothing=0.1)
            (loss / count).backward()
            optimizer.step()
            optimizer.zero_grad()
            images += batch.tokens
        pipe.send(images / (time.perf_counter() - started))
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)  # kilobytes on Linux


def measure(folder: Path, rounds: int, steps: int, share: float) -> dict[str, Any]:
    """The speeds from disk and from memory, round by round."""
    context = multiprocessing.get_context("spawn")
    sides: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for name, memory, part in (("disk", 0.0, 1.0), ("memory", 1000.0, share)):
        here, there = context.Pipe()
        context.Process(target=trained, args=(there, str(folder), memory, part, steps), daemon=True).start()
        sides[name], about[name] = here, here.recv()
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):  # the first round is for warming up
        for name in sorted(sides, reverse=number % 2 == 1):
            sides[name].send(True)
            rates[name].append(sides[name].recv())
    peaks = {}
    for name, pipe in sides.items():
        pipe.send(False)
        peaks[name] = pipe.recv()
    ratios = sorted(a / b for a, b in zip(rates["disk"][1:], rates["memory"][1:], strict=True))
    return {
        "about": about, "images_per_second": {n: statistics.median(r[1:]) for n, r in rates.items()},
        "ratio": statistics.median(ratios), "middle_half": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
        "peak_gib": peaks,
    }  # fmt: skip


def main() -> None:
    """Write the images, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.folder or Path(temporary)) / f"{args.images}x{args.side}"
        if not folder.exists():
            draft = folder.with_suffix(".draft")
            write_images(draft, args.images, args.side)
            draft.rename(folder)
        result = measure(folder, args.rounds, args.steps, share=min(1.0, 20_000 / args.images))
    if args.json:
        print(json.dumps(result))
        return
    rates, peaks, half = result["images_per_second"], result["peak_gib"], result["middle_half"]
    print(f"{args.images:,} JPEG files of {args.side}², decoded in {result['about']['disk']['seconds']:.0f} s")
    print(f"images/s     from disk {rates['disk']:.0f}, from memory {rates['memory']:.0f}")
    print(f"ratio        {result['ratio']:.3f} ({half[0]:.3f} to {half[1]:.3f})")
    print(f"peak memory  from disk {peaks['disk']:.2f} GiB, from memory {peaks['memory']:.2f} GiB")


if __name__ == "__main__":
    main()
