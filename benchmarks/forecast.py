"""Training steps of PatchTST beside those of Hugging Face's, interleaved, on the same weights and windows.

    pip install transformers
    python benchmarks/forecast.py                # ratios of CPU time: forward, backward and AdamW

Both have batch norms and a head that reads all patches, and no dropout. Seconds are those of the processor, so that
other programs matter less.
"""

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch
from torch import Tensor

from regard.hub import load_model

SIZES = {
    "small": dict(context_length=336, patch_length=16, patch_stride=8, d_model=32, num_attention_heads=4,
                  num_hidden_layers=2, ffn_dim=128, prediction_length=24),
    "paper": dict(context_length=336, patch_length=16, patch_stride=8, d_model=128, num_attention_heads=16,
                  num_hidden_layers=3, ffn_dim=256, prediction_length=96),
}  # fmt: skip
ROWS = 32
CHANNELS = {"small": 1, "paper": 7}


def seconds(model: Any, optimizer: torch.optim.Optimizer, series: Tensor, truth: Tensor, *, theirs: bool) -> float:
    """Processor seconds of a training step."""
    start = time.process_time()
    out = model(past_values=series).prediction_outputs if theirs else model(series)
    (out - truth).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.process_time() - start


def compare(name: str, rounds: int) -> None:
    """Print the ratio of times, theirs to ours, and the difference of the first forecasts."""
    import transformers

    shape: dict[str, Any] = dict(num_input_channels=CHANNELS[name], pooling_type=None, **SIZES[name])
    theirs = transformers.PatchTSTForPrediction(transformers.PatchTSTConfig(**shape))
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_model(folder)
    series = torch.randn(ROWS, shape["context_length"], CHANNELS[name]).cumsum(1)
    truth = torch.randn(ROWS, shape["prediction_length"], CHANNELS[name])
    with torch.no_grad():
        error = (ours(series) - theirs.eval()(past_values=series).prediction_outputs).abs().max().item()
    both = {True: theirs.train(), False: ours.train()}
    optimizers = {peer: torch.optim.AdamW(model.parameters(), lr=1e-4) for peer, model in both.items()}
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds + 2):
        for peer, model in both.items():
            times[peer].append(seconds(model, optimizers[peer], series, truth, theirs=peer))
    mine, other = (statistics.median(times[peer][2:]) for peer in (False, True))
    print(
        f"{name}: {ROWS} windows × {CHANNELS[name]} channels: ours {mine * 1e3:.1f} ms, theirs {other * 1e3:.1f} ms, "
        f"ratio {other / mine:.2f}, outputs differ by {error:.0e}", flush=True,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name in SIZES:
        compare(name, asked.rounds)


if __name__ == "__main__":
    main()
