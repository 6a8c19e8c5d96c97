"""Every registered family obeys the laws, in each of its small configs."""

import dataclasses

import pytest
import torch

from regard.doctor import laws
from regard.doctor.families import LAWS, missing
from regard.nn.block import BlockConfig
from regard.nn.kernels import build_kernel
from regard.nn.stack import build_position
from regard.registry import kernels, models
from tests.laws.cases import CASES, PRODUCT, case_of, example, make
from tests.laws.test_kernels import FORMULAS, plain

NAMES = [f"{family}-{number}" for family, number in CASES]


@pytest.mark.parametrize("family", list(models))
def test_every_registered_family_declares_its_sizes(family):
    cls = models[family]
    assert dataclasses.is_dataclass(cls.config_class) and cls.presets
    for name, sizes in cls.presets.items():
        assert cls.config_class(**sizes), f"preset {name!r} is no valid config"


@pytest.mark.parametrize(("family", "number"), CASES, ids=NAMES)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_family_keeps_the_law(law, family, number):
    case = case_of(family, number)
    if not missing(law, case):
        torch.manual_seed(1)
        law.check(case.exact if law.exact else case)


GENERATES = {"captioner", "gpt", "gru", "lstm", "rnn", "seq2seq", "t5", "transformer", "whisper"}
READS = {"bert", "seq2seq", "t5", "transformer"}
GRAPHS = {"graph-transformer"}
APPLIES = {
    "hides the future: outputs": GENERATES, "hides the future: gradients": GENERATES,
    "cached equals uncached": GENERATES, "beams equal copies": GENERATES,
    "padding changes nothing: outputs": READS, "padding changes nothing: gradients": READS,
    "recordings end where they end": {"conformer", "video-vit", "wav2vec2", "whisper"},
    "order is unknown without positions": {"bert", "t5", "transformer"},
    "batch equals single": set(models) - {"clip"},
    "loss starts at ln V": set(models) - {"clip", "detr", "mae", "patchtst"},
    "order of nodes is unknown": GRAPHS, "filling of graphs changes nothing": GRAPHS, "graphs do not meet": GRAPHS,
    "time runs one way": {"video-vit"},
}  # fmt: skip


def test_laws_apply_to_those_families_that_they_are_about():
    """Which laws apply follows from what a family declares: none may be lost on the way."""
    cases = {family: case_of(family) for family in models}
    for law in LAWS:
        applies = {family for family, case in cases.items() if not missing(law, case)}
        assert applies == APPLIES.get(law.name, set(models)), law.name


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kernel", "position"), PRODUCT)
def test_every_combination(family, kernel, position):
    able = kernels[kernel]
    changes = dict(kernel=kernel, position=position) | ({} if able.crosses else {"cross_kernel": "full"})
    writes = family in GENERATES
    shifts = build_position(BlockConfig(dim=20, heads=3, head_dim=10, position=position)).bias() is not None
    if (writes and not (able.causal and able.cached)) or (shifts and not able.biased):
        with pytest.raises(ValueError, match="cannot .*; these can"):
            make(family, **changes)
        return
    case = case_of(family, **changes)
    case = case.exact
    laws.batch_equals_single(case)
    laws.every_parameter_learns(case)
    if case.padded:
        laws.padding_changes_nothing(case)
        laws.padding_has_no_gradient(case)
    if writes:
        laws.hides_the_future(case)
        all_seen = plain(kernel) not in FORMULAS and build_kernel(kernel, heads=3, head_dim=10).rule().is_everything
        laws.future_has_no_gradient(case, past=all_seen)
        laws.cached_equals_uncached(case)
        laws.beams_equal_copies(case)


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
    with pytest.raises(ValueError, match="task 'pretrain' reads the pooled vector; set pooler=true"):
        make("bert", task="pretrain")
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
