"""Convolutions see what is near, attention sees everything: a block by scipy, and what reaches what."""

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d

import regard
from regard.models import CNNAttention, CNNAttentionConfig
from regard.nn.convolution import ResidualBlock

SIZES = dict(image=15, channels=2, patch=1, dim=6, depths=(1,), heads=2, labels=("a", "b", "c"))


def build(**changes):
    return CNNAttention(CNNAttentionConfig(**SIZES | changes)).double().eval()


def convolved(x, weight, stride):
    """A convolution with zeros around, by scipy: one map at a time."""
    maps = [sum(correlate2d(x[c], row[c], mode="same") for c in range(len(x))) for row in weight]
    return np.stack(maps)[:, ::stride, ::stride]


def normed(x, norm):
    weight, bias = (getattr(norm, name).detach().numpy()[:, None, None] for name in ("weight", "bias"))
    return (x - x.mean(0)) / np.sqrt(x.var(0) + norm.eps) * weight + bias


@pytest.mark.parametrize(("widths", "stride"), [((4, 4), 1), ((3, 5), 2)])
def test_a_residual_block_by_scipy(widths, stride):
    block = ResidualBlock(*widths, stride=stride).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    x = torch.randn(2, widths[0], 7, 10, dtype=torch.float64)
    weights = [layer.weight.detach().numpy() for layer in block.convolutions]
    for image, got in zip(x.numpy(), block(x).detach().numpy(), strict=True):
        y = convolved(np.maximum(normed(image, block.norms[0]), 0), weights[0], stride)
        y = convolved(np.maximum(normed(y, block.norms[1]), 0), weights[1], 1)
        beside = image if block.skip is None else convolved(image, block.skip.weight.detach().numpy(), stride)
        np.testing.assert_allclose(got, y + beside, atol=1e-12)


def reached(model, pixels):
    """Pixels that the vector in the middle of the map depends on."""
    pixels = pixels.requires_grad_()
    features = model.features(pixels)[0].unflatten(0, (15, 15))
    (gradient,) = torch.autograd.grad((features[7, 7] * torch.randn(6, dtype=torch.float64)).sum(), pixels)
    return gradient[0].abs().amax(0) > 0


def test_convolutions_see_a_neighbourhood_and_attention_everything():
    pixels = torch.randn(1, 2, 15, 15, dtype=torch.float64)
    near = torch.zeros(15, 15, dtype=torch.bool)
    near[4:11, 4:11] = True  # three layers of 3 × 3
    assert torch.equal(reached(build(attention=0), pixels), near)
    assert reached(build(attention=1), pixels).all()


def test_attention_that_says_nothing_leaves_the_plain_cnn():
    model, plain = build(depths=(1, 2)), build(depths=(1, 2), attention=0)
    kept = {
        name: value for name, value in model.state_dict().items() if not name.startswith(("blocks.2.", "blocks.4."))
    }
    names = {"blocks.3.": "blocks.2."}
    plain.load_state_dict({names.get(name[:9], name[:9]) + name[9:]: value for name, value in kept.items()})
    pixels = torch.randn(3, 2, 15, 15, dtype=torch.float64)
    assert not torch.allclose(model(pixels), plain(pixels))
    with torch.no_grad():
        for layer in (model.blocks[2], model.blocks[4]):
            layer.attention.out.weight.zero_()
    torch.testing.assert_close(model(pixels), plain(pixels))


def test_what_it_looks_at_is_seen():
    model = build(depths=(1, 1), attention=2)
    pixels = torch.randn(2, 2, 15, 15, dtype=torch.float64)
    with torch.no_grad(), regard.look(model) as seen:
        found = model(pixels)
    assert torch.equal(found, model(pixels))
    assert [tuple(weights.shape) for weights in seen.of("self")] == [(2, 1, 225, 225), (2, 2, 64, 64)]
    for weights in seen.of("self"):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    with pytest.raises(ValueError, match="no attention to look at"), regard.look(build(attention=0)):
        pass


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(attention=2), "attention=2 is no number of stages; there are 1"),
        (dict(activation="swiglu"), "has a gate"),
        (dict(heads=5), "heads=5 does not divide dim=6"),
        (dict(depths=()), "must have a positive number for each stage"),
        (dict(path_dropout=1.0), "not in"),
        (dict(image=0), "image=0 must be one positive number"),
    ],
)
def test_fields_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        CNNAttentionConfig(**SIZES | fields)


def test_other_channels_are_an_error():
    with pytest.raises(ValueError, match="images have 3 channels, the model reads 2"):
        build()(torch.randn(1, 3, 15, 15, dtype=torch.float64))
