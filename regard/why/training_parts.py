"""Components of training and its data: warm-up, teacher forcing, label smoothing, subwords."""

from regard.why.attention_parts import SMALL
from regard.why.block_parts import DEEP
from regard.why.component import Arm, Claim, Component, higher, lower, register
from regard.why.problems import NextToken, SortedLetters

register(
    Component(
        name="warmup",
        question="Why does the learning rate start near zero?",
        problem=NextToken(model=DEEP | dict(depth=6, norm_place="post", final_norm=False)),
        arms=(
            Arm(name="with", about="100 steps of linear warm-up, post-norm as in 2017", train=dict(warmup=100)),
            Arm(name="without", about="the full rate from the first step", train=dict(warmup=0)),
        ),
        claims=(
            Claim(
                text="Warm-up makes training stable, and so the loss lower.", lecture="002, why warm-up?",
                unit="held-out loss, nats", least=0.05, terms=lower("loss", "with", "without"),
            ),
            Claim(
                text="Without warm-up the first gradients are too large.", lecture="002, why warm-up?",
                unit="orders of magnitude, largest by median gradient", least=0.1,
                terms=lower("spike", "with", "without"),
            ),
        ),
        steps=200,
    )
)  # fmt: skip

register(
    Component(
        name="teacher-forcing",
        question="Why does a decoder read the right tokens in training, and not its own?",
        problem=SortedLetters(model=SMALL | dict(depth=2)),
        arms=(
            Arm(name="forced", about="the right tokens are read, all positions at once"),
            Arm(name="own", about="the model's own tokens are read, written one after the other",
                data=dict(forced=False)),
        ),
        claims=(
            Claim(
                text="Teacher forcing learns faster.",
                lecture="000, training with teacher forcing; 002, training details",
                unit="accuracy of tokens that the model writes by itself", least=0.02,
                terms=higher("own_accuracy", "forced", "own"),
            ),
            Claim(
                text="All positions at once: a step costs less than one that writes token by token.",
                lecture="000, training with teacher forcing", unit="doublings of CPU time", least=0.1,
                terms=lower("log2_cpu", "forced", "own"),
            ),
            Claim(
                text="In generation errors propagate: later tokens are worse than after right ones.",
                lecture="000, training with teacher forcing", unit="accuracy of the second half", least=0.01,
                terms=((1.0, "forced", "forced_last"), (-1.0, "forced", "own_last")),
            ),
        ),
        metric="own_accuracy",
        also="loss",
        steps=200,
    )
)  # fmt: skip

register(
    Component(
        name="smoothing",
        question="Why are the targets of training smoothed?",
        problem=NextToken(model=SMALL),
        arms=(
            Arm(name="with", about="label smoothing of 0.1", train=dict(smoothing=0.1)),
            Arm(name="without", about="the right token alone", train=dict(smoothing=0.0)),
        ),
        claims=(
            Claim(
                text="Smoothing makes a model unsure: its loss rises.",
                lecture="the 2017 paper, 5.4 (the lectures follow its training)", unit="held-out loss, nats",
                least=0.02, terms=lower("loss", "without", "with"),
            ),
            Claim(
                text="Smoothing improves accuracy all the same.",
                lecture="the 2017 paper, 5.4 (the lectures follow its training)", unit="accuracy", least=0.005,
                terms=higher("accuracy", "with", "without"),
            ),
        ),
    )
)  # fmt: skip

register(
    Component(
        name="subwords",
        question="Why subwords, and neither letters nor words?",
        problem=NextToken(model=SMALL),
        arms=(
            Arm(name="subwords", about="1,024 pieces of words", data=dict(tokens="subwords")),
            Arm(name="letters", about="one letter a token"),
            Arm(name="words", about="1,024 words, letters where a word is not among them", data=dict(tokens="words")),
        ),
        claims=(
            Claim(
                text="Subwords predict text better than letters, whose sequences are longer.",
                lecture="000, why LLMs usually prefer subword tokens", unit="bits per byte", least=0.03,
                terms=lower("bits_per_byte", "subwords", "letters"),
            ),
            Claim(
                text="Subwords predict text better than words, most of which are rare.",
                lecture="000, subword tokenization: the compromise", unit="bits per byte", least=0.03,
                terms=lower("bits_per_byte", "subwords", "words"),
            ),
        ),
        metric="bits_per_byte",
        steps=300,
    )
)  # fmt: skip
