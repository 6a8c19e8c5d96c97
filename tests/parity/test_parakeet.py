"""Against Hugging Face's Parakeet with CTC: logits with and without padding, and the way back."""

import pytest
import torch

from regard.hub import export_model, load_model
from regard.models import Conformer, ConformerConfig
from tests.parity.peers import CLOSE, change_config, random_model, saved

transformers = pytest.importorskip("transformers")
LENGTHS = (83, 47, 64)


def parakeet(**changes):
    encoder = dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_kernel_size=5,
        subsampling_conv_channels=6, num_mel_bins=24, max_position_embeddings=100,
    )  # fmt: skip
    config = transformers.ParakeetCTCConfig(vocab_size=31, pad_token_id=30, encoder_config=encoder | changes)
    model = random_model(transformers.ParakeetForCTC, config)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize("changes", [{}, dict(scale_input=False, conv_kernel_size=9), dict(subsampling_factor=4)])
def test_logits_and_the_way_back(tmp_path, changes):
    theirs = parakeet(**changes)
    ours = saved(theirs, tmp_path / "theirs")
    torch.manual_seed(1)
    audio, lengths = torch.randn(3, max(LENGTHS), 24), torch.tensor(LENGTHS)
    mask = torch.arange(max(LENGTHS)) < lengths[:, None]
    with torch.no_grad():
        wanted = theirs(input_features=audio * mask[..., None], attention_mask=mask).logits
        got = ours(audio, lengths)
        for row, count in enumerate(ours.out_lengths(lengths).tolist()):
            assert (got[row, :count] - wanted[row, :count]).abs().max() <= CLOSE
    export_model(ours, tmp_path / "ours")
    again = transformers.ParakeetForCTC.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(input_features=audio * mask[..., None], attention_mask=mask).logits, wanted)


def test_what_differs_is_refused(tmp_path):
    saved(parakeet(), tmp_path)
    change_config(tmp_path, encoder_config=dict(hidden_size=24, num_attention_heads=4, convolution_bias=False))
    with pytest.raises(ValueError, match="convolution_bias=False cannot be read here"):
        load_model(tmp_path)


def test_a_model_that_they_cannot_express_says_so(tmp_path):
    model = Conformer(ConformerConfig(dim=24, depth=1, heads=4, ffn_dim=37, channels=4, conv_norm="layer"))
    with pytest.raises(ValueError, match="conv_norm='layer' would have to be 'batch'"):
        export_model(model, tmp_path)
