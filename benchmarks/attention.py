"""Attention kernels against the packages that people install for them, in one interleaved run.

    pip install --no-deps performer-pytorch==1.1.4 linformer==0.2.3 reformer-pytorch==1.4.4 local-attention==1.11.2 \\
        einops axial-positional-embedding product-key-memory
    python benchmarks/attention.py [--lengths 4096 16384] [--rounds 5] [--json]

Both sides get the same q, k and v (8 heads of 64, batch 1) and settings that look at as many keys; where a package
only exists with its projections (linformer, reformer), ours has them too. Prints medians of forward and of forward +
backward, their ratio, and the peak of memory above the inputs, each in a process of its own.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from regard.bench.measure import forget_peak, give_back, held, in_child, peak
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import build_kernel
from regard.nn.masks import causal

H, K = 8, 64
D = H * K


def kernel(name: str, length: int, **how) -> Callable[..., Tensor]:
    module = build_kernel(name, heads=H, head_dim=K, max_len=length)
    return lambda q, k, v: module(q, k, v, **how)[0]


def layer(name: str, length: int, **how) -> Callable[..., Tensor]:
    config = AttentionConfig(dim=D, heads=H, kernel=name, max_len=length, bias=False)
    module = Attention(config)
    return lambda x: module(x, **how)


def local(length: int) -> tuple[Callable, Callable]:
    from local_attention import LocalAttention

    theirs = LocalAttention(window_size=128, causal=True, look_backward=1, look_forward=0, use_rotary_pos_emb=False)
    return kernel("window:radius=192", length, mask=causal()), theirs  # theirs: 129 to 256 keys


def performer(length: int) -> tuple[Callable, Callable]:
    from performer_pytorch import FastAttention

    theirs = FastAttention(dim_heads=K, nb_features=256, causal=False)
    return kernel("performer:features=256", length), theirs


def linformer(length: int) -> tuple[Callable, Callable]:
    from linformer import LinformerSelfAttention

    theirs = LinformerSelfAttention(dim=D, seq_len=length, heads=H, k=256, dim_head=K, one_kv_head=False)
    return layer("linformer:rank=256", length), theirs


def reformer(length: int) -> tuple[Callable, Callable]:
    from reformer_pytorch import LSHSelfAttention

    theirs = LSHSelfAttention(dim=D, heads=H, bucket_size=64, n_hashes=4, causal=True)
    return layer("reformer:buckets=64,reach=64,rounds=4", length, mask=causal()), theirs


PEERS = {"local-attention": local, "performer-pytorch": performer, "linformer": linformer, "reformer-pytorch": reformer}
PROJECTED = ("linformer", "reformer-pytorch")


def inputs(name: str, length: int) -> list[Tensor]:
    if name in PROJECTED:
        return [torch.randn(1, length, D, requires_grad=True)]
    return [torch.randn(1, length, H, K).transpose(1, 2).requires_grad_() for _ in "qkv"]


def passes(attend: Callable[..., Tensor], given: list[Tensor]) -> dict[str, Callable[[], None]]:
    def forward() -> None:
        with torch.no_grad():
            attend(*given)

    def training() -> None:
        attend(*given).sum().backward()
        for tensor in given:
            tensor.grad = None

    return {"forward": forward, "training": training}


def timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def race(name: str, length: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians in milliseconds: ours and theirs take turns."""
    given = inputs(name, length)
    both = [passes(attend, given) for attend in PEERS[name](length)]
    found: dict[str, dict[str, float]] = {}
    for kind in ("forward", "training"):
        times: list[list[float]] = [[], []]
        for turn in range(rounds + 1):
            for side, calls in enumerate(both):
                seconds = timed(calls[kind])
                if turn:  # the first is for warming up
                    times[side].append(1000 * seconds)
        ours, theirs = (statistics.median(each) for each in times)
        found[kind] = {"ours_ms": ours, "theirs_ms": theirs, "ratio": theirs / ours}
    return found


def highest(name: str, length: int, side: int, kind: str) -> float:
    """Megabytes above the inputs at the highest moment of one pass, after a small one has loaded everything."""
    passes(PEERS[name](256)[side], inputs(name, 256))[kind]()
    given = inputs(name, length)
    call = passes(PEERS[name](length)[side], given)[kind]
    give_back()
    forget_peak()
    before = held()
    call()
    return (peak() - before) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=[4096, 16384])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    for name in args.peers:
        for length in args.lengths:
            for kind, row in race(name, length, args.rounds).items():
                row["ours_mb"], row["theirs_mb"] = (in_child(highest, name, length, side, kind) for side in (0, 1))
                if args.json:
                    print(json.dumps({"peer": name, "length": length, "pass": kind} | row), flush=True)
                else:
                    speed = (
                        f"{row['ours_ms']:8.0f} ms, theirs {row['theirs_ms']:8.0f}: {row['ratio']:5.2f} times as fast"
                    )
                    space = f"{row['ours_mb']:6.0f} MB, theirs {row['theirs_mb']:6.0f}"
                    print(f"{name:18} {length:6} {kind:9} {speed}; {space}", flush=True)


if __name__ == "__main__":
    main()
