"""The processes of a run that `torchrun` started: how they find each other, agree, and fail in one line."""

import json
import os
import re
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_LOST = re.compile(r"connection (closed|reset|refused)|by peer|timed out", re.IGNORECASE)
_PATIENCE = 5.0
"""Seconds that the first process waits for the reason of another that was lost."""
_WAIT = 10.0
"""Seconds that another process waits for the first one, which may fail alike, or print the reason."""


_stores: list[Any] = []
"""Stores by which the processes find each other: that of the run, then one for each time that they joined."""


def count() -> int:
    """The number of processes of this run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The number of this process, 0 for the one that prints and writes."""
    return int(os.environ.get("RANK", "0"))


def goes_on(out: Path) -> bool:
    """Whether `torchrun --max-restarts` started these processes again, so that they go on with the run in `out`."""
    again = count() > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return again and (out / "recipe.toml").exists()


def join(device: str = "cpu") -> None:
    """Connect the processes of a run; nothing if they are connected already, or if there is only one."""
    if count() == 1 or dist.is_initialized():
        return
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise ValueError(
            f"WORLD_SIZE={count()} means several processes, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set; start them with torchrun, or unset WORLD_SIZE"
        )
    if not _stores:
        hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun itself
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None if hosted else count(),
            is_master=not hosted and rank() == 0, timeout=timedelta(minutes=5),
        )  # fmt: skip
        # Without a prefix of its own, a restarted group would read addresses of the one that died.
        _stores.append(dist.PrefixStore(f"regard/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store))
    _stores.append(dist.PrefixStore(str(len(_stores)), _stores[0]))  # nor may one that joins again
    backend = "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # which "cuda" means from here on
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=_stores[-1], rank=rank(), world_size=count())


def leave() -> None:
    """Disconnect from the other processes."""
    if dist.is_initialized():
        dist.destroy_process_group()


def report(message: str) -> bool:
    """Leave the reason of a failure for the first process, which prints it, and wait until it has done so: when this
    process ends, torchrun ends the others. Return False if it did not, so that this process has to."""
    if not dist.is_initialized() or not message:
        return True  # all processes fail alike, or another one says why
    store, until = _stores[0], time.monotonic() + _WAIT
    with suppress(RuntimeError):  # the first process has failed as well, and has ended
        store.set(f"failed/{rank()}", message)
        leave()
        while not store.check(["printed"]):
            if time.monotonic() > until:  # it waits for an answer of this process
                store.set("printed", "")
                return False
            time.sleep(0.1)
    return True


def printed() -> None:
    """Tell the other processes that the first one has printed why the run ends."""
    if dist.is_initialized():
        with suppress(RuntimeError):
            _stores[0].set("printed", "")


def reason(error: BaseException) -> str | None:
    """The reason that another process left, if this error is that the connection to it broke; else None."""
    if not dist.is_initialized() or not _LOST.search(str(error)):
        return None
    if rank():
        return ""  # the first process says why
    store = _stores[0]
    keys = [f"failed/{other}" for other in range(1, count())]
    for _ in range(int(_PATIENCE * 10)):
        if store.check(["printed"]):
            return ""
        for number, key in enumerate(keys, 1):
            if store.check([key]):
                return f"process {number}: {store.get(key).decode()}"
        time.sleep(0.1)
    return "another process was lost; with torchrun --max-restarts 3 the run goes on by itself, else by --resume"


def exchange(value: Any, group: Any = None) -> list[Any]:
    """Return the values of all processes, sent as JSON: a pickle could run code."""
    own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([len(own)]), group=group)
    room = own.new_zeros(int(max(sizes)))
    room[: len(own)] = own
    every = [torch.empty_like(room) for _ in sizes]
    dist.all_gather(every, room, group=group)
    return [json.loads(bytes(part[: int(size)].tolist())) for part, size in zip(every, sizes, strict=True)]


def check_alike(recipe: str) -> None:
    """Raise an error if the processes were started with recipes that differ; it names the first line that does."""
    if not dist.is_initialized():
        return
    every = exchange(recipe)
    for number, other in enumerate(every):
        if other != every[0]:
            lines = zip(every[0].splitlines(), other.splitlines(), strict=False)
            first, second = next((pair for pair in lines if pair[0] != pair[1]), ("it", "another"))
            raise ValueError(
                f"the processes disagree on the recipe: process 0 has {first}, process {number} has {second}; "
                "start all with the same command"
            )
