"""Against Hugging Face's PatchTST: forecasts, and the way back."""

import numpy as np
import pytest
import torch

import regard
from regard.hub import export_model, load_model
from regard.models import PatchTST, PatchTSTConfig
from tests.parity.peers import CLOSE, change_config, far, random_model, saved

transformers = pytest.importorskip("transformers")
SIZES = dict(
    num_input_channels=3, context_length=41, prediction_length=7, patch_length=5, patch_stride=3, d_model=20,
    num_attention_heads=4, num_hidden_layers=2, ffn_dim=37,
)  # fmt: skip


def patchtst(**changes):
    model = random_model(transformers.PatchTSTForPrediction, transformers.PatchTSTConfig(**SIZES | changes))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


def walks(rows=3, channels=3):
    return 0.3 * torch.randn(rows, 41, channels).cumsum(1) + 1  # outputs of size 1, as CLOSE is for


@pytest.mark.parametrize(
    "changes",
    [
        {}, dict(norm_type="layernorm", pre_norm=False), dict(channel_attention=True), dict(pooling_type=None),
        dict(pooling_type="max", scaling=None), dict(positional_encoding_type="random", activation_function="relu"),
        dict(patch_stride=5, num_input_channels=1, channel_attention=True, norm_type="layernorm"),
    ],
)  # fmt: skip
def test_forecasts_and_the_way_back(tmp_path, changes):
    theirs = patchtst(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    series = walks(channels=theirs.config.num_input_channels)
    with torch.no_grad():
        wanted = theirs(past_values=series).prediction_outputs
        assert far(ours(series), wanted) <= CLOSE
    export_model(ours, tmp_path / "ours")
    again = transformers.PatchTSTForPrediction.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(past_values=series).prediction_outputs, wanted)


def test_the_gradients_are_theirs(tmp_path):
    """In training, too: batch norms and scales of windows are computed alike."""
    theirs = patchtst(pooling_type=None)
    ours = saved(theirs, tmp_path)
    series, truth = walks(5), torch.randn(5, 7, 3)
    for model in (theirs.train(), ours.train()):
        out = model(past_values=series).prediction_outputs if model is theirs else model(series)
        (out - truth).square().mean().backward()
    pairs = (
        (ours.patches.project.weight, theirs.model.encoder.embedder.input_embedding.weight),
        (ours.head.weight, theirs.head.projection.weight),
        (ours.blocks[0].norms["attention"].weight, theirs.model.encoder.layers[0].norm_sublayer1.batchnorm.weight),
    )
    for own, other in pairs:
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_a_table_is_forecast_by_a_published_model(tmp_path):
    theirs = patchtst(num_input_channels=1)
    theirs.save_pretrained(tmp_path)
    series = walks(1, 1)
    with torch.no_grad():
        wanted = theirs(past_values=series).prediction_outputs[0, :, 0]
    (forecast,) = regard.load(tmp_path).forecast(series[0].numpy())
    np.testing.assert_allclose(forecast.mean, wanted, rtol=1e-5)
    assert not forecast.quantiles


@pytest.mark.parametrize(
    "change, error",
    [
        (dict(loss="nll"), "loss='nll' cannot be read here; only 'mse' can"),
        (dict(use_cls_token=True), "use_cls_token=True cannot be read"),
        (dict(share_embedding=False), "share_embedding=False cannot be read"),
        (dict(scaling="mean"), "scaling='mean' cannot be read here; known: std, None, False"),
        (dict(norm_type="rms"), "norm_type='rms' is not known"),
        (dict(architectures=["PatchTSTForPretraining"]), "architectures='PatchTSTForPretraining' is not known"),
        (dict(patch_length=50), r"fit into context=41.*\(context is context_length, patch is patch_length"),
    ],
)
def test_what_differs_is_refused(tmp_path, change, error):
    saved(patchtst(), tmp_path)
    change_config(tmp_path, **change)
    with pytest.raises(ValueError, match=error) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_model_that_they_cannot_express_says_so(tmp_path):
    sizes = dict(context=24, horizon=6, patch=4, dim=20, heads=2)
    for changes, error in (
        (dict(quantiles=(0.1, 0.9)), r"quantiles=\(0.1, 0.9\) would have to be \(\)"),
        (dict(linear=True), "linear=True would have to be False"),
        (dict(attends="channels"), "attends='channels' would have to be one of time, both"),
        (dict(position="rotary"), "position='rotary' would have to be 'learned'"),
    ):
        with pytest.raises(ValueError, match=error):
            export_model(PatchTST(PatchTSTConfig(**sizes | changes)), tmp_path)
