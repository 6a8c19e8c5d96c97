"""DETR: queries are a set, padding is not seen, places are shares of a picture; what zeros at the start cost."""

import pytest
import torch

from regard.doctor.laws import close, differs
from regard.inside.capture.weights import look
from regard.models import DETR, DETRConfig
from regard.native.quantized import quantize
from regard.nn.heads import split_predictions
from regard.nn.lora import add_low_rank
from regard.nn.positioned import PositionedAttention, grid_sinusoids
from tests.laws.cases import make

SIZES = dict(
    stem=5, widths=(8, 12), blocks=(1, 1), dim=24, heads=3, ffn_dim=29, depth=2, decoder_depth=2, queries=7,
    labels=("a", "b"), image=32,
)  # fmt: skip


def pixels(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
@pytest.mark.parametrize("number", [0, 1])
def test_permuted_queries_are_permuted_answers(number):
    model, order = make("detr", number).double(), torch.tensor([3, 0, 4, 1, 2])
    x = pixels(2, 2, 37, 53)
    before = model(x)
    model.queries.copy_(model.queries[order])
    model.contents.copy_(model.contents[order])
    close(model(x), before[:, order], "queries in another order")
    differs(model(x), before, "the queries were permuted")


@torch.no_grad()
def test_what_fills_a_batch_up_changes_nothing():
    """Where zeros stay zeros, as in a ResNet whose norms shift nothing, a padded picture is that picture alone."""
    model = DETR(DETRConfig(**SIZES)).double().eval()
    sizes = torch.tensor([[40, 56], [24, 56], [40, 16]])
    x = torch.zeros(3, 3, 40, 56, dtype=torch.float64)
    for row, (rows, columns) in enumerate(sizes.tolist()):
        x[row, :, :rows, :columns] = pixels(3, rows, columns)
    with look(model, layers="cross") as seen:
        together = model(x, sizes)
    for row, (rows, columns) in enumerate(sizes.tolist()):
        close(together[row : row + 1], model(x[row : row + 1, :, :rows, :columns]), f"picture {row} by itself")
    differs(model(x)[1:], together[1:], "the padding was said to be picture")
    assert not seen.of("cross")[0][2].unflatten(-1, (5, 7))[..., 2:].any()


@torch.no_grad()
def test_places_are_shares_of_a_picture():
    """The middle of a picture has the same place at every resolution; rows and columns are told apart."""
    for side in (3, 9, 27):
        waves = grid_sinusoids(torch.ones(1, side, side, dtype=torch.bool), 24, torch.float64).unflatten(
            1, (side, side)
        )
        last = waves[0, -1, -1]
        close(last, grid_sinusoids(torch.ones(1, 1, 1, dtype=torch.bool), 24, torch.float64)[0, 0], "the last", 1e-5)
        close(waves[0, -1, 0, :12], waves[0, -1, 1, :12], "two columns of a row")
        differs(waves[0, -1, 0, 12:], waves[0, -1, 1, 12:], "two columns")
        close(waves.transpose(1, 2)[..., :12], waves[..., 12:], "rows and columns exchanged")


def test_queries_that_start_with_zeros_make_nothing_of_their_first_self_attention():
    """Its values are all alike, so that no weights matter: published models carry that layer along."""
    model = DETR(DETRConfig(**SIZES)).double()
    model(pixels(2, 3, 40, 24)).square().sum().backward()
    first, second = (block.attention for block in model.decoder.blocks)
    assert first.query.weight.grad.abs().max() < 1e-12 < second.query.weight.grad.abs().max()
    assert model.queries.grad.abs().max() > 0


@torch.no_grad()
def test_values_do_not_know_their_places():
    layer = DETR(DETRConfig(**SIZES)).encoder.blocks[0].attention.double()
    layer.query.weight.zero_()
    layer.query.bias.zero_()  # every query then looks everywhere alike
    x, places = pixels(2, 5, 24), pixels(1, 5, 24) + 1
    close(layer(x, positions=places), layer(x, positions=0 * places), "other places, equal weights")
    assert isinstance(layer, PositionedAttention)


@torch.no_grad()
def test_a_matrix_that_cannot_be_cut_gives_the_same():
    model, x = DETR(DETRConfig(**SIZES)).eval(), pixels(2, 3, 40, 24).float()
    before = model(x)
    add_low_rank(model, 2)
    close(model(x), before, "with detours that are zero", 1e-5)
    found = quantize(model, "int8")(x)
    assert 0 < (found - before).abs().max() < 0.2


def test_scores_and_boxes_are_taken_apart():
    scores, boxes = split_predictions(torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, -50.0, 50.0]]))
    assert scores.tolist() == [[1, 2, 3]] and boxes.tolist() == [[0.5, 0.5, pytest.approx(0), pytest.approx(1)]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(dim=30, heads=3), "positions need a width divisible by 4, got dim=30; use 32"),
        (dict(widths=(8,)), "must have a positive number a stage"),
        (dict(widths=(3, 8)), "bottlenecks are a quarter"),
        (dict(queries=0), "queries=0 must be at least 1"),
        (dict(heads=5), "heads=5 does not divide dim=24"),
    ],
)
def test_sizes_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        DETRConfig(**SIZES | changes)


def test_pictures_of_other_channels_are_refused():
    with pytest.raises(ValueError, match="images have 1 channels, the model reads 3"):
        DETR(DETRConfig(**SIZES))(torch.zeros(1, 1, 32, 32))
