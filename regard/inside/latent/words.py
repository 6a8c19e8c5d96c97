"""One word in several sentences: its vector in the embedding is always the same, behind the blocks it is not.

"bank" by a river and "bank" with an account start as one vector. What the blocks mix in from the other words moves
the two apart; `compare_word` says by how much after each of them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from textwrap import shorten
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.inside.capture.states import stack_states
from regard.inside.draw.canvas import INK, SOFT, Figure, Sheet, Target, name_lines, pen
from regard.models import parts
from regard.tasks.prepared import Prepared


@torch.no_grad()
def compare_word(task: Any, word: str, texts: Sequence[str]) -> dict[str, Any]:
    """The cosine of a word's vectors in each pair of texts, where it first stands in each as a whole word.

    `static` compares the embedding's rows, `contextual` what comes out of the stack; `layers` has what enters the
    first block, then what leaves each one (the last: the stack). A word of several pieces has the mean of theirs.
    """
    if isinstance(texts, str) or len(texts) < 2:
        raise ValueError("a word is compared between texts; give a list of at least two")
    pieces: list[list[str]] = []
    static: list[Tensor] = []
    layers: list[Tensor] = []
    for number, text in enumerate(texts, 1):
        prepared = task.read(text)
        tokens = find_word(word, text, number, prepared)
        pieces.append([prepared.tokens[token] for token in tokens])
        first, states = word_states(task.model, prepared)
        static.append(first[0, tokens].double().mean(0))
        layers.append(torch.stack([state[0, tokens].double().mean(0) for state in states]))
    pairs = []
    for one, other in combinations(range(len(texts)), 2):
        by_layer = F.cosine_similarity(layers[one], layers[other], dim=-1).tolist()
        static_cosine = F.cosine_similarity(static[one], static[other], dim=0).item()
        pairs.append(
            {"texts": [one + 1, other + 1], "static": static_cosine, "contextual": by_layer[-1], "layers": by_layer}
        )
    return {"word": word, "texts": list(texts), "pieces": pieces, "pairs": pairs}


def word_states(model: Any, prepared: Prepared) -> tuple[Tensor, list[Tensor]]:
    """The vectors of a text's tokens without context, and what enters the first layer and leaves each one."""
    if (states := parts.layer_vectors(model, prepared.inputs)) is not None:
        return states[0], states
    stack = next(iter(parts.stacks(model).values()), None)
    if stack is None:
        raise ValueError(
            f"{type(model).__name__} has no stack of blocks; use a Transformer, such as gpt or bert, or word vectors"
        )
    with stack_states(stack) as captured:
        prepared.run(prepared.inputs)
    return model.embedding.vectors(prepared.inputs["ids"]), captured


def find_word(word: str, text: str, number: int, prepared: Prepared) -> list[int]:
    """The tokens of the word's first occurrence; capital letters do not matter."""
    match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) if word.strip() else None
    if match is None:
        raise ValueError(f"text {number} does not have the word {word!r}: {text!r}; give sentences that all have it")
    if prepared.sequences[0].spans is None:
        raise ValueError(
            f"a {type(prepared.model).__name__} has no token spans in its text; use a language model or encoder"
        )
    spans = [span or (0, 0) for span in prepared.sequences[0].spans]
    tokens = [token for token, (start, end) in enumerate(spans) if start < match.end() and end > match.start()]
    if not tokens:
        raise ValueError(f"text {number}: the tokenizer has no token for {match.group()!r}; choose another word")
    return tokens


def render_word(data: Mapping[str, Any]) -> str:
    """The similarities as a table for a terminal, below the numbered texts."""
    depth = len(data["pairs"][0]["layers"]) - 1
    lines = [f"{data['word']!r}, cosine of its vectors in each pair of texts", ""]
    lines += [f"  {number}  {text}" for number, text in enumerate(data["texts"], 1)]
    names = f"input, 1 … {depth}" if depth else "the only one"
    lines += ["", f"{'texts':8}{'static':>8}{'contextual':>12}   by layer: {names}"]
    for pair in data["pairs"]:
        curve = " ".join(f"{value:5.2f}" for value in pair["layers"])
        lines.append(f"{pair_name(pair):8}{pair['static']:8.3f}{pair['contextual']:12.3f}   {curve}")
    return "\n".join(lines)


def pair_name(pair: Mapping[str, Any]) -> str:
    """The numbers of two texts."""
    return " – ".join(map(str, pair["texts"]))


def draw_word(data: Mapping[str, Any], path: Target = None) -> Figure:
    """Draw the similarity of the word's vectors in the embedding and behind each block, for each pair of texts."""
    depth, sheet = len(data["pairs"][0]["layers"]) - 1, Sheet()
    title = f"“{data['word']}”: similarity of its vectors"
    axes = sheet.chart(0, 0, max(4.0, 0.42 * (depth + 2)), 3, title=title, xlabel="block", ylabel="cosine")
    for pair in data["pairs"]:
        heights = [pair["static"], *pair["layers"]]
        axes.plot(range(len(heights)), heights, linewidth=1.8, marker="o", markersize=4, label=pair_name(pair))
    axes.set_xticks(range(depth + 2), ["static", "input", *map(str, range(1, depth + 1))])
    axes.margins(x=0.03)
    name_lines(axes)
    for row, text in enumerate(data["texts"]):
        for x, part, color in ((0, str(row + 1), SOFT), (14, shorten(text, 100, placeholder=" …"), INK)):
            axes.annotate(part, (0, 0), (x, -40 - 13 * row), xycoords="axes fraction", textcoords="offset points",
                          va="top", annotation_clip=False, **pen(8.5, color=color))  # fmt: skip
    return sheet.save(path)
