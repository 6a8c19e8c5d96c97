"""Gradients against distance: the estimate beside the whole Jacobian, the fitted laws, and a recurrence by hand."""

import json

import pytest
import torch

import regard.bench.gradient as gradient
from regard.bench.gradient import GradientConfig, get_model, input_gradients, law, measure_gradients, reach
from tests.cli.calling import call, fails


def points(function, length=65):
    return [{"length": d, "gradient": function(d)} for d in range(1, length)]


@pytest.mark.parametrize("name", ["rnn", "lstm", "gpt", "gpt:position=none"])
def test_the_estimate_is_the_norm_of_the_jacobian(name, monkeypatch):
    monkeypatch.setattr(gradient, "DIRECTIONS", 500)
    model, vocabulary = get_model(GradientConfig(models=(name,), length=11, dim=8), name)
    model = model.double().eval()
    ids = torch.randint(vocabulary, (1, 11))
    vectors = model.embedding(ids).detach()

    def last(x):
        handle = model.embedding.register_forward_hook(lambda *_: x)
        try:
            return model.features(ids)[0, -1]
        finally:
            handle.remove()

    jacobian = torch.autograd.functional.jacobian(last, vectors)[:, 0]  # D T D
    exact = jacobian.square().sum((0, 2)).div(8).sqrt()
    torch.testing.assert_close(input_gradients(model, ids), exact, rtol=0.15, atol=0)


def test_the_laws():
    assert law(points(lambda d: 3 * 0.5**d))["law"] == "0.5^d"
    assert law(points(lambda d: 1.2**d))["law"] == "1.2^d"
    assert law(points(lambda d: d**-1.5))["law"] == "d^-1.50"
    assert law(points(lambda d: 1 + d / 100))["law"] == "level"
    assert reach(points(lambda d: 0.5**d)) == 7 and reach(points(lambda d: 1.0)) == 64


def test_recurrence_vanishes_or_explodes_and_attention_reaches_everything():
    result = measure_gradients(GradientConfig(models=("rnn", "gpt"), length=40, dim=16, seeds=2))["models"]
    assert result["rnn"]["factor"] < 0.8 and result["rnn"]["reach"] < 20
    assert result["gpt"]["reach"] == 39
    large = measure_gradients(GradientConfig(models=("rnn",), length=40, dim=16, seeds=2, gain=0.5))["models"]
    assert large["rnn"]["factor"] < 0.6 * result["rnn"]["factor"]


def test_the_command(capsys, tmp_path):
    words = ["bench", "gradient", "--length", "16", "--dim", "8", "--seeds", "1", "--quiet"]
    call(*words, "--models", "gru,gpt:residual=false", "--out", tmp_path / "g.png")
    shown = capsys.readouterr().out
    assert "gpt:residual=false" in shown and "d = 15" in shown and (tmp_path / "g.png").stat().st_size > 5000
    call(*words, "--models", "lstm", "--json")
    assert len(json.loads(capsys.readouterr().out)["models"]["lstm"]["points"]) == 15
    assert "transformer is no language model" in fails(capsys, *words, "--models", "transformer")
    assert "gain=0.0 must be a number above 0" in fails(capsys, *words, "--gain", "0")
    assert "did you mean 'lstm'" in fails(capsys, *words, "--models", "lstmm")
