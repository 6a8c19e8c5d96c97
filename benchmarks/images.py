"""Forward speed on images beside Hugging Face's `transformers`, with the same weights, in one interleaved run.

    python benchmarks/images.py [vit-s/16] [swin-t] [--batch 1 8] [--rounds 60] [--json]

`transformers` makes a model of the shape with random weights and writes it; both sides load that directory, and their
outputs must agree. Everyone makes one pass in every round, in an order that changes, so a noisy machine disturbs
all alike and nobody always follows the same one; what counts is the ratio, round by round (its median, and the middle
half of the rounds). "regard int8" has int8 matrices; `regard eval RUN --quantize int8` measures what that costs
in accuracy on a trained model.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from regard.hub.checkpoint import load_model
from regard.native.quantized import quantize

SHAPES = ("vit-s/16", "swin-t")
LABELS = 1000
SIDE = 224


def transformers_model(shape: str) -> Any:
    """A published shape with random weights."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    labels: dict[str, Any] = dict(num_labels=LABELS)
    if shape == "vit-s/16":
        sizes: dict[str, Any] = dict(
            hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536
        )
        return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **labels))
    return transformers.SwinForImageClassification(transformers.SwinConfig(**labels))


def contestants(shape: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """Functions of the same network by transformers, Regard, and Regard with int8 weights."""
    theirs = transformers_model(shape).eval()
    with tempfile.TemporaryDirectory() as directory:
        theirs.save_pretrained(directory)
        ours, whole = load_model(directory).eval(), quantize(load_model(directory), "int8")
    return {"transformers": lambda x: theirs(x).logits, "regard": ours, "regard int8": whole}


def rate(function: Callable[[Tensor], Tensor], pixels: Tensor) -> float:
    """Images per second of one pass."""
    start = time.perf_counter()
    function(pixels)
    return len(pixels) / (time.perf_counter() - start)


@torch.inference_mode()
def measure(shape: str, batches: list[int], rounds: int) -> Iterator[dict[str, Any]]:
    """Yields the speeds for each batch size."""
    sides = contestants(shape)
    for batch in batches:
        pixels = torch.randn(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
        outputs = {name: function(pixels) for name, function in sides.items()}
        wanted = outputs["transformers"]
        away = {name: ((out - wanted).norm() / wanted.norm()).item() for name, out in outputs.items()}
        if away["regard"] > 1e-4:
            raise SystemExit(f"{shape}: the outputs differ by {away['regard']:.1e} of their size")
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for _, order in zip(range(rounds), itertools.cycle(itertools.permutations(sides)), strict=False):
            for name in order:
                rates[name].append(rate(sides[name], pixels))
        ratios = {name: [a / b for a, b in zip(rates[name], rates["transformers"], strict=True)] for name in sides}
        yield {
            "shape": shape, "batch": batch, "images_per_second": {n: statistics.median(r) for n, r in rates.items()},
            "ratio": {n: statistics.median(r) for n, r in ratios.items()},
            "ratios": {n: statistics.quantiles(r, n=4)[::2] for n, r in ratios.items()}, "away": away,
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=[], choices=[[], *SHAPES], metavar="SHAPE")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for shape in options.shapes or SHAPES:
        for row in measure(shape, options.batch, options.rounds):
            if options.json:
                print(json.dumps(row), flush=True)
                continue
            print(f"{shape}, {SIDE} × {SIDE}, batch {row['batch']}, {torch.get_num_threads()} threads", flush=True)
            for name, speed in row["images_per_second"].items():
                low, high = row["ratios"][name]
                ratio = f"{row['ratio'][name]:.2f}× ({low:.2f} … {high:.2f})"
                print(f"  {name:14} {speed:7.1f} images/s   {ratio}   away {row['away'][name]:.1e}", flush=True)


if __name__ == "__main__":
    main()
