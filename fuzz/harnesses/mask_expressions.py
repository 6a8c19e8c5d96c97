"""Masks written as text: `regard draw mask`, `regard attend --mask`."""

from regard.nn.mask_expressions import read_mask

READS = ("regard.nn.mask_expressions",)
WORDS = [
    b"causal", b"window(2)", b"global(1)", b"strided(3)", b"prefix(2)", b"padding(5)", b"segments(2, 3)",
    b"edges(0-1, 1-2)", b"everything",
    b" & ", b" | ", b"~", b"(", b")", b"-", b"lambda: 0", b"__import__", b".x", b"[0]", b"*", b"**", b"=",
]  # fmt: skip


def seeds() -> list[bytes]:
    """Return one expression of each rule and one of several."""
    return [
        b"causal & window(4) | global(1)",
        b"~(padding(3) | strided(2))",
        b"segments(2, 3, 3) & prefix(2)",
        b"edges(0-1, 1-2)",
    ]


def run(data: bytes) -> None:
    """Read an expression and evaluate the mask."""
    read_mask(data.decode("utf-8", "surrogateescape"), 8).dense(8, 8)
