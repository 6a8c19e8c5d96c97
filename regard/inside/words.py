"""One word in several sentences: its vector in the embedding is always the same, behind the blocks it is not.

"bank" by a river and "bank" with an account start as one vector. What the blocks mix in from the other words moves
the two apart; `compare_word` says by how much after each of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.inside.canvas import INK, SOFT, chart, check_suffix, colors, fit, name_lines, new_figure, pen, save, tidy
from regard.inside.text import Reading, read
from regard.nn.reversible import Streams
from regard.nn.stack import Stack


@torch.no_grad()
def compare_word(loaded: Any, word: str, texts: Sequence[str]) -> dict[str, Any]:
    """The cosine of a word's vectors in each pair of texts, where it first stands in each as a whole word.

    `static` compares the embedding's rows, `contextual` what comes out of the stack; `layers` has what enters the
    first block, then what leaves each one (the last: the stack). A word of several pieces has the mean of theirs.
    """
    if isinstance(texts, str) or len(texts) < 2:
        raise ValueError("a word is compared between texts; give a list of at least two")
    stack = next((part for part in loaded.model.modules() if isinstance(part, Stack)), None)
    if stack is None:
        raise ValueError(
            f"{type(loaded.model).__name__} has no blocks to look behind; use a Transformer, such as gpt or bert"
        )
    pieces: list[list[str]] = []
    static: list[Tensor] = []
    layers: list[Tensor] = []
    for number, text in enumerate(texts, 1):
        reading = read(loaded, text)
        tokens = find_word(word, text, number, reading)
        pieces.append([reading.labels[token] for token in tokens])
        static.append(loaded.model.embedding.vectors(reading.inputs["ids"][0, tokens]).double().mean(0))
        with watched(stack) as states:
            loaded.model.features(**reading.inputs)
        layers.append(torch.stack([state[0, tokens].double().mean(0) for state in states]))
    pairs = []
    for one, other in combinations(range(len(texts)), 2):
        by_layer = F.cosine_similarity(layers[one], layers[other], dim=-1).tolist()
        alike = F.cosine_similarity(static[one], static[other], dim=0).item()
        pairs.append({"texts": [one + 1, other + 1], "static": alike, "contextual": by_layer[-1], "layers": by_layer})
    return {"word": word, "texts": list(texts), "pieces": pieces, "pairs": pairs}


def find_word(word: str, text: str, number: int, reading: Reading) -> list[int]:
    """The tokens of the word's first occurrence; capital letters do not matter."""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) if word.strip() else None
    if found is None:
        raise ValueError(f"text {number} does not have the word {word!r}: {text!r}; give sentences that all have it")
    spans = [span or (0, 0) for span in reading.spans]
    tokens = [token for token, (start, end) in enumerate(spans) if start < found.end() and end > found.start()]
    if not tokens:
        raise ValueError(f"text {number}: the tokenizer has no token for {found.group()!r}; choose another word")
    return tokens


@contextmanager
def watched(stack: Stack) -> Iterator[list[Float[Tensor, "B T D"]]]:
    """What enters a stack, what leaves each block, and in place of the last what leaves the stack."""
    states: list[Tensor] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        states[:] = [args[0]]

    def leave(module: nn.Module, args: tuple[Any, ...], output: Tensor | Streams) -> None:
        if module is stack:
            states.pop()
        states.append(output.join() if isinstance(output, Streams) else output)

    handles = [stack.register_forward_pre_hook(enter)]
    handles += [module.register_forward_hook(leave) for module in {*stack.blocks, stack}]  # a shared block once
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def render_word(found: Mapping[str, Any]) -> str:
    """The similarities as a table, below the numbered texts."""
    depth = len(found["pairs"][0]["layers"]) - 1
    lines = [f"{found['word']!r}, cosine of its vectors in each pair of texts", ""]
    lines += [f"  {number}  {text}" for number, text in enumerate(found["texts"], 1)]
    lines += ["", f"{'texts':8}{'static':>8}{'contextual':>12}   by layer: input, 1 … {depth}"]
    for pair in found["pairs"]:
        curve = " ".join(f"{value:5.2f}" for value in pair["layers"])
        lines.append(f"{pair_name(pair):8}{pair['static']:8.3f}{pair['contextual']:12.3f}   {curve}")
    return "\n".join(lines)


def pair_name(pair: Mapping[str, Any]) -> str:
    return " – ".join(map(str, pair["texts"]))


def draw_word(found: Mapping[str, Any], path: str | Path | None = None) -> Any:
    """A line for each pair of texts: how alike the word's vectors are in the embedding and behind each block."""
    if path is not None:
        check_suffix(path)
    depth = len(found["pairs"][0]["layers"]) - 1
    figure = new_figure(9, 6)
    title = f"“{found['word']}”: how alike its vectors are"
    axes = chart(figure, 1, 2, max(4.0, 0.42 * (depth + 2)), 3, title=title, xlabel="block", ylabel="cosine")
    ends = []
    for color, pair in zip(colors(len(found["pairs"])), found["pairs"], strict=True):
        heights = [pair["static"], *pair["layers"]]
        axes.plot(range(len(heights)), heights, color=color, linewidth=1.8, marker="o", markersize=4)
        ends.append((len(heights) - 1, heights[-1], pair_name(pair), color))
    axes.set_xticks(range(depth + 2), ["static", "input", *map(str, range(1, depth + 1))])
    axes.margins(x=0.03)
    tidy(axes)
    name_lines(axes, ends)
    for row, text in enumerate(found["texts"]):
        for x, part, color in ((0, str(row + 1), SOFT), (14, shorten(text, 100, placeholder=" …"), INK)):
            axes.annotate(part, (0, 0), (x, -40 - 13 * row), xycoords="axes fraction", textcoords="offset points",
                          va="top", annotation_clip=False, **pen(8.5, color=color))  # fmt: skip
    return save(fit(figure), path)
