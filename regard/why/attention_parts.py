"""Components of attention: the scale, the mask, heads, separate matrices, positions."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.masks import everything
from regard.nn.positions import Fraction
from regard.nn.stack import Stack
from regard.why.component import Arm, Claim, Component, higher, lower, register
from regard.why.problems import LetterBefore, NextToken

SMALL: dict[str, Any] = dict(dim=48, depth=3, heads=4, ffn_dim=192, activation="relu", position="rotary", dropout=0.0)
"""A small language model."""


def stacks(model: nn.Module) -> list[Stack]:
    return [module for module in model.modules() if isinstance(module, Stack)]


# ---- the scale ------------------------------------------------------------------------------------------------

LARGE, TINY = 64, 8
"""Head sizes."""


def sized(name: str, size: int, kernel: str, about: str) -> Arm:
    return Arm(name=name, about=about, model=dict(heads=64 // size, kernel=kernel))


register(
    Component(
        name="scale",
        question="Why are scores divided by √d_k?",
        problem=NextToken(model=SMALL | dict(dim=64, depth=2, ffn_dim=128), attention=True),
        arms=(
            sized("scaled-64", LARGE, "full", "one head of 64, q·k / √64"),
            sized("plain-64", LARGE, "dot", "one head of 64, q·k"),
            sized("scaled-8", TINY, "full", "eight heads of 8, q·k / √8"),
            sized("plain-8", TINY, "dot", "eight heads of 8, q·k"),
        ),
        claims=(
            Claim(
                text="Without the division, attention with large heads is nearly one-hot before training.",
                lecture="000, why divide by √d_k; 002, A1", unit="entropy, as a share of the highest", least=0.1,
                terms=higher("entropy_start", "scaled-64", "plain-64"),
            ),
            Claim(
                text="A saturated softmax passes on little gradient.",
                lecture="000, why divide by √d_k; 002, A1", unit="trace of the softmax's Jacobian", least=0.1,
                terms=higher("softmax_room_start", "scaled-64", "plain-64"),
            ),
            Claim(
                text="The larger the heads, the more the division matters.",
                lecture="000, why divide by √d_k", unit="entropy, difference of differences", least=0.05,
                terms=(*higher("entropy_start", "scaled-64", "plain-64"),
                       *higher("entropy_start", "plain-8", "scaled-8")),
            ),
            Claim(
                text="With the division, a model learns better.",
                lecture="000, why divide by √d_k; 003", unit="held-out loss, nats", least=0.02,
                terms=lower("loss", "scaled-64", "plain-64"),
            ),
        ),
        also="entropy",
        steps=150,
    )
)  # fmt: skip


# ---- the mask -------------------------------------------------------------------------------------------------


def leak(model: nn.Module) -> None:
    """Let every position of a decoder see the whole text: the mask that the model passes to its stack is replaced."""

    def unmasked(stack: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, kwargs | {"mask": everything()}

    for stack in stacks(model):
        stack.register_forward_pre_hook(unmasked, with_kwargs=True)


register(
    Component(
        name="mask",
        question="Why may a decoder not see what follows?",
        problem=NextToken(model=SMALL, blind=True),
        arms=(
            Arm(name="masked", about="a position sees itself and what is before it"),
            Arm(name="leaking", about="a position sees the whole text, the answer included", alter=leak),
        ),
        claims=(
            Claim(
                text="Without a mask the answer leaks: the loss that training sees falls far below what is possible.",
                lecture="000, why masking is needed", unit="loss with the answer in view, nats", least=0.5,
                terms=lower("loss", "leaking", "masked"),
            ),
            Claim(
                text="What a leaking model learned is of no use in generation, where nothing follows yet.",
                lecture="000, why masking is needed", unit="loss of the next token of a text that ends there, nats",
                least=0.5, terms=lower("blind_loss", "masked", "leaking"),
            ),
        ),
        also="blind_loss",
        steps=200,
    )
)  # fmt: skip


# ---- heads ----------------------------------------------------------------------------------------------------

register(
    Component(
        name="heads",
        question="Why several heads and not one of the whole width?",
        problem=NextToken(model=SMALL, attention=True),
        arms=(
            Arm(name="four", about="four heads of 12"),
            Arm(name="one", about="one head of 48, as many parameters", model=dict(heads=1)),
        ),
        claims=(
            Claim(
                text="Several heads learn better than one of the same total size.",
                lecture="000 and 001, multi-head attention; 002, A3", unit="held-out loss, nats", least=0.01,
                terms=lower("loss", "four", "one"),
            ),
            Claim(
                text="Heads of one layer attend to different positions.",
                lecture="000, multi-head attention; 002, A3", 
                unit="share of attention that two heads place differently",
                least=0.1, terms=((1.0, "four", "head_difference"),),
            ),
        ),
        also="head_difference",
    )
)  # fmt: skip


# ---- matrices of q, k and v -----------------------------------------------------------------------------------

register(
    Component(
        name="qkv",
        question="Why separate matrices for queries, keys and values?",
        problem=NextToken(model=SMALL),
        arms=(
            Arm(name="three", about="a matrix each"),
            Arm(name="two", about="one for queries and keys, one for values", model=dict(qkv="two")),
            Arm(name="one", about="one for all three", model=dict(qkv="one")),
        ),
        claims=(
            Claim(
                text="One matrix for all three limits what a model can learn.",
                lecture="002, what if Q = K = V?", unit="held-out loss, nats", least=0.01,
                terms=lower("loss", "three", "one"),
            ),
            Claim(
                text="What is matched should differ from what is retrieved: values need a matrix of their own.",
                lecture="002, key–value separation", unit="held-out loss, nats", least=0.01,
                terms=lower("loss", "two", "one"),
            ),
            Claim(
                text="What is sought should differ from what is offered: keys need a matrix of their own.",
                lecture="002, asymmetry of roles", unit="held-out loss, nats", least=0.01,
                terms=lower("loss", "three", "two"),
            ),
        ),
    )
)  # fmt: skip


# ---- positions ------------------------------------------------------------------------------------------------


class OwnFraction(Fraction):
    """Fractions of each text's own length, as lecture 000 has it: an encoder may count its whole input."""

    def numbers(self, start: int, T: int) -> Float[Tensor, "T"]:
        return torch.arange(start, start + T, device=self.direction.device).float() / T


def by_own_length(model: Any) -> None:
    """Let fractions be those of the text that is read, not of the longest possible."""
    model.embedding.position.__class__ = OwnFraction


def scheme(name: str, about: str, **more: Any) -> Arm:
    return Arm(name=name, about=about, model=dict(position=name), **more)


def _beyond(text: str, better: str, worse: str, where: str) -> Claim:
    return Claim(
        text=text, lecture=where, unit="accuracy at twice the trained length", least=0.1,
        terms=higher("accuracy_beyond", better, worse),
    )  # fmt: skip


register(
    Component(
        name="position",
        question="Why are positions encoded, and why not by their number?",
        problem=LetterBefore(model=dict(dim=48, depth=2, heads=4, ffn_dim=96, activation="relu", norm_place="pre",
                                        dropout=0.0)),
        arms=(
            scheme("sinusoidal", "sinusoids are added"),
            scheme("none", "no positions"),
            scheme("index", "the number of the position enters"),
            scheme("fraction", "position / length of the text enters", alter=by_own_length),
            scheme("learned", "a trained vector for each position"),
            scheme("rotary", "queries and keys are rotated"),
        ),
        claims=(
            Claim(
                text="Without positions, attention does not know the order of its inputs.",
                lecture="000, self-attention is permutation-equivariant", unit="accuracy at a trained length",
                least=0.2, terms=higher("accuracy", "sinusoidal", "none"),
            ),
            _beyond("The raw index fails in texts longer than those of training.", "sinusoidal", "index",
                    "000, bad idea 1"),
            _beyond("Relative positions go on beyond the trained length where the raw index fails.", "rotary", "index",
                    "000, bad idea 1; 002, relative positions"),
            Claim(
                text="Fractions of the length lose what a neighbour is.",
                lecture="000, bad idea 2", unit="accuracy at a trained length", least=0.1,
                terms=higher("accuracy", "sinusoidal", "fraction"),
            ),
            _beyond("In longer texts, equal steps of a fraction are other distances.", "sinusoidal", "fraction",
                    "000, bad idea 2"),
            _beyond("Sinusoids extrapolate to lengths that learned vectors have not met.", "sinusoidal", "learned",
                    "000 and 002, positional encoding"),
        ),
        metric="accuracy",
        also="accuracy_beyond",
        steps=300,
    )
)  # fmt: skip
