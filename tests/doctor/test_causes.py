"""From figures to causes: what is wrong is named, what only looks so is not."""

import pytest

from regard.doctor.causes import (
    SEVERAL,
    Signs,
    attention_collapse,
    exploding_gradient,
    no_relation,
    rate_too_high,
    rate_too_low,
    vanishing_gradient,
)
from regard.train.config import TrainConfig

FALLING, STALLED, LEARNED = [4 - i / 100 for i in range(200)], [4.0] * 200, [4.0] + [0.5] * 200


def signs(losses, **more):
    config = TrainConfig(warmup=0, lr=1e-3)
    return Signs(**dict(step=len(losses), config=config, losses=losses, best=min(losses), ratio=1e-3) | more)


def test_rates_are_judged_by_the_loss_too():
    falling, rising = [4 - i / 100 for i in range(200)], [4.0] * 100 + [6.0] * 100
    assert rate_too_high(signs(falling, ratio=0.5)) is None, "a large update that helps is no fault"
    assert rate_too_high(signs(rising, ratio=0.5)).cause == "learning rate too high"
    assert rate_too_high(signs(rising, ratio=1e-3)) is None
    assert rate_too_high(signs([4.0] + [3.3] * 200, ratio=0.5)).cause == "learning rate too high"
    assert rate_too_high(signs([4.0] + [1.3] * 200, ratio=0.5)) is None, "a run that has learned may rest"
    short = [4.0] + [3.4] * 40
    assert rate_too_high(signs(short, ratio=0.5)).cause == "learning rate too high", "too short to stall, but wild"
    assert rate_too_high(signs(short, ratio=0.2)) is None
    assert rate_too_low(signs([4.0] * 200, ratio=1e-6)).cause == "learning rate too low"
    assert rate_too_low(signs(falling, ratio=1e-6)) is None


def test_a_slow_start_is_not_called_shuffled():
    falling = [4 - i / 400 for i in range(200)]
    assert no_relation(signs(falling, floor=3.6)) is None
    assert no_relation(signs([3.6] * 200, floor=3.6)).cause == "labels shuffled"


def of_several(losses, **figures):
    """The same figures at the last sampled steps."""
    return signs(losses, figures=figures, before=[figures] * (SEVERAL - 1))


GRADIENT = {"embedding": 1.0, "decoder.blocks.0": 0.5, "decoder.blocks.7": 0.5, "decoder.blocks.10": 0.4}
FAINT, STEEP = GRADIENT | {"decoder.blocks.0": 2e-5}, GRADIENT | {"decoder.blocks.0": 400.0}


@pytest.mark.parametrize(
    "rule, kind, wrong, healthy, told",
    [
        (attention_collapse, "entropy", {"a": [0.5, 0.6], "b": [0.01, 0.02]}, {"b": [0.01, 0.4]}, "heads of b attend"),
        (vanishing_gradient, "gradient", FAINT, GRADIENT, "decoder.blocks.0 is 2.0e-05"),
        (vanishing_gradient, "gradient", FAINT, GRADIENT | {"decoder.blocks.0": 0.0},
         "loss stays at 4"),
        (exploding_gradient, "gradient", STEEP, GRADIENT,
         "from decoder.blocks.10 to decoder.blocks.0 the gradient grows 1,000 times"),
        (exploding_gradient, "gradient", STEEP, {"embedding": 1e9, "head": 1.0}, "first 4"),
    ],
)  # fmt: skip
def test_figures_by_layer_are_judged_by_the_loss_too(rule, kind, wrong, healthy, told):
    found = rule(of_several(STALLED, **{kind: wrong}))
    assert told in found.sentence and found.where in wrong and found.cure
    assert rule(of_several(STALLED, **{kind: healthy})) is None
    for losses in (FALLING, LEARNED, STALLED[:90]):
        assert rule(of_several(losses, **{kind: wrong})) is None
    once = signs(STALLED, figures={kind: wrong}, before=[{kind: healthy}] * (SEVERAL - 1))
    assert rule(once) is None, "once is not enough"
    assert rule(signs(STALLED, figures={kind: wrong})) is None
    assert rule(of_several(STALLED)) is None, "of a model without attention, or without blocks"
