"""Weights in bfloat16: every family close to itself in half the memory, and the same tokens with a cache as without."""

import copy

import pytest
import torch
import torch.nn.functional as F

from regard.decode import generate
from regard.decode.engine import Engine
from regard.hub.checkpoint import load_model, save_model
from regard.native.half import multiply_half, pack_half
from regard.native.quantized import is_quantized, quantize, size_of
from regard.registry import models
from regard.tasks import load, loading
from tests.laws.cases import CASES, example, make
from tests.recipes.tiny import shared

FLOATS = ("bilstm", "cnn-attention", "lr-net", "skipgram", "mvit", "swin")
"""Families whose convolutions, tables or LSTMs stay as they are, and weigh."""


@pytest.mark.parametrize(("family", "number"), CASES)
def test_every_family_is_close_to_itself(family, number):
    model = make(family, number)
    inputs, before = example(model), size_of(model)
    with torch.no_grad():
        wanted = model(**inputs)
        found = quantize(model, "bfloat16")(**inputs)
    assert found.dtype == torch.float32
    assert family in FLOATS or is_quantized(model) and size_of(model) < 0.75 * before
    assert F.cosine_similarity(wanted.flatten(0, -2), found.flatten(0, -2), dim=-1).min() > 0.995


@pytest.mark.parametrize("both", [False, True])
def test_products_are_those_of_rounded_numbers(both):
    matrix, x, bias = torch.randn(701, 389), torch.randn(5, 389), torch.randn(701)
    rounded, numbers = matrix.bfloat16().double(), (x.bfloat16() if both else x).double()
    wanted = numbers @ rounded.T + bias
    found = multiply_half(pack_half(matrix, both=both), x, bias)
    # Of a product of bfloat16 the result is rounded, too: to 8 bits.
    assert ((found - wanted).abs() <= (wanted - bias).abs() * (2**-8 if both else 0) + 1e-4).all()


@pytest.mark.parametrize("family", ["gpt", "transformer", "lstm"])
def test_the_engine_writes_what_the_model_says(family):
    model = quantize(make(family), "bfloat16")
    inputs = example(model)
    given = {name: value for name, value in inputs.items() if name not in ("ids", "target")}
    prefix = torch.randint(97, (3, 2))
    found = generate(model, prefix, eos=None, max_len=5, **given)
    written = prefix
    with torch.no_grad():
        for _ in range(5):
            scores = model(**given, **{"target" if given else "ids": written})[:, -1]
            written = torch.cat([written, scores.argmax(-1, keepdim=True)], dim=1)
    assert [one.ids for one in found] == written[:, 2:].tolist()
    if family == "gpt":
        with pytest.raises(ValueError, match="need float32 on the CPU, the model has torch.bfloat16"):
            Engine(model, fast=True)


def test_tied_matrices_are_kept_once_and_nothing_is_saved(tmp_path):
    model = quantize(make("transformer"), "bfloat16")
    assert len({part.values.data_ptr() for part in (model.head, model.source_embedding, model.target_embedding)}) == 1
    with pytest.raises(ValueError, match="quantised weights are not saved"):
        save_model(model, tmp_path)
    whole = make("gpt")
    save_model(whole, tmp_path, quantize="bfloat16")
    assert "bfloat16" in (tmp_path / "config.json").read_text() and not is_quantized(load_model(tmp_path))
    again = quantize(copy.deepcopy(whole), "bfloat16").double()
    inputs = example(whole)
    with torch.no_grad():
        assert F.cosine_similarity(whole.double()(**inputs), again(**inputs), dim=-1).min() > 0.995


def test_loading_says_when_this_cpu_is_slow_at_it(tmp_path_factory, monkeypatch, capsys):
    run = shared(tmp_path_factory).run("classify")
    for times, said in (
        (3.0, "bfloat16: products take 3 times as long as in float32 on this CPU; int8 is faster"),
        (1.0, ""),
    ):
        monkeypatch.setattr(loading, "slowness", lambda *_, times=times: times)
        task = load(run, "bfloat16")
        assert task.quantization == "bfloat16" and capsys.readouterr().err.strip() == said
    assert models.name_of(type(task.model)) == "bert" and task.classify(["A red cat."])[0]
