"""The command in a process forked from one that has imported everything already."""

import os
import sys


def work(words: list[str], before: str, environment: dict[str, str], log: str) -> None:
    """Run `regard` with these arguments; its output goes to a file. `before` is Python that runs first."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.update(environment)
    sys.argv = ["regard", *words]
    exec(before, {})
    from regard.cli import main

    main()
