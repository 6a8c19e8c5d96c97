"""Attention along edges beside TransformerConv of PyTorch Geometric, interleaved; and a training step of a large graph.

    pip install torch_geometric
    python benchmarks/graphs.py                 # ratios of CPU time, forward and backward, on the same weights
    python benchmarks/graphs.py --memory        # a step of a whole model on 50,000 nodes and 500,000 edges

Each layer projects queries, keys and values, attends along the same random edges, and adds nothing else. Seconds are
those of the processor, so that other programs matter less. Ours sorts the edges anew in each call.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from regard import Attention, AttentionConfig
from regard.nn.masks import neighbours

SIZES = ((1_000, 5_000), (5_000, 50_000), (20_000, 200_000))
HEADS, HEAD = 4, 16


def layers(dim: int) -> tuple[Attention, nn.Module]:
    """Both layers with the same weights."""
    from torch_geometric.nn import TransformerConv

    theirs = TransformerConv(dim, HEAD, heads=HEADS, root_weight=False)
    ours = Attention(AttentionConfig(dim=dim, heads=HEADS, head_dim=HEAD, kernel="edges"))
    ours.query.load_state_dict(theirs.lin_query.state_dict())
    both = [theirs.lin_key, theirs.lin_value]
    ours.key_value.load_state_dict({name: torch.cat([getattr(x, name) for x in both]) for name in ("weight", "bias")})
    ours.out = nn.Identity()  # type: ignore[assignment]
    return ours, theirs


def seconds(step: Callable[[], object]) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def compare(rounds: int) -> None:
    """Print the ratio of times, theirs to ours, for graphs of several sizes."""
    for count, size in SIZES:
        x = torch.randn(count, HEADS * HEAD)
        edges = torch.unique(torch.randint(count, (2, size)), dim=1)
        pairs, (ours, theirs) = edges.flip(0).T[None].contiguous(), layers(HEADS * HEAD)
        steps = {"ours": lambda: ours(x[None], mask=neighbours(pairs)), "theirs": lambda: theirs(x, edges)}  # noqa: B023
        error = (ours(x[None], mask=neighbours(pairs))[0] - theirs(x, edges)).abs().max().item()
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds + 1):
            for name, step in steps.items():
                times[name].append(seconds(lambda: step().square().mean().backward()))  # noqa: B023
        mine, other = (statistics.median(times[name][1:]) for name in steps)
        print(
            f"{count:7,} nodes {edges.shape[1]:8,} edges: ours {mine * 1e3:7.1f} ms, theirs {other * 1e3:7.1f} ms, "
            f"ratio {other / mine:.2f}, outputs differ by {error:.0e}", flush=True,
        )  # fmt: skip


def large(count: int = 50_000, size: int = 500_000) -> None:
    """Print the memory of a training step of a whole model on one large graph."""
    from regard.models import build, preset

    config = preset("graph-transformer", "tiny", attention="edges", encodings=("degree",), level="nodes",
                    node_features=16, labels=tuple("abcd"))  # fmt: skip
    model = build("graph-transformer", config)
    edges = torch.randint(count, (1, size, 2))
    inputs = {"nodes": torch.randn(1, count, 16), "lengths": torch.tensor([count]), "edges": edges,
              "links": torch.zeros(1, size, 0)}  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        taken = time.process_time()
        loss = nn.functional.cross_entropy(model(**inputs)[0], torch.randint(4, (count,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{count:,} nodes, {size:,} edges: {peak:.2f} GiB at most ({before:.2f} before), "
          f"{time.process_time() - taken:.1f} s of CPU a step")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="measure a step of a large graph instead")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    large() if asked.memory else compare(asked.rounds)


if __name__ == "__main__":
    main()
