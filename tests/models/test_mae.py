"""What is hidden from the encoder, and what is not."""

import pytest
import torch

from regard.data.sets.batches import Batch
from regard.doctor import laws
from regard.models import MAEConfig
from regard.nn.patches import cut
from regard.objectives.pixels import masked_pixels
from tests.laws.cases import SMALL, example, make


@torch.no_grad()
def test_hidden_patches_are_not_seen():
    model = make("mae").double()
    inputs = example(model)
    pixels, noise = inputs["pixels"][:, :, :12, :18], inputs["noise"]
    hidden = model.order(noise)[1]
    assert hidden.sum(1).tolist() == [18] * 3  # three quarters of 24
    seen = noise <= noise.sort(1).values[:, 5:6]
    assert torch.equal(hidden, ~seen)
    shown = torch.nn.functional.interpolate(hidden.view(3, 1, 4, 6).double(), scale_factor=3).bool()
    junk = torch.where(shown, torch.randn_like(pixels), pixels)
    laws.close(model(junk, noise), model(pixels, noise), "other pixels in hidden patches")
    laws.differs(
        model(torch.where(shown, pixels, junk + 1), noise), model(pixels, noise), "other pixels in visible ones"
    )
    assert model.features(pixels, noise).shape == (3, 7, 24)


@torch.no_grad()
def test_each_guess_is_at_its_place():
    """With the noise permuted only who is hidden changes: guesses are not in the order of the noise."""
    model = make("mae").double()
    inputs = example(model)
    swapped = inputs["noise"].clone()
    order = swapped.argsort(1)
    one, other = order[:, 0], order[:, 1]  # both are visible
    rows = torch.arange(3)
    swapped[rows, one], swapped[rows, other] = swapped[rows, other], swapped[rows, one]
    laws.close(model(inputs["pixels"], swapped), model(**inputs), "two visible patches swapped their noise")


def test_the_loss_is_of_hidden_patches_alone():
    model = make("mae", normalized=True).double()
    inputs = example(model)
    loss, count = masked_pixels(model, Batch(inputs, inputs["pixels"], ()))
    patches = cut(inputs["pixels"], 3)
    wanted = (patches - patches.mean(-1, keepdim=True)) / (patches.var(-1, keepdim=True) + 1e-6).sqrt()
    each = (model(**inputs) - wanted).square().mean(-1)
    hidden = model.order(inputs["noise"])[1]
    assert count == hidden.sum() and loss.item() == pytest.approx(each[hidden].sum().item())


def test_a_vector_of_the_whole_image():
    model = make("mae").double()
    pixels = example(model)["pixels"]
    assert torch.equal(model.embed(pixels), model.vit(pixels)) and model.embed(pixels).shape == (3, 24)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(hidden=1.0), "hidden=1.0 is not in"),
        (dict(decoder_depth=0), "decoder_depth=0 must be at least 1"),
        (dict(head_dim=5), "leave head_dim and kv_heads unset"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        MAEConfig(**SMALL["mae"][0] | changes)


@pytest.mark.parametrize("position", ["rotary", "relative"])
def test_positions_that_count_from_patch_to_patch(position):
    with pytest.raises(ValueError, match=f"position={position} counts from patch to patch"):
        make("mae", position=position)
