"""The Conformer: equal to Parakeet's, and blind to padding in training, too."""

import pytest
import torch
from transformers import ParakeetCTCConfig, ParakeetForCTC

from regard.models import Conformer, ConformerConfig
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.kernels import attend
from regard.nn.masks import padding
from regard.nn.positions import sinusoids
from regard.nn.relative_attention import RelativeAttention

SMALL = dict(dim=24, depth=2, heads=3, ffn_dim=40, channels=6, bands=16, vocab_size=33, conv_size=5, dropout=0.0)
PARTS = {
    "feed_forward1.linear1": "first.up", "feed_forward1.linear2": "first.down",
    "feed_forward2.linear1": "feedforward.up", "feed_forward2.linear2": "feedforward.down",
    "self_attn.q_proj": "attention.query", "self_attn.o_proj": "attention.out",
    "conv.pointwise_conv1": "convolution.gate", "conv.depthwise_conv": "convolution.depthwise",
    "conv.norm": "convolution.norm", "conv.pointwise_conv2": "convolution.out", "norm_feed_forward1": "norms.first",
    "norm_self_att": "norms.attention", "norm_conv": "norms.convolution", "norm_feed_forward2": "norms.feedforward",
    "norm_out": "norms.out",
}  # fmt: skip


def translated(theirs):
    """Their weights by our names."""
    out = {}
    for name, value in theirs.items():
        name = name.removeprefix("encoder.").replace("subsampling.linear", "subsampling.out")
        name = name.replace("layers.", "blocks.", 1) if name.startswith("layers.") else name
        for part, ours in PARTS.items():
            name = name.replace(f".{part}.", f".{ours}.")
        if name.startswith("subsampling.layers."):
            index, end = name.removeprefix("subsampling.layers.").split(".")
            kind, number = divmod(int(index) - 2, 3)[::-1]
            name = (
                f"subsampling.first.{end}"
                if index == "0"
                else f"subsampling.{('depthwise', 'pointwise')[kind]}.{number}.{end}"
            )
        name = name.replace("ctc_head", "head").replace("self_attn.relative_k_proj", "attention.distance")
        name = name.replace("self_attn.bias_u", "attention.content_bias")
        name = name.replace("self_attn.bias_v", "attention.distance_bias")
        if name.endswith("_bias"):
            value = value[:, None]
        if (
            "convolution.depthwise" not in name
            and "subsampling" not in name
            and value.dim() == 3
            and "attention" not in name
        ):
            value = value.squeeze(-1)
        out[name] = value
    for name in [name for name in out if "self_attn.k_proj" in name]:
        other = name.replace("k_proj", "v_proj")
        out[name.replace("self_attn.k_proj", "attention.key_value")] = torch.cat([out.pop(name), out.pop(other)])
    return out


@pytest.mark.parametrize("scale", [True, False])
def test_logits_equal_parakeets(scale):
    torch.manual_seed(0)
    encoder = dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, subsampling_factor=8,
        subsampling_conv_channels=6, num_mel_bins=16, conv_kernel_size=5, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, layerdrop=0.0, dropout_positions=0.0, scale_input=scale,
    )  # fmt: skip
    theirs = ParakeetForCTC(ParakeetCTCConfig(vocab_size=33, pad_token_id=32, encoder_config=encoder)).eval()
    for name, value in [*theirs.named_parameters(), *theirs.named_buffers()]:
        if "bias_" in name or "running_mean" in name:
            torch.nn.init.normal_(value)
    ours = Conformer(ConformerConfig(**SMALL, blank=32, subsampling=8, scale_input=scale)).eval()
    ours.load_state_dict(translated(theirs.state_dict()))
    audio, lengths = torch.randn(3, 90, 16), torch.tensor([90, 51, 77])
    with torch.no_grad():
        wanted = theirs(audio, attention_mask=torch.arange(90) < lengths[:, None]).logits
        logits = ours(audio, lengths)
    counts = ours.out_lengths(lengths).tolist()
    assert counts == [12, 7, 10]
    for row, other, count in zip(logits, wanted, counts, strict=True):
        assert (row[:count] - other[:count]).abs().max() < 1e-5


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing(norm, training):
    torch.manual_seed(1)
    model = Conformer(ConformerConfig(**SMALL, conv_norm=norm)).double().train(training)
    audio, lengths = torch.randn(2, 61, 16).double(), torch.tensor([61, 37])
    rows = model(audio, lengths)
    junk = torch.cat([audio, torch.randn(2, 20, 16).double()], dim=1)
    junk[1, 37:] = 7.0
    again = model(junk, lengths)
    for row, other, count in zip(rows, again, model.out_lengths(lengths).tolist(), strict=True):
        assert (row[:count] - other[:count]).abs().max() < 1e-12
    assert (model.embed(audio, lengths) - model.embed(junk, lengths)).abs().max() < 1e-12
    if not training or norm == "layer":
        alone = model(audio[1:, :37], lengths[1:])
        assert (alone[0] - rows[1, : alone.shape[1]]).abs().max() < 1e-12


def test_relative_positions_are_those_of_their_definition():
    torch.manual_seed(2)
    layer = RelativeAttention(AttentionConfig(dim=12, heads=3)).double()
    torch.nn.init.normal_(layer.content_bias)
    torch.nn.init.normal_(layer.distance_bias)
    x, T = torch.randn(2, 7, 12).double(), 7
    q, k, v = Attention.project(layer, x)
    far = sinusoids(2 * T, 12, start=0).double()  # distances 0 …; sines change their sign for negative ones
    distance = torch.arange(T)[:, None] - torch.arange(T)
    waves = far[distance.abs()]
    waves[..., 0::2] *= distance.sign()[..., None]
    r = layer.distance(waves).unflatten(-1, (3, 4))  # T S H K
    scores = (q + layer.content_bias) @ k.mT + torch.einsum("bhtk,tshk->bhts", q + layer.distance_bias, r)
    mixed, _ = attend(scores * 4**-0.5, v)
    assert (layer(x) - layer.out(mixed.transpose(1, 2).flatten(2))).abs().max() < 1e-6
    mask = padding(torch.tensor([7, 4]))
    assert (layer(x, mask=mask)[1, :4] - layer(x[1:, :4])[0]).abs().max() < 1e-12


def test_sizes_that_cannot_be_are_refused():
    for change, message in (
        (dict(conv_size=4), "must be odd"), (dict(blank=33), "no token"), (dict(norm_place="post"), "before each part"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ConformerConfig(**SMALL | change)
    with pytest.raises(ValueError, match="no keys of its own"):
        Conformer(ConformerConfig(**SMALL, kernel="reformer"))
