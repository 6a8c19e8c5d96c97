"""Groups of processes, forked from one that imported all there is: `python -m tests.train.groups kills|mistakes OUT …`.

A fork takes no time to start, so that many groups can live and die in a test.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import regard.eval.report
import regard.recipes
import regard.train.distributed  # noqa: F401  before the forks
from regard.cli import base, main
from regard.data.sets.batches import Batch
from regard.train import processes
from regard.train.loop import read_metrics
from tests.train.spread import train

PATIENCE = 120
"""Seconds after which a group that has not ended hangs."""
FEW = ("train", "lm", "--data.text", "TEXT", "--data.kind", "char", "--model.dim", "16", "--model.depth", "2",
       "--model.heads", "2", "--model.ffn-dim", "24", "--train.steps", "4", "--train.batch-tokens", "128",
       "--train.warmup", "1", "--no-score")  # fmt: skip


_stores: list[Any] = []


def start(count: int, work: Callable[[int], Any], folder: Path) -> list[int]:
    """Fork the processes of a group; each has its number, and files for what it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    store = dist.TCPStore("127.0.0.1", 0, None, is_master=True)  # as torchrun has it, which outlives the group
    _stores.append(store)
    children = []
    for rank in range(count):
        if child := os.fork():
            children.append(child)
            continue
        code = 70
        try:
            os.environ |= dict(
                WORLD_SIZE=str(count), RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port)
            )
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
            base.MANY = count > 1
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(folder / f"{name}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            work(rank)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return children


def ended(children: list[int]) -> list[int]:
    """The exit codes of a group, which are negative for signals; an error if it does not end."""
    codes: dict[int, int] = {}
    until = time.monotonic() + PATIENCE
    while len(codes) < len(children):
        for child in [child for child in children if child not in codes]:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                codes[child] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            for child in [child for child in children if child not in codes]:
                os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"processes {[children.index(c) for c in children if c not in codes]} do not end")
        time.sleep(0.01)
    return [codes[child] for child in children]


# ---- a random process is killed, again and again ------------------------------------------------------------------

LIVES = [(2, "data"), (2, "shard"), (2, "tensor"), (2, "pipeline"), (3, "data"), (3, "shard"), (4, "shard=2,tensor=2"),
         (4, "data=2,pipeline=2"), (1, "data")]  # fmt: skip
"""Numbers of processes and layouts that a run goes on with."""


def rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kills(out: Path, count: int = 20, steps: int = 120) -> dict[str, Any]:
    """Train one run in many lives, each ended by a kill of a random process, and once unbroken; return both losses."""
    rng, seen, report = random.Random(5), out / "run" / "metrics.jsonl", []
    for life in range(count + 1):
        number, layout = LIVES[life % len(LIVES)] if life < count else (2, "data")

        def work(rank: int, layout: str = layout) -> None:
            processes.join()
            train("gpt", 0, "muon", layout, out / "run", steps=steps, resume=True)

        before, most = rows(seen), time.monotonic() + PATIENCE
        children = start(number, work, out / f"life-{life}")
        if life < count:
            wanted = before + rng.randint(1, 9)
            while rows(seen) < wanted and time.monotonic() < most:
                time.sleep(0.002)
            victim = rng.randrange(number)
            os.kill(children[victim], signal.SIGKILL)
            codes = ended(children)
            assert codes[victim] == -signal.SIGKILL, f"life {life} was over: {codes}"
            report.append([number, layout, victim, codes, before])
        else:
            assert ended(children) == [0] * number, (out / f"life-{life}" / "err-0").read_text()
    train("gpt", 0, "muon", "data", out / "whole", steps=steps)
    losses = {}
    for name in ("run", "whole"):
        found = read_metrics(out / name / "metrics.jsonl")
        losses[name] = {
            field: [row[field] for row in found if field in row] for field in ("loss", "valid_loss", "norm")
        }
    return {"lives": report, "losses": losses}


# ---- mistakes -----------------------------------------------------------------------------------------------------


def mistakes(out: Path, *names: str) -> dict[str, Any]:
    """Commands with a mistake, all or some by name, by two processes: their exit codes, and what each printed on
    stderr."""
    (out / "text.txt").write_text("the red cat sees a black dog in may. " * 60)

    def full(self: Batch, device: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 12884901888 bytes.")

    def here(rank: int, *words: str, fills: bool = False) -> None:
        if fills:
            Batch.to = full  # type: ignore[method-assign]
        few = [str(out / "text.txt") if word == "TEXT" else word for word in FEW]
        sys.argv = ["regard", *few, *words, "--out", str(own)]
        main()

    cases: dict[str, Callable[[int], None]] = {
        "fine": lambda rank: here(rank),
        "heads": lambda rank: here(rank, "--train.parallel", "tensor", "--model.heads", "1"),
        "product": lambda rank: here(rank, "--train.parallel", "shard=2,tensor=2"),
        "device": lambda rank: here(rank, "--train.device", "cuda"),
        "budget": lambda rank: here(rank, "--train.steps", "0"),
        "minutes": lambda rank: here(rank, "--train.minutes", "0"),
        "disagree": lambda rank: here(rank, "--train.lr", f"0.00{rank + 1}"),
        "file": lambda rank: here(rank, "--data.text", "none.txt"),
        "memory": lambda rank: here(rank, fills=True),
        "memory of one": lambda rank: here(rank, fills=rank == 1),
    }
    results = {}
    for name, work in cases.items():
        if names and name not in names:
            continue
        own = out / f"run-{name}"
        begin, folder = time.monotonic(), out / name
        codes = ended(start(2, work, folder))
        printed = [(folder / f"err-{rank}").read_text() for rank in (0, 1)]
        results[name] = {"codes": codes, "printed": printed, "seconds": round(time.monotonic() - begin, 1)}
    return results


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    result = {"kills": kills, "mistakes": mistakes}[sys.argv[1]](folder, *sys.argv[3:])
    (folder / "result.json").write_text(json.dumps(result))
