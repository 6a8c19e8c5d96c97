"""Every registered family obeys the laws, in each of its small configs."""

import dataclasses

import pytest
import torch

from regard.registry import models
from tests.laws import laws
from tests.laws.cases import CASES, PRODUCT, SMALL, VOCAB, example, has, make, padded, written

every_case = pytest.mark.parametrize(("family", "number"), CASES, ids=[f"{f}-{n}" for f, n in CASES])


@pytest.mark.parametrize("family", list(models))
def test_every_registered_family_has_a_small_config(family):
    assert SMALL.get(family), (
        f"{family!r} is registered but obeys no law yet: add its sizes to tests/laws/cases.py:SMALL"
    )


@pytest.mark.parametrize("family", list(models))
def test_every_registered_family_says_what_it_is(family):
    cls = models[family]
    assert dataclasses.is_dataclass(cls.config_class) and cls.presets
    for name, sizes in cls.presets.items():
        assert cls.config_class(**sizes), f"preset {name!r} is no valid config"


@every_case
def test_no_position_sees_the_future(family, number):
    model = make(family, number).double()
    if hasattr(model, "step"):
        inputs = example(model)
        laws.hides_the_future(model, inputs, written(inputs))
        laws.future_has_no_gradient(model, inputs, written(inputs))


@every_case
def test_padding_changes_nothing(family, number):
    model = make(family, number).double()
    inputs = example(model)
    if padded(inputs):
        laws.padding_changes_nothing(model, inputs, padded(inputs))


@every_case
def test_batch_equals_single(family, number):
    model = make(family, number).double()
    inputs = example(model)
    laws.batch_equals_single(model, inputs, padded(inputs))


@every_case
@torch.no_grad()
def test_cached_equals_uncached(family, number):
    model = make(family, number).double()
    if hasattr(model, "step"):
        inputs = example(model)
        laws.cached_equals_uncached(model, inputs, written(inputs))
        laws.beams_equal_copies(model, inputs, written(inputs))


@pytest.mark.parametrize("family", [family for family in SMALL if has(family, "position")])
def test_without_positions_permuted_in_is_permuted_out(family):
    model = make(family, position="none").double()
    inputs = example(model)
    laws.order_is_unknown(lambda ids, lengths: model.encode(ids, lengths)[0], inputs["source"], inputs["lengths"])


@every_case
def test_every_parameter_receives_a_gradient(family, number):
    model = make(family, number)
    laws.every_parameter_learns(model, example(model))


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_finite(family, number, dtype):
    model = make(family, number)
    laws.stays_finite(model, example(model, B=2), dtype)


@every_case
def test_saved_is_loaded(family, number, tmp_path):
    from regard.hub.checkpoint import load_model, save_model

    model = make(family, number)
    laws.saved_is_loaded(model, example(model), save_model, load_model, tmp_path)


@every_case
def test_loss_starts_at_chance(family, number):
    # A tied output scores the token that was just read √dim higher; among a thousand others that is not felt.
    model = make(family, number, vocab_size=997)
    laws.starts_at_chance(model, example(model, B=7))


@every_case
def test_one_batch_can_be_overfitted(family, number):
    model = make(family, number)
    inputs = example(model)
    targets = torch.randint(VOCAB, inputs[written(inputs)].shape)
    laws.one_batch_can_be_overfitted(model, inputs, targets, steps=300, lr=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kernel", "position"), PRODUCT)
def test_every_combination(family, kernel, position):
    model = make(family, kernel=kernel, position=position).double()
    inputs = example(model)
    laws.hides_the_future(model, inputs, written(inputs))
    laws.future_has_no_gradient(model, inputs, written(inputs))
    laws.padding_changes_nothing(model, inputs, padded(inputs))
    laws.batch_equals_single(model, inputs, padded(inputs))
    laws.every_parameter_learns(model, inputs)
    with torch.no_grad():
        laws.cached_equals_uncached(model, inputs, written(inputs))
        laws.beams_equal_copies(model, inputs, written(inputs))
