"""Windows, their shifts, masks and positions, each beside the sentence that it stands for."""

import itertools
import math

import pytest
import torch

import regard
from regard.models import Swin, SwinConfig, build, preset
from regard.nn.block import BlockConfig
from regard.nn.dropout import DropPath
from regard.nn.masks import edges, everything, window
from regard.nn.windows import (
    KeysUnbiased,
    LearnedOffsets,
    LogOffsets,
    Merge,
    WindowBlock,
    Windows,
)

CUTS = [
    Windows(grid, size, shift) for grid in ((7, 11), (6, 4), (2, 5)) for size, shift in ((3, 0), (3, 1), (2, 1), (4, 3))
]
every_cut = pytest.mark.parametrize("cut", CUTS, ids=str)


def places(cut):
    """For each window, the row and column of each of its tokens before rolling; beyond the grid there are zeros."""
    rows, columns = (-(-side // cut.size) * cut.size for side in cut.grid)
    found = []
    for top, left in itertools.product(range(0, rows, cut.size), range(0, columns, cut.size)):
        inside = itertools.product(range(top, top + cut.size), range(left, left + cut.size))
        found.append([((y + cut.shift) % rows, (x + cut.shift) % columns) for y, x in inside])
    return found


@every_cut
def test_every_token_goes_to_its_window_and_back(cut):
    rows, columns = cut.grid
    x = torch.randn(2, rows * columns, 3)
    got = cut.split(x)
    image = x.unflatten(1, cut.grid)
    for row, (image_number, window_) in enumerate(itertools.product(range(2), places(cut))):
        for place, (y, column) in enumerate(window_):
            real = y < rows and column < columns
            wanted = image[image_number, y, column] if real else torch.zeros(3)
            assert torch.equal(got[row, place], wanted)
    assert torch.equal(cut.join(got), x)


@every_cut
def test_tokens_that_rolling_brought_together_do_not_see_each_other(cut):
    mask = cut.mask(2)
    if not cut.shift:
        assert mask is None
        return
    side = cut.size**2
    dense = mask.dense(side, side)
    for row, window_ in enumerate(places(cut) * 2):
        for i, j in itertools.product(range(side), repeat=2):
            steps = [i // cut.size - j // cut.size, i % cut.size - j % cut.size]
            apart = [window_[i][axis] - window_[j][axis] for axis in (0, 1)]
            assert dense[row, 0, i, j] == (steps == apart)  # neighbours in the window are neighbours in the image


def test_the_mask_of_a_shift_is_a_rule_that_combines():
    mask = Windows((7, 11), 3, 1).mask(2)
    dense = mask.dense(9, 9)
    assert not dense.all() and dense.any(-1).all()
    assert torch.equal((mask & window(2)).dense(9, 9), dense & window(2).dense(9, 9))
    assert torch.equal((~mask | everything()).dense(9, 9).expand_as(dense), torch.ones_like(dense))
    assert torch.equal(mask.select(torch.tensor([3, 0])).dense(9, 9), dense[[3, 0]])


@pytest.mark.parametrize(
    ("grid", "within", "size", "shift"),
    [
        ((9, 11), None, 4, 2),
        ((4, 11), None, 4, 0),
        ((3, 11), None, 3, 0),
        ((9, 9), (4, 4), 4, 0),
        ((9, 9), (0, 0), 1, 0),
    ],
)
def test_windows_are_no_larger_than_the_grid_and_a_single_one_is_not_shifted(grid, within, size, shift):
    assert Windows.fit(grid, 4, within=within) == Windows(grid, size, 0)
    assert Windows.fit(grid, 4, shifted=True, within=within) == Windows(grid, size, shift)


@pytest.mark.parametrize("size", [3, 2])
def test_learned_offsets(size):
    position = LearnedOffsets(3, heads=2, head_dim=5)
    bias = position.bias(size=size).dense(size**2, size**2)[0]
    table = position.table.detach().view(5, 5, 2)
    for i, j in itertools.product(range(size**2), repeat=2):
        down, right = i // size - j // size, i % size - j % size
        assert torch.equal(bias[:, i, j], table[down + 2, right + 2])


@torch.no_grad()
def test_log_offsets():
    position = LogOffsets(4, heads=2, head_dim=5)
    bias = position.bias().dense(16, 16)[0]
    for i, j in itertools.product(range(16), repeat=2):
        steps = torch.tensor([i // 4 - j // 4, i % 4 - j % 4]) * 8 / 3
        scaled = torch.tensor([math.copysign(math.log(abs(step) + 1, 8), step) for step in steps.tolist()])
        wanted = 16 / (1 + (-position.outer(position.inner(scaled).clamp(min=0))).exp())
        assert (bias[:, i, j] - wanted).abs().max() < 1e-5


@torch.no_grad()
def test_a_network_for_larger_windows_says_the_same_of_the_offsets_it_knows():
    small, large = LogOffsets(3, heads=2, head_dim=5), LogOffsets(5, trained=3, heads=2, head_dim=5)
    large.load_state_dict(small.state_dict())
    within = large.bias().table.view(9, 9, 2)[2:7, 2:7]
    assert torch.allclose(within, small.bias().table.view(5, 5, 2), atol=1e-6)


def block(kernel="full", norm_place="pre", window_=3, **changes):
    config = BlockConfig(dim=10, heads=2, ffn_dim=13, kernel=kernel, norm_place=norm_place, dropout=0.0)
    made = WindowBlock(config, LearnedOffsets(window_, heads=2, head_dim=5), **changes).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


@pytest.mark.parametrize("kernel", ["full", "cosine"])
@pytest.mark.parametrize("shift", [0, 1])
@torch.no_grad()
def test_window_attention_is_attention_over_the_whole_grid_under_a_rule(kernel, shift):
    """A token sees the tokens of its window that rolling did not bring there, and nothing else."""
    layer, cut = block(kernel), Windows((6, 9), 3, shift)
    layer.position.table.zero_()
    x = torch.randn(2, 54, 10, dtype=torch.float64)
    mask = cut.mask(2)
    may = torch.zeros(54, 54, dtype=torch.bool)
    for row, window_ in enumerate(places(cut)):
        sees = mask.dense(9, 9)[row, 0] if mask else torch.ones(9, 9, dtype=torch.bool)
        at = torch.tensor([y * 9 + column for y, column in window_])
        may[at[:, None], at] = sees
    whole = cut.join(layer.attention(cut.split(x), mask=mask, bias=layer.position.bias()))
    assert torch.allclose(whole, layer.attention(x, mask=edges(may)), atol=1e-12)
    assert may.sum(1).max() == 9 and may.diagonal().all()


@torch.no_grad()
def test_norms_before_a_part_or_behind_it():
    x, cut = torch.randn(2, 12, 10, dtype=torch.float64), Windows((3, 4), 3)
    for place in ("pre", "post"):
        layer = block(norm_place=place)
        bias = layer.position.bias()
        looks = lambda y: cut.join(layer.attention(cut.split(y), bias=bias))  # noqa: E731, B023
        first, second = layer.norms["attention"], layer.norms["feedforward"]
        y = x + (looks(first(x)) if place == "pre" else first(looks(x)))
        y = y + (layer.feedforward(second(y)) if place == "pre" else second(layer.feedforward(y)))
        assert torch.allclose(layer(x, cut, None), y)


def test_keys_have_no_bias_where_cosines_would_feel_it():
    layer = block("cosine")
    assert isinstance(layer.attention.key_value, KeysUnbiased) and type(block().attention.key_value) is torch.nn.Linear
    layer.attention(torch.randn(1, 9, 10, dtype=torch.float64)).square().sum().backward()
    keys, values = layer.attention.key_value.bias.grad.chunk(2)
    assert keys.eq(0).all() and values.ne(0).all()
    out = layer.attention.key_value(torch.zeros(1, 1, 10, dtype=torch.float64))
    assert out[..., :10].eq(0).all() and torch.equal(out[0, 0, 10:], layer.attention.key_value.bias[10:])


@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_four_neighbours_become_one(norm_first):
    merge = Merge(3, norm_first=norm_first)
    x = torch.randn(2, 5 * 7, 3)
    image = torch.zeros(2, 6, 8, 3)
    image[:, :5, :7] = x.unflatten(1, (5, 7))
    got = merge(x, (5, 7)).unflatten(1, (3, 4))
    for y, column in itertools.product(range(3), range(4)):
        four = [image[:, 2 * y + down, 2 * column + right] for right in (0, 1) for down in (0, 1)]
        together = torch.cat(four, dim=-1)
        wanted = merge.reduce(merge.norm(together)) if norm_first else merge.norm(merge.reduce(together))
        assert torch.allclose(got[:, y, column], wanted, atol=1e-6)


def test_dropped_paths_are_whole_examples_and_keep_the_mean():
    x = torch.ones(4000, 2, 3, dtype=torch.float64)
    out = DropPath(0.25)(x)
    rows = out.flatten(1)
    assert rows.eq(rows[:, :1]).all() and set(rows[:, 0].tolist()) == {0.0, 1 / 0.75}
    assert abs(rows.mean().item() - 1) < 0.05
    assert DropPath(0.25).eval()(x) is x and DropPath(0.0)(x) is x


# ---- the family -----------------------------------------------------------------------------------------------

TINY = dict(channels=2, patch=3, dim=6, depths=(2, 3), heads=(2, 3), window=3, labels=("a", "b", "c"))
V2 = dict(norm_place="post", kernel="cosine", offsets="log")
versions = pytest.mark.parametrize("version", [{}, V2], ids=["v1", "v2"])


@versions
@torch.no_grad()
def test_what_every_window_looks_at_is_seen(version):
    model = Swin(SwinConfig(image=(29, 40), **TINY, **version)).eval()
    pixels = torch.randn(2, 2, 29, 40)
    plain = model(pixels)
    with regard.look(model) as seen:
        assert torch.equal(model(pixels), plain)
    maps, cuts = seen.of("encoder"), model.windows((29, 40))
    assert [cut.shift for cut in cuts] == [0, 1, 0, 1, 0] and [cut.grid for cut in cuts[1:3]] == [(10, 14), (5, 7)]
    for weights, cut in zip(maps, cuts, strict=True):
        rows, columns = cut.counts
        assert weights.shape == (2 * rows * columns, 2 if cut.grid[0] == 10 else 3, 9, 9)
        assert (weights.sum(-1) - 1).abs().max() < 1e-5
        if cut.shift:  # windows are rows of the batch
            hidden = ~cut.mask(2).dense(9, 9).expand_as(weights)
            assert hidden.any() and weights[hidden].eq(0).all()


@versions
@torch.no_grad()
def test_a_single_head_is_seen_as_among_all(version):
    model, pixels = Swin(SwinConfig(image=(29, 40), **TINY, **version)).eval(), torch.randn(2, 2, 29, 40)
    with regard.look(model, layers=1) as every:
        model(pixels)
    with regard.look(model, layers=1, heads=1) as one:
        model(pixels)
    assert torch.allclose(one.attention[1, 1], every.attention[1][:, 1], atol=1e-6)


@versions
@torch.no_grad()
def test_a_batch_is_its_images_at_every_resolution(version):
    model = Swin(SwinConfig(image=30, **TINY, **version)).double().eval()
    for rows, columns in ((30, 30), (61, 47), (13, 100), (2, 3)):
        pixels = torch.randn(3, 2, rows, columns, dtype=torch.float64)
        together = model(pixels)
        alone = torch.cat([model(pixels[row : row + 1]) for row in range(3)])
        assert together.shape == (3, 3) and torch.allclose(together, alone, atol=1e-9)


@torch.no_grad()
def test_a_pixel_is_felt_in_its_window_first_and_only_later_beyond():
    def reach(depth):
        model = Swin(SwinConfig(image=36, **TINY | dict(depths=(depth,), heads=(2,)))).double().eval()
        pixels = torch.randn(1, 2, 36, 36, dtype=torch.float64)
        changed = pixels.clone()
        changed[:, :, 17, 17] += 1  # of patch 5, 5
        moved = (model.features(pixels) - model.features(changed)).abs().amax(-1) > 1e-12
        where = moved[0].unflatten(0, (12, 12)).nonzero()
        return where.amin(0).tolist(), where.amax(0).tolist()

    assert reach(1) == ([3, 3], [5, 5])
    assert reach(2) == ([1, 1], [6, 6])
    assert reach(3) == ([0, 0], [8, 8])


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("swin-t", 28.29),
        ("swin-s", 49.61),
        ("swin-b", 87.77),
        ("swin-l", 196.53),
        ("swinv2-t", 28.35),
        ("swinv2-b", 87.92),
    ],
)
def test_published_sizes(name, millions):
    with torch.device("meta"):
        model = build("swin", preset("swin", name, labels=tuple(map(str, range(1000)))))
    unused = [m.bias.numel() // 2 for m in model.modules() if isinstance(m, KeysUnbiased)]  # stay zero
    assert round((sum(p.numel() for p in model.parameters()) - sum(unused)) / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            dict(depths=(2, 2), heads=(3,)),
            r"depths=\(2, 2\) and heads=\(3,\) must have a positive number for each stage",
        ),
        (dict(heads=(3, 6, 12, 5)), "heads=5 does not divide dim=768"),
        (dict(trained_windows=(3,)), r"trained_windows=\(3,\) must have a number for each of the stages, or none"),
        (dict(window=0), "window=0 must be at least 1"),
        (dict(path_dropout=1.0), r"path_dropout=1.0 is not in \[0, 1\)"),
        (dict(image=3), "no patch of 4 × 4 pixels fits into an image of 3 × 3"),
    ],
)
def test_mistakes_carry_the_cure(changes, says):
    with pytest.raises(ValueError, match=says):
        SwinConfig(**changes)


def test_a_training_step_drops_paths():
    model = Swin(SwinConfig(image=30, path_dropout=0.9, **TINY)).train()
    pixels = torch.randn(1, 2, 30, 30).expand(64, -1, -1, -1)
    assert model(pixels).std(0).min() > 1e-3 and model.eval()(pixels).std(0).max() < 1e-5
