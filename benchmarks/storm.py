"""A storm on `regard serve`: mixed requests, cancels, disconnects, evictions, SIGTERM; every answer is checked.

    pip install 'regard[serve,test]'
    python benchmarks/storm.py [--requests 100000] [--clients 16] [--minutes 60] [--seed 0] [--json]

Tiny models of every kind are served on loopback with room for about four of them. Each request is asked alone first;
then all clients ask at once, some leaving before or in the middle of an answer. Prints how many answers were equal,
refused or wrong, what the server still held at the end, and its memory after each tenth. Anything wrong is the exit
code 1.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from tests.serve.storm import make_served, storm

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        models, image = make_served(Path(folder))
        raging, end = storm(
            models, image, requests=arguments.requests, clients=arguments.clients, seconds=60 * arguments.minutes,
            seed=arguments.seed,
        )  # fmt: skip
    memory = raging.memory
    tenth = max(1, len(memory) // 10)
    early, late = (statistics.median(part) for part in (memory[tenth : 2 * tenth] or memory, memory[-tenth:]))
    result = {
        "requests": raging.outcomes.total(), "clients": arguments.clients,
        "seconds": round(time.monotonic() - begin, 1), "outcomes": dict(sorted(raging.outcomes.items())),
        "evictions": end["evictions"], "held at the end": end["held"], "after SIGTERM": end["ends"],
        "exit code": end["code"], "wrong": len(raging.wrong),
        "MB": [round(one / 1e6, 1) for one in memory[::tenth]], "memory change": round(late / early - 1, 4),
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print("\n".join(f"{name:16} {value}" for name, value in result.items()))
    if raging.wrong or end["held"] or end["code"]:
        raise SystemExit("\n".join(["wrong:", *raging.wrong[:10], end["log"][-2000:]]))


if __name__ == "__main__":
    main()
