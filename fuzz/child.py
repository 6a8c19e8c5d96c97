"""The process in which inputs are tried, under a ceiling of memory and time: orders in, results out."""

import base64
import json
import os
import resource
import signal
import sys
import warnings
from importlib import import_module
from pathlib import Path

from fuzz.engine import MEMORY, Fuzzer, outcome, stop


def limit_memory() -> None:
    """Allow so much more address space than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        bound = pages * resource.getpagesize() + 3 * MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (bound, resource.RLIM_INFINITY))


def main() -> None:
    """Carry out orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what readers print is not looked at
    if "--loud" not in sys.argv:
        os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, stop)
    for line in sys.stdin:
        order = json.loads(line)
        if "data" in order:
            harness = import_module(f"fuzz.harnesses.{order['name']}")
            answers.write(json.dumps(outcome(harness, base64.b64decode(order["data"]))) + "\n")
            answers.flush()
            continue
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        current, kept, grown = (order[name] and Path(order[name]) for name in ("current", "kept", "grown"))
        fuzzer = Fuzzer(order["name"], order["seed"], current, kept, grown)
        for seed in fuzzer.seeds:
            fuzzer.harness.run(seed)  # imports what it needs before memory is counted
        limit_memory()
        answers.write(json.dumps(fuzzer.run(order["executions"], order["seconds"])) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
