"""Every registered family obeys the laws, in each of its small configs."""

import dataclasses

import pytest
import torch

from regard.data.sets.batches import IGNORE
from regard.doctor import laws
from regard.nn.block import BlockConfig
from regard.nn.kernels import build_kernel
from regard.nn.stack import build_position
from regard.registry import kernels, models
from tests.laws.cases import CASES, PRODUCT, ROWS, SMALL, VOCAB, encoder_of, example, has, make, padded, sees, written
from tests.laws.test_kernels import FORMULAS, plain

every_case = pytest.mark.parametrize(("family", "number"), CASES, ids=[f"{f}-{n}" for f, n in CASES])
every_row = pytest.mark.parametrize(("family", "number"), ROWS, ids=[f"{f}-{n}" for f, n in ROWS])


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


@every_row
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


@pytest.mark.parametrize("family", [family for family in SMALL if has(family, "position") and not sees(family)])
def test_without_positions_permuted_in_is_permuted_out(family):
    model = make(family, position="none").double()
    inputs, encode = example(model), encoder_of(model)
    if encode is not None:  # one that sees only the past knows an order without being told
        laws.order_is_unknown(encode, inputs[padded(inputs)], inputs["lengths"])


def test_an_encoder_is_found_in_every_family_that_reads_both_sides():
    assert [family for family in SMALL if encoder_of(make(family))] == ["transformer", "t5", "bert"]


@every_case
def test_every_parameter_receives_a_gradient(family, number):
    model = make(family, number)
    laws.every_parameter_learns(model, example(model))


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_finite(family, number, dtype):
    model = make(family, number).to(dtype)
    laws.stays_finite(model, example(model, B=2), dtype)


@every_case
def test_saved_is_loaded(family, number, tmp_path):
    from regard.hub.checkpoint import load_model, save_model

    model = make(family, number)
    laws.saved_is_loaded(model, example(model), save_model, load_model, tmp_path)


@every_row
def test_loss_starts_at_chance(family, number):
    # A tied output scores the token that was just read √dim higher; among a thousand others that is not felt.
    model = make(family, number, **({} if sees(family) else dict(vocab_size=997)))
    laws.starts_at_chance(model, example(model, B=7))


@every_case
def test_one_batch_can_be_overfitted(family, number):
    model = make(family, number)
    inputs = laws.all_different(example(model), VOCAB)  # two rows that begin alike could not go on differently
    if sees(family):
        out = model(**inputs)
        targets = torch.randint(out.shape[-1], out.shape[:-1])
    else:
        targets = torch.randint(VOCAB, inputs[written(inputs)].shape)
    if padded(inputs) is not None and padded(inputs) == written(inputs):
        targets[torch.arange(targets.shape[1]) >= inputs["lengths"][:, None]] = IGNORE
    laws.one_batch_can_be_overfitted(model, inputs, targets, steps=300, lr=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kernel", "position"), PRODUCT)
def test_every_combination(family, kernel, position):
    able = kernels[kernel]
    changes = dict(kernel=kernel, position=position) | ({} if able.crosses else {"cross_kernel": "full"})
    writes = hasattr(models[family], "step")
    shifts = build_position(BlockConfig(dim=20, heads=3, head_dim=10, position=position)).bias() is not None
    if (writes and not (able.causal and able.cached)) or (shifts and not able.biased):
        with pytest.raises(ValueError, match="cannot .*; these can"):
            make(family, **changes)
        return
    model = make(family, **changes).double()
    inputs = example(model)
    laws.batch_equals_single(model, inputs, padded(inputs))
    laws.every_parameter_learns(model, inputs)
    if padded(inputs):
        laws.padding_changes_nothing(model, inputs, padded(inputs))
    if writes:
        laws.hides_the_future(model, inputs, written(inputs))
        all_seen = plain(kernel) not in FORMULAS and build_kernel(kernel, heads=3, head_dim=10).rule().is_everything
        laws.future_has_no_gradient(model, inputs, written(inputs), past=all_seen)
        with torch.no_grad():
            laws.cached_equals_uncached(model, inputs, written(inputs))
            laws.beams_equal_copies(model, inputs, written(inputs))


@torch.no_grad()
def test_a_stack_that_starts_at_zero_passes_its_input_on():
    model = make("gpt", zero_init=True, final_norm=False)
    ids = example(model)["ids"]
    assert torch.equal(model.features(ids), model.embedding(ids))
    plain = make("gpt", final_norm=False)
    laws.differs(plain.features(ids), plain.embedding(ids), "the stack starts with weights")


BERT_TASKS = ["none", "mask", "pretrain", "classify", "tag", "answer"]


def every_answer(model, inputs):
    """What the task's head says about the text and its real tokens, and with two heads what the other says."""
    out, hidden = model(**inputs), torch.arange(7) >= inputs["lengths"][:, None]
    parts = [out if out.dim() == 2 else out[:, :7][~hidden]]
    return parts + ([model.follows(model.features(**inputs))] if model.config.task == "pretrain" else [])


@pytest.mark.parametrize("task", BERT_TASKS)
def test_every_task_of_an_encoder_reads_real_tokens_and_trains_all_its_parts(task):
    pooler, labels = task in ("pretrain", "classify"), ("a", "b", "c") if task in ("classify", "tag") else ()
    model = make("bert", task=task, pooler=pooler, labels=labels, pooler_activation="relu").double()
    inputs = example(model)
    found = every_answer(model, inputs)
    sum((part * laws.direction(part)).sum() for part in found).backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not missing, f"{missing} take no part"
    junk = inputs["ids"].clone()
    junk[torch.arange(7) >= inputs["lengths"][:, None]] = 5
    for got, was in zip(every_answer(model, inputs | {"ids": junk}), found, strict=True):
        laws.close(got, was, f"other tokens in the padding of task {task!r}")
    other = every_answer(model, inputs | {"types": 1 - inputs["types"]})
    for got, was in zip(other, found, strict=True):
        laws.differs(got, was, "the first text became the second")


def test_a_task_without_what_it_needs_says_so():
    with pytest.raises(ValueError, match="task 'classify' reads the pooled vector; set pooler=true"):
        make("bert", task="classify", labels=("a", "b"))
    with pytest.raises(ValueError, match="task 'tag' needs the names of its labels"):
        make("bert", task="tag")


@torch.no_grad()
def test_the_vector_of_a_text_is_the_mean_of_its_real_tokens_or_the_first():
    for pooling in ("mean", "first"):
        model = make("bert", pooling=pooling).double()
        inputs = example(model)
        x = model.features(**inputs)
        rows = [x[row, :length].mean(0) for row, length in enumerate(inputs["lengths"])]
        laws.close(model.embed(**inputs), torch.stack(rows) if pooling == "mean" else x[:, 0], pooling)
