"""Masks written as text: `causal & window(4) | global(1)`, for the command line and configs. Nothing is executed."""

import ast
import re
from collections.abc import Callable

import torch

from regard.config import nearest
from regard.nn import masks
from regard.nn.masks import Mask

Number = int | tuple[int, int]
MOST = 100
"""Operators of an expression; more would nest rules too deeply to be evaluated."""


def read_mask(text: str, length: int) -> Mask:
    """Return the mask that an expression states, over at most `length` positions.

    Rules are joined by `&`, `|` and `~`: everything, causal, window(radius), strided(stride), global(count),
    prefix(length), padding(length), segments(lengths …) and edges(0-1, 1-2, …), which are seen both ways.
    """
    source = re.sub(r"\bglobal\b", "global_", text)  # a keyword of Python, whose grammar reads the expression
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        if sum(isinstance(node, ast.BitAnd | ast.BitOr | ast.Invert) for node in ast.walk(tree)) > MOST:
            raise ValueError
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            f"mask {text!r} is no expression of at most {MOST} rules; write it as 'causal & window(4) | global(1)'"
        ) from None
    try:
        return _build(tree, text, length)
    except RecursionError:
        raise ValueError(f"mask {text[:60]!r} … is nested too deeply; write fewer brackets") from None


def _build(node: ast.expr, text: str, length: int) -> Mask:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        left, right = _build(node.left, text, length), _build(node.right, text, length)
        return left & right if isinstance(node.op, ast.BitAnd) else left | right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_build(node.operand, text, length)
    call = node if isinstance(node, ast.Call) else None
    rule = node if call is None else call.func
    if not isinstance(rule, ast.Name) or call is not None and call.keywords:
        raise ValueError(f"mask {text!r}: {ast.unparse(node)!r} is no rule; join rules by & and |, negate one by ~")
    name = rule.id.removesuffix("_")
    if name not in RULES:
        raise ValueError(f"mask {text!r}: unknown rule {name!r}; {nearest(name, RULES)}")
    numbers = [_number(argument, text) for argument in (call.args if call is not None else [])]
    return RULES[name](name, numbers, length)


def _number(node: ast.expr, text: str) -> Number:
    """Return a whole number, or the two of an edge such as 3-5."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        ends = _number(node.left, text), _number(node.right, text)
        if isinstance(ends[0], int) and isinstance(ends[1], int):
            return ends[0], ends[1]
    raise ValueError(f"mask {text!r}: {ast.unparse(node)!r} is neither a whole number nor an edge such as 0-1")


def _single(make: Callable[[int], Mask], least: int = 0) -> Callable[[str, list[Number], int], Mask]:
    """Return a builder for a rule with one number, which is at least `least`."""

    def build(name: str, numbers: list[Number], length: int) -> Mask:
        if len(numbers) != 1 or not isinstance(numbers[0], int) or numbers[0] < least:
            raise ValueError(f"rule {name} takes one whole number of at least {least}, as in {name}({least + 3})")
        return make(min(numbers[0], max(length, least)))  # beyond the last position nothing changes

    return build


def _bare(make: Callable[[], Mask]) -> Callable[[str, list[Number], int], Mask]:
    """Return a builder for a rule without numbers."""

    def build(name: str, numbers: list[Number], length: int) -> Mask:
        if numbers:
            raise ValueError(f"rule {name} takes no number, got {len(numbers)}; write {name}")
        return make()

    return build


def _segments(name: str, numbers: list[Number], length: int) -> Mask:
    """Segments of these lengths, one after the other; the last goes on to the end."""
    sizes = [size for size in numbers if isinstance(size, int) and size > 0]
    if not sizes or len(sizes) < len(numbers):
        raise ValueError("rule segments takes the length of each segment, as in segments(3, 5)")
    ids = torch.repeat_interleave(torch.tensor([min(size, length) for size in sizes]))[:length]
    rest = torch.full((length - len(ids),), len(sizes) - 1)
    return masks.segments(torch.cat([ids, rest])[None])


def _edges(name: str, numbers: list[Number], length: int) -> Mask:
    """The edges of a graph, seen from both of their ends; a node sees itself only by `| window(0)`."""
    pairs = [pair for pair in numbers if isinstance(pair, tuple)]
    if not pairs or len(pairs) < len(numbers):
        raise ValueError("rule edges takes pairs of positions, as in edges(0-1, 1-2)")
    if (largest := max(map(max, pairs))) >= length:
        raise ValueError(f"rule edges names position {largest}, but there are {length}, from 0 to {length - 1}")
    adjacency = torch.zeros(length, length, dtype=torch.bool)
    for first, second in pairs:
        adjacency[first, second] = adjacency[second, first] = True
    return masks.edges(adjacency)


RULES: dict[str, Callable[[str, list[Number], int], Mask]] = {
    "everything": _bare(masks.everything),
    "causal": _bare(masks.causal),
    "window": _single(masks.window),
    "strided": _single(masks.strided, least=1),
    "global": _single(masks.global_tokens),
    "prefix": _single(masks.prefix),
    "padding": _single(lambda count: masks.padding(torch.tensor([count]))),
    "segments": _segments,
    "edges": _edges,
}
"""Builders of the rules by the name that they have in an expression."""
