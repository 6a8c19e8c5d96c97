"""How fast a model writes: what is printed, not how much it is."""

import json

import pytest

from regard.bench.decode import DecodeConfig, measure_decode, weight_bytes
from regard.decode.engine import Engine
from regard.models import build, preset
from tests.cli.calling import call, fails


def test_every_figure_is_there(capsys):
    words = ["bench", "decode", "gpt:tiny", "--batch", "1,3", "--prompt", 5, "--new", 4, "--rounds", 1, "--quiet"]
    call(*words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in found["batches"]] == [1, 3]
    assert all(row["tokens_per_second"] > 0 and row["first_token_ms"] > 0 for row in found["batches"])
    assert found["ceiling"] == pytest.approx(found["bandwidth_gb"] * 1e3 / found["weight_mb"])
    call(*words, "--quantize", "int8")
    shown = capsys.readouterr().out
    assert "int8" in shown and "ceiling of one text" in shown and "first token" in shown


@pytest.mark.parametrize("source", ["t5:tiny", "transformer:tiny"])
def test_encoder_decoders_and_beams(source):
    config = DecodeConfig(batches=(2,), prompt=3, new=3, beams=2, rounds=1)
    found = measure_decode(source, config)
    assert found["beams"] == 2 and found["batches"][0]["tokens_per_second"] > 0


def test_the_bytes_of_a_step_are_those_of_the_matrices():
    model = build("gpt", preset("gpt", "tiny", vocab_size=100, depth=2))
    matrices = sum(p.nbytes for name, p in model.named_parameters() if p.dim() == 2)  # the tied head is counted once
    assert weight_bytes(Engine(model)) == matrices


def test_mistakes(capsys):
    assert "no such directory: nowhere" in fails(capsys, "bench", "decode", "nowhere")
    with pytest.raises(ValueError, match="at least"):
        DecodeConfig(batches=(0,))
