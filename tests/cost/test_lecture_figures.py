"""Every figure about size or cost in the lectures; sizes in both units, since lectures 001 and 002 differ."""

import pytest

from regard.cost import (
    attention_entries,
    attention_matrix_bytes,
    binary_size,
    cost,
    decimal_size,
    decoder_parameters,
    forward_flops,
    hardware_flops,
    patch_values,
    patches,
    training_flops,
)
from regard.models import TransformerConfig

GPT3 = dict(depth=96, dim=12_288, vocab_size=50_257, context=2_048)
P100 = 9.5e12
HOUR, DAY = 3_600, 86_400


@pytest.mark.parametrize(
    ("tokens", "layers", "heads", "decimal", "binary"),
    [
        (14**2, 1, 1, "153.66 kB", "150.06 KiB"),
        (14**2, 48, 16, "118.01 MB", "112.55 MiB"),
        (16**2, 1, 1, "262.14 kB", "256.00 KiB"),
        (16**2, 48, 16, "201.33 MB", "192.00 MiB"),
        (128**2, 48, 16, "824.63 GB", "768.00 GiB"),
        (1024, 1, 8, "33.55 MB", "32.00 MiB"),
        (1024, 12, 8, "402.65 MB", "384.00 MiB"),
    ],
)
def test_attention_matrices_in_both_units(tokens, layers, heads, decimal, binary):
    size = attention_matrix_bytes(heads=heads, queries=tokens, keys=tokens, layers=layers)
    assert (decimal_size(size), binary_size(size)) == (decimal, binary)


def test_001_patches_of_a_vision_transformer():
    assert patches(224, 16) == 14**2
    assert attention_entries(patches(224, 16)) == 14**4 == 38_416
    assert attention_entries(patches(224, 16) + 1) == 38_809  # with the class token
    assert attention_matrix_bytes(heads=16, queries=196, keys=196, layers=48) / 2**20 == pytest.approx(112.5, abs=0.05)
    assert attention_entries(16**2) == 16**4 == 65_536


def test_001_pixels_as_tokens():
    assert patches(128, 1) == 128**2
    size = attention_matrix_bytes(heads=16, queries=patches(128, 1), keys=patches(128, 1), layers=48)
    assert size == 768 * 2**30
    assert patches(224, 1) == 50_176


def test_001_windows():
    assert attention_entries(56**2) == 56**4 == 9_834_496
    assert attention_entries(56**2, window=7**2) == 7**2 * 56 * 56 == 153_664


def test_002_attention_of_a_layer_of_ours():
    matrices = cost(TransformerConfig(heads=8, depth=12), length=1024).memory.attention_matrices
    assert matrices["encoder"] / 12 / 1e6 == pytest.approx(33.55, abs=0.005)
    assert matrices["encoder"] / 1e6 == pytest.approx(402.7, abs=0.05)
    assert matrices["encoder"] / 2**20 == 384


def test_002_gpt3():
    parameters = decoder_parameters(**GPT3)
    assert parameters / 1e9 == pytest.approx(174.60, abs=0.005)
    assert training_flops(parameters, 300_000_000_000) == pytest.approx(3.14e23, rel=0.002)


def test_002_forward_pass_is_a_thousand_times_the_lecture():
    flops = forward_flops(175_000_000_000, 2_048)
    assert flops == pytest.approx(7.17e14, rel=0.001)
    assert flops / 700e9 == pytest.approx(1_024)


def test_002_training_bert_is_a_fifteenth_of_the_lecture():
    flops = training_flops(110_000_000, 10_000_000_000)
    assert flops == pytest.approx(6.6e18)
    assert 1e20 / flops == pytest.approx(15.2, abs=0.05)


def test_001_make_model():
    untied = TransformerConfig(vocab_size=37_000, tie="none", head_bias=True, final_norm=True)
    assert cost(untied).parameters["total"] == 101_009_544
    tied = cost(TransformerConfig(vocab_size=37_000, tie="all", norm_place="post"))
    assert tied.parameters["total"] / 1e6 == pytest.approx(63.1, abs=0.05)
    assert (decimal_size(tied.memory.weights), binary_size(tied.memory.weights)) == ("252.33 MB", "240.64 MiB")


def test_001_training_cost_of_base_and_big():
    assert hardware_flops(8, P100, 12 * HOUR) == pytest.approx(3.28e18, rel=0.002)
    assert hardware_flops(8, P100, 3.5 * DAY) == pytest.approx(2.30e19, rel=0.002)


def test_004_patches():
    assert patches(48, 16) == 9
    assert (patches(224, 16), patch_values(16)) == (196, 768)
    with pytest.raises(ValueError, match="patch=16 does not divide side=50"):
        patches(50, 16)


def test_002_image_and_text_tokens():
    assert patches(224, 16) + 20 == 216


def test_000_comparisons():
    assert attention_entries(100) == 10_000
    assert attention_entries(200) == 40_000
