"""The device of a run: what is not there is one line with the cure, and random numbers go on as they were."""

import pytest
import torch

from regard.train.config import TrainConfig
from regard.train.device import loading_device, pick, random_states, set_random_states


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cuda", "--train.device cuda: PyTorch was built without CUDA; use cpu, or install a PyTorch with CUDA"),
        ("cuda:1", "--train.device cuda:1: PyTorch was built without CUDA"),
        ("mps", "--train.device mps: PyTorch was built without MPS"),
        ("cdua", "--train.device cdua: no such device; did you mean 'cuda'?"),
        ("gpu", "--train.device gpu: no such device; "),
        ("cuda:first", "--train.device cuda:first: 'first' is no number of a device; write cuda:0"),
    ],
)
@pytest.mark.skipif(torch.backends.cuda.is_built() or torch.backends.mps.is_built(), reason="there are such devices")
def test_a_device_that_is_not_there_is_one_line(name, line):
    with pytest.raises(ValueError) as error:
        pick(name, "--train.device")
    assert str(error.value).startswith(line) and "\n" not in str(error.value)


def test_auto_is_the_cpu_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert TrainConfig().device == "auto" and pick("auto") == torch.device("cpu")


def test_models_are_loaded_to_the_device_of_the_environment(monkeypatch):
    monkeypatch.delenv("REGARD_DEVICE", raising=False)
    assert loading_device() == torch.device("cpu")
    monkeypatch.setenv("REGARD_DEVICE", "nonsense")
    with pytest.raises(ValueError, match="device nonsense: no such device"):
        loading_device()
    assert loading_device("cpu") == torch.device("cpu")


def test_random_states_are_restored():
    states = random_states(torch.device("cpu"))
    first = torch.rand(3)
    set_random_states(torch.device("cpu"), states | {"rng.cuda": torch.zeros(16, dtype=torch.uint8)})
    assert torch.equal(torch.rand(3), first)
