"""Time and memory of one more token behind a short and a long context, with each kernel; the contexts take turns.

python benchmarks/constant_decoding.py [--kernels linear performer window full] [--contexts 100 10000] [--rounds 400]
"""

import argparse
import statistics
import time

import torch

from regard.models import GPT, GPTConfig
from regard.nn.cache import Cache


def stored(cache: Cache) -> int:
    """Bytes that the cache's tensors fill."""
    tensors = [value for layer in cache.own for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", default=["linear", "performer", "window", "full"])
    parser.add_argument("--contexts", nargs=2, type=int, default=[100, 10_000])
    parser.add_argument("--rounds", type=int, default=400)
    args = parser.parse_args()
    for name in args.kernels:
        config = GPTConfig(vocab_size=256, dim=256, depth=4, heads=4, ffn_dim=1024, kernel=name, max_len=12_000)
        model = GPT(config).eval()
        caches, times = [], [[], []]
        for context in args.contexts:
            caches.append(model.new_cache(context + args.rounds))
            model.prefill(torch.randint(256, (1, context)), caches[-1])
        token = torch.tensor([7])
        for _ in range(args.rounds):
            for cache, kept in zip(caches, times, strict=True):
                began = time.perf_counter()
                model.step(token, cache)
                kept.append(time.perf_counter() - began)
        short, long = (1000 * statistics.median(kept) for kept in times)
        sizes = " and ".join(f"{stored(cache) / 1e6:.2f}" for cache in caches)
        contexts = " and ".join(f"{context:,}" for context in args.contexts)
        print(
            f"{name:10} {short:.3f} and {long:.3f} ms a token behind {contexts} ({long / short:.2f}); cache {sizes} MB"
        )


if __name__ == "__main__":
    main()
