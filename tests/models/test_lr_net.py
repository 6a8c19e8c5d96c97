"""LR-Net: bottlenecks whose neighbourhoods are mixed by weights from the pixels, against a loop over cells."""

import pytest
import torch

from regard.models import LRNet, LRNetConfig
from regard.models.lr_net import RelationBlock
from tests.nn.test_convolution import by_hand

CONFIG = LRNetConfig(
    image=9, channels=2, patch=1, dim=12, depths=(1, 1), window=3, share=4, squeeze=2, activation="relu"
)


@torch.no_grad()
@pytest.mark.parametrize(("channels", "stride"), [(12, 1), (6, 2)])
def test_a_block_is_the_formula_cell_by_cell(channels, stride):
    torch.manual_seed(0)
    block = RelationBlock(channels, 12, CONFIG, stride=stride, path_dropout=0.0).double().eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, channels, 5, 4, dtype=torch.float64)
    first, relation, last = block.layers
    y = first(block.norms[0](x).relu())
    y = by_hand(relation, block.norms[1](y).relu())
    y = last(block.norms[2](y).relu())
    torch.testing.assert_close(block(x), y + (x if block.skip is None else block.skip(x)))


def test_each_block_widens_what_a_cell_sees_by_a_window():
    torch.manual_seed(0)
    model = LRNet(LRNetConfig(image=15, channels=1, patch=1, dim=8, depths=(2,), window=3, squeeze=2)).eval()
    maps = torch.randn(1, 8, 15, 15, requires_grad=True)
    model.blocks(maps)[0, :, 7, 7].sum().backward()
    seen = maps.grad[0].abs().sum(0) > 0
    assert seen[5:10, 5:10].all() and seen.sum() == 25


def test_stages_halve_the_map_and_double_the_width():
    model = LRNet(CONFIG).eval()
    assert model.cells(torch.randn(3, 2, 9, 7)).shape == (3, 5 * 4, 24)


def test_settings_that_do_not_fit():
    for fields, message in (
        (dict(window=4), "window=4 has no middle; use 5"), (dict(share=0), "share=0 must be at least 1"),
        (dict(activation="swiglu"), "has a gate"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            LRNetConfig(**fields)
