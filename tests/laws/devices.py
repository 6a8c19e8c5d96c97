"""Every registered family computes on a device that is not the CPU: trained, decoded, looked
into, with the same answers.

The device is that of `tests/accelerator.py`, which refuses what CUDA refuses: a tensor that
was made on the CPU by mistake.
"""

from contextlib import suppress

import numpy as np
import pytest
import torch

from regard.data.sets.batches import Batch
from regard.decode import Engine, Request
from regard.doctor.case import example
from regard.inside.capture.weights import look
from regard.models import Conformer, ConformerConfig
from regard.nn.weights import find_kernels
from regard.registry import kernels
from regard.tasks.ctc_transcriber import CTCTranscriber
from regard.tokens import Tokenizer
from regard.tokens.mel import LogMel
from regard.train.device import device_of
from tests.accelerator import device_rules, register
from tests.laws.cases import CASES, KERNEL_CASES, make

PACKS = {"bilstm", "captioner", "seq2seq"}
"""Families with packed sequences, whose lengths PyTorch wants on the CPU."""
FIRST = [
    pytest.param(family, number, id=f"{family}-{number}", marks=[pytest.mark.slow] if number else [])
    for family, number in CASES
]


@pytest.fixture(scope="module")
def device():
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay the objects they are, as on a GPU
    yield register()
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.fixture
def refused(device):
    return torch.zeros(3, device=device)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.zeros(3), lambda x: torch.where(torch.ones(3, dtype=torch.bool), x, x),
        lambda x: x[torch.tensor([0])], lambda x: x.numpy(), lambda x: torch.add(x, x, out=torch.zeros(3)),
        lambda x: x.index_select(0, torch.tensor([0])), lambda x: torch.cat([x, torch.zeros(2)]),
    ],
)  # fmt: skip
def test_the_device_refuses_tensors_of_the_cpu(mistake, refused):
    with pytest.raises((RuntimeError, TypeError), match="same device|can't convert"):
        mistake(refused)


def test_the_device_refuses_what_a_law_forbids(refused):
    with device_rules(leaves=False), pytest.raises(RuntimeError, match="goes back from accel"):
        refused.cpu()
    with device_rules(float64=False), pytest.raises(TypeError, match="no float64"):
        refused.double()
    with device_rules() as waits:
        assert refused.sum().item() == 0.0 and sum(waits.values()) == 1


def numbers(output):
    """The tensors of an output."""
    return [part for part in (output if isinstance(output, tuple) else (output,)) if isinstance(part, torch.Tensor)]


@pytest.mark.parametrize("kernel", KERNEL_CASES)
def test_a_kernel_computes_on_a_device(kernel, device):
    family = "gpt" if kernels[kernel].causal and kernels[kernel].cached else "bert"
    model = make(family, 0, kernel=kernel)
    inputs = example(model)
    with torch.no_grad():
        expected = model(**inputs)
    model.to(device)
    with device_rules(leaves=False, float64=False):
        output = model(**{name: value.to(device) for name, value in inputs.items()})
        output.square().sum().backward()
    torch.testing.assert_close(output.detach().cpu(), expected)


def attends(model):
    with suppress(ValueError):
        return bool(find_kernels(model))
    return False


@pytest.mark.parametrize(("family", "number"), FIRST)
def test_a_family_trains_and_looks_on_a_device(family, number, device):
    model = make(family, number)
    inputs = example(model)
    with torch.no_grad():
        expected = model(**inputs)
    model.to(device)
    placed = {name: value.to(device) for name, value in inputs.items()}
    with torch.no_grad():
        with device_rules(leaves=family in PACKS, float64=False):
            outputs = model(**placed)
        if attends(model):
            with look(model) as seen:
                model(**placed)
            assert all(weights.isfinite().all() for weights in seen.attention.values())
    for got, wanted in zip(numbers(outputs), numbers(expected), strict=True):
        torch.testing.assert_close(got.cpu(), wanted)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with device_rules(leaves=family in PACKS, float64=False):
        for _ in range(2):
            sum(part.float().square().sum() for part in numbers(model(**placed))).backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(("family", "number"), FIRST)
def test_a_family_writes_the_same_tokens_on_a_device(family, number, device):
    model = make(family, number).double()
    if not hasattr(model, "new_cache"):
        pytest.skip("writes nothing")
    inputs = {name: value for name, value in example(model).items() if name in getattr(model, "reads", ())}

    def written(model):
        place = device_of(model)
        requests = [
            Request(
                prompt=[1, 2], max_len=4, ends=(3,), beams=beams,
                inputs={name: value[0].to(place) for name, value in inputs.items() if name != "lengths"},
            )
            for beams in (1, 2)
        ]  # fmt: skip
        return [ticket.hypotheses[0].ids for ticket in Engine(model).serve(requests)]

    expected = written(model)
    assert written(model.to(device)) == expected


def test_speech_is_transcribed_and_looked_into_on_a_device(device):
    tokenizer = Tokenizer.train(texts=["the train leaves at noon"], kind="char", vocab_size=300)
    config = ConformerConfig(
        dim=16, depth=1, heads=2, ffn_dim=24, channels=2, bands=16, vocab_size=tokenizer.vocab_size
    )
    mel = LogMel(style="nemo", fft=512, preemphasis=0.97, bands=16)
    task = CTCTranscriber(Conformer(config), mel, tokenizer)
    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    batch = Batch(
        {"audio": torch.randn(2, 90, 16), "lengths": torch.tensor([90, 70])}, torch.tensor([[1], [2]]), (0, 1)
    )
    text, score, logits = task.transcribe(samples).text, task.validate([batch]), task.read(samples).logits().detach()
    task.model.to(device)
    assert task.transcribe(samples).text == text and task.validate([batch.to(torch.device(device))]) == score
    assert torch.allclose(task.read(samples).logits(), logits, atol=1e-5)
