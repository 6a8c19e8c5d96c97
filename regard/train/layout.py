"""Layouts: the way in which the processes of a run share its work, such as `data`, or `shard=4,tensor=2`."""

from dataclasses import asdict, dataclass

from regard.config import nearest

KINDS = ("data", "shard", "tensor", "pipeline")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The number of processes by what they share; their product is the number of all."""

    data: int = 1
    """Each has all weights and some rows of every batch."""
    shard: int = 1
    """Each has a part of every weight, and some rows of every batch."""
    tensor: int = 1
    """Each has some heads and hidden units of every block, and all rows."""
    pipeline: int = 1
    """Each has some blocks, through which the rows of all pass."""

    @property
    def rows(self) -> int:
        """Processes among which the rows of a batch are divided."""
        return self.data * self.shard * self.pipeline


def parse(text: str, processes: int | None = None) -> Layout:
    """The layout in words, for so many processes; a mistake is an error with the cure."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        kind, equals, size = part.strip().partition("=")
        if kind not in KINDS:
            raise ValueError(f"parallel={text}: there is no {kind!r}; {nearest(kind, KINDS)}")
        if kind in sizes:
            raise ValueError(f"parallel={text} names {kind} twice; name it once")
        if equals and not (size.isdecimal() and int(size) > 0):
            raise ValueError(f"parallel={text}: {size!r} is no number of processes; write {kind}=2")
        if not equals and "," in text:
            raise ValueError(f"parallel={text}: say how many processes of each, {kind}=2")
        sizes[kind] = int(size) if equals else processes or 1
    layout = Layout(**sizes)
    wanted = layout.rows * layout.tensor
    if processes is not None and wanted != processes:
        raise ValueError(
            f"parallel={text} is for {wanted} processes, this run has {processes}; start it with "
            f"torchrun --nproc-per-node {wanted}, or choose numbers whose product is {processes}"
        )
    if layout.pipeline > 1 and (layout.shard > 1 or layout.tensor > 1):
        raise ValueError(f"parallel={text}: pipeline goes with data alone; leave out the other")
    return layout


def describe(layout: Layout) -> str:
    """The layout as it is written."""
    return ",".join(f"{kind}={size}" for kind, size in asdict(layout).items() if size > 1) or "data=1"
