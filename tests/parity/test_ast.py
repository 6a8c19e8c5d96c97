"""Against Hugging Face's AST: frames of its feature extractor, vectors, logits, and the way back."""

import numpy as np
import pytest
import torch

from regard.hub import export_model, load_model
from regard.hub.feature_extractor import load_features, save_features
from tests.parity.peers import CLOSE, change_config, far, random_model, saved

transformers = pytest.importorskip("transformers")
SIZES = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, patch_size=4, frequency_stride=3,
    time_stride=2, max_length=21, num_mel_bins=14,
)  # fmt: skip


def ast(kind="ForAudioClassification", **changes):
    config = transformers.ASTConfig(**SIZES | dict(num_labels=5) | changes)
    return random_model(getattr(transformers, f"AST{kind}"), config)


@pytest.mark.parametrize("changes", [{}, dict(frequency_stride=4, time_stride=4), dict(hidden_act="relu")])
def test_logits_and_the_way_back(tmp_path, changes):
    theirs = ast(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    audio = torch.randn(3, 21, 14)
    with torch.no_grad():
        wanted = theirs(input_values=audio).logits
        assert far(ours(audio), wanted) <= CLOSE
    assert ours.config.labels == tuple(f"LABEL_{i}" for i in range(5))
    export_model(ours, tmp_path / "ours")
    again = transformers.ASTForAudioClassification.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(input_values=audio).logits, wanted)


def test_vectors_of_a_model_without_labels(tmp_path):
    theirs = ast("Model")
    ours = saved(theirs, tmp_path / "theirs")
    audio = torch.randn(3, 21, 14)
    rows = ours.config.grid[0]
    with torch.no_grad():
        wanted = theirs(input_values=audio)
        assert far(ours(audio), wanted.pooler_output) <= CLOSE
        patches = wanted.last_hidden_state[:, 2:].unflatten(1, (rows, -1)).flip(1).flatten(1, 2)
        assert far(ours.features(audio)[:, 2:], patches) <= CLOSE
    export_model(ours, tmp_path / "ours")
    again = transformers.ASTModel.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(input_values=audio).pooler_output, wanted.pooler_output)


def test_what_differs_is_refused(tmp_path):
    saved(ast(), tmp_path)
    change_config(tmp_path, qkv_bias=False)
    with pytest.raises(ValueError, match="qkv_bias=False cannot be read here"):
        load_model(tmp_path)


@pytest.mark.parametrize("settings", [{}, dict(num_mel_bins=64, max_length=300, do_normalize=False)])
def test_frames_are_those_of_their_feature_extractor(tmp_path, settings):
    theirs = transformers.ASTFeatureExtractor(**settings)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_features(tmp_path / "theirs")
    rng = np.random.default_rng(0)
    for seconds in (0.4, 2.0, 12.0):
        samples = 0.1 * rng.standard_normal(round(16_000 * seconds)).astype(np.float32)
        wanted = theirs(samples, sampling_rate=16_000, return_tensors="pt").input_values[0]
        assert (ours(samples) - wanted).abs().max() <= 1e-4  # theirs rounds as Kaldi does
    save_features(tmp_path, ours)
    assert load_features(tmp_path) == ours
    again = transformers.ASTFeatureExtractor.from_pretrained(tmp_path)
    assert np.array_equal(
        again(samples, sampling_rate=16_000).input_values, theirs(samples, sampling_rate=16_000).input_values
    )
