"""Inference of VideoMAE, TimeSformer and ViViT beside `transformers`, interleaved, on the same weights.

    python benchmarks/video.py [--dim 384 --depth 12 --rounds 5]

Each model reads one clip of 224 × 224 pixels, VideoMAE and ViViT 16 frames, TimeSformer 8, with random weights. Seconds
are those of the processor, so that other programs matter less; `transformers` runs as it loads by default. Ours runs
with weights of int8, too.
"""

import argparse
import copy
import statistics
import tempfile
import time
from typing import Any

import torch

from regard.hub import load_model
from regard.native import quantized

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "videomae": ("VideoMAE", dict(num_frames=16)),
    "timesformer": ("Timesformer", dict(num_frames=8)),
    "vivit": ("Vivit", dict(num_frames=16)),
}


def both(kind: str, dim: int, depth: int) -> tuple[Any, Any]:
    """Their model with random weights, and ours with the same ones."""
    import transformers

    name, sizes = KINDS[kind]
    sizes = sizes | dict(hidden_size=dim, num_hidden_layers=depth, num_attention_heads=dim // 64, num_labels=400)
    config = getattr(transformers, f"{name}Config")(intermediate_size=4 * dim, **sizes)
    theirs = getattr(transformers, f"{name}ForVideoClassification")(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return load_model(folder).eval(), theirs


@torch.inference_mode()
def compare(kind: str, dim: int, depth: int, rounds: int) -> None:
    """Print the ratio of times, theirs to ours."""
    ours, theirs = both(kind, dim, depth)
    clip = torch.randn(1, KINDS[kind][1]["num_frames"], 3, 224, 224)
    whole = quantized.quantize(copy.deepcopy(ours), "int8")
    steps = {
        "ours": lambda: ours(clip),
        "int8": lambda: whole(clip),
        "theirs": lambda: theirs(pixel_values=clip).logits,
    }
    error = (steps["ours"]() - steps["theirs"]()).abs().max().item()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    mine, less, other = (statistics.median(times[name]) for name in steps)
    seconds = (
        f"ours {mine:6.3f} s, theirs {other:6.3f} s, ratio {other / mine:.2f}, int8 {less:6.3f} s, {other / less:.2f}"
    )
    print(f"{kind:12} {seconds}, logits differ by {error:.0e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for kind in KINDS:
        compare(kind, asked.dim, asked.depth, asked.rounds)


if __name__ == "__main__":
    main()
