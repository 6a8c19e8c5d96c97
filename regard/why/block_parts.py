"""Components of a block: residual connections, norms and their place, the feed-forward layer, depth, dropout."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.feedforward import FeedForward
from regard.why.attention_parts import SMALL, stacks
from regard.why.component import Arm, Claim, Component, higher, lower, register
from regard.why.problems import NextToken

DEEP: dict[str, Any] = SMALL | dict(dim=40, depth=8, ffn_dim=96)

register(
    Component(
        name="residual",
        question="Why is the input of each part added to its output?",
        problem=NextToken(model=DEEP),
        arms=(
            Arm(name="with", about="x + f(x)"),
            Arm(name="without", about="f(x)", model=dict(residual=False)),
        ),
        claims=(
            Claim(
                text="Residual connections make deep stacks trainable.",
                lecture="000, residual connections and LayerNorm; 002, why residual connections matter",
                unit="held-out loss, nats", least=0.1, terms=lower("loss", "with", "without"),
            ),
            Claim(
                text="Without them the gradient vanishes on its way to the first block.",
                lecture="001, sublayers; 002, gradient flow",
                unit="orders of magnitude, first block's gradient by the last's", least=0.3,
                terms=higher("gradient_reach", "with", "without"),
            ),
        ),
        steps=150,
    )
)  # fmt: skip

register(
    Component(
        name="norm",
        question="Why are vectors normalised?",
        problem=NextToken(model=DEEP | dict(depth=6)),
        arms=(
            Arm(name="layer", about="LayerNorm before each part"),
            Arm(name="none", about="no norms", model=dict(norm="none")),
            Arm(name="rms", about="RMSNorm before each part", model=dict(norm="rms")),
        ),
        claims=(
            Claim(
                text="Normalisation speeds up learning.", lecture="002, layer normalisation: why it is critical",
                unit="held-out loss, nats", least=0.02, terms=lower("loss", "layer", "none"),
            ),
            Claim(
                text="Normalisation keeps gradients from exploding.",
                lecture="001, sublayers; 002, layer normalisation",
                unit="orders of magnitude, largest by median gradient", least=0.1,
                terms=lower("spike", "layer", "none"),
            ),
        ),
        steps=300,
    )
)  # fmt: skip

register(
    Component(
        name="norm-place",
        question="Why do norms stand before each part today, and not after it?",
        problem=NextToken(model=DEEP, train=dict(warmup=0)),
        arms=(
            Arm(name="pre", about="x + f(norm(x)), and a last norm"),
            Arm(name="post", about="norm(x + f(x)), as in 2017", model=dict(norm_place="post", final_norm=False)),
        ),
        claims=(
            Claim(
                text="Pre-norm is more stable: without warm-up it learns where post-norm does not.",
                lecture="002, pre-LN against post-LN", unit="held-out loss, nats", least=0.05,
                terms=lower("loss", "pre", "post"),
            ),
            Claim(
                text="Pre-norm has smaller spikes of the gradient.", lecture="002, pre-LN against post-LN",
                unit="orders of magnitude, largest by median gradient", least=0.1, terms=lower("spike", "pre", "post"),
            ),
        ),
        steps=300,
    )
)  # fmt: skip


# ---- the feed-forward layer -----------------------------------------------------------------------------------


class Nothing(nn.Module):
    """Adds nothing: zeros in place of a part's output."""

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return torch.zeros_like(x)


def without_feedforward(model: nn.Module) -> None:
    for stack in stacks(model):
        for block in stack.blocks:
            block.feedforward = Nothing()


def without_activation(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, FeedForward):
            layer.activation = lambda x: x


register(
    Component(
        name="ffn",
        question="Why a feed-forward layer after attention?",
        problem=NextToken(model=SMALL),
        arms=(
            Arm(name="with", about="two matrices with ReLU between them"),
            Arm(name="linear", about="the two matrices without ReLU", alter=without_activation),
            Arm(name="without", about="attention alone", alter=without_feedforward),
        ),
        claims=(
            Claim(
                text="Attention gathers, the feed-forward layer processes: a model needs both.",
                lecture="000, feed-forward sublayer; 002, why FFN after attention?", unit="held-out loss, nats",
                least=0.02, terms=lower("loss", "with", "without"),
            ),
            Claim(
                text="Its non-linearity is what attention lacks.", lecture="002, why FFN after attention?",
                unit="held-out loss, nats", least=0.02, terms=lower("loss", "with", "linear"),
            ),
        ),
    )
)  # fmt: skip

register(
    Component(
        name="depth",
        question="Why stack blocks?",
        problem=NextToken(model=SMALL),
        arms=(
            Arm(name="four", about="four blocks", model=dict(depth=4)),
            Arm(name="one", about="one block", model=dict(depth=1)),
            Arm(name="wide", about="one block of twice the width, about as many parameters",
                model=dict(depth=1, dim=96, ffn_dim=384)),
        ),
        claims=(
            Claim(
                text="Stacked layers build on each other: deeper is better.",
                lecture="000, self-attention; 001, sublayers", unit="held-out loss, nats", least=0.02,
                terms=lower("loss", "four", "one"),
            ),
            Claim(
                text="Depth composes what width alone does not.", lecture="002, universal approximation, 3",
                unit="held-out loss, nats", least=0.02, terms=lower("loss", "four", "wide"),
            ),
        ),
    )
)  # fmt: skip

register(
    Component(
        name="dropout",
        question="Why are values dropped at random in training?",
        problem=NextToken(model=SMALL, characters=6000),
        arms=(
            Arm(name="with", about="dropout of 0.2, on few pages of text", model=dict(dropout=0.2)),
            Arm(name="without", about="no dropout, on the same pages"),
        ),
        claims=(
            Claim(
                text="Dropout reduces overfitting: held-out and training loss are closer.",
                lecture="001, sublayers", unit="held-out less training loss, nats", least=0.1,
                terms=lower("gap", "with", "without"),
            ),
            Claim(
                text="On few data it lowers the held-out loss.", lecture="001, sublayers",
                unit="held-out loss, nats", least=0.02, terms=lower("loss", "with", "without"),
            ),
        ),
        also="gap",
        steps=300,
    )
)  # fmt: skip
