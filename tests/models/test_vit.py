"""What only families of patches have: order on a grid, other resolutions, tokens in front."""

import pytest
import torch

from regard.doctor import laws
from regard.models import ViT, ViTConfig, preset
from regard.nn.patches import PatchEmbedding, cut, grid_of, paste, resample, sides
from tests.laws.cases import SMALL, make

SIZES = dict(SMALL["vit"][0])
B, PATCH, GRID = 3, 3, (4, 6)


def images(rows=GRID[0] * PATCH, columns=GRID[1] * PATCH, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, 2, rows, columns, generator=generator, dtype=torch.float64)


def shuffled(pixels, order):
    return paste(cut(pixels, PATCH)[:, order], PATCH, GRID)


def test_cut_and_paste():
    pixels = images()
    patches = cut(pixels, PATCH)
    assert patches.shape == (B, 24, 18)
    assert torch.equal(patches[1, 6 + 2].view(3, 3, 2), pixels[1, :, 3:6, 6:9].permute(1, 2, 0))
    assert torch.equal(paste(patches, PATCH, GRID), pixels)
    odd = images(14, 20)  # what the patch does not divide is cut off
    assert torch.equal(cut(odd, PATCH), cut(odd[:, :, :12, :18], PATCH))


def test_a_patch_is_embedded_by_one_matrix():
    layer, pixels = PatchEmbedding(2, PATCH, 7).double(), images(14, 20)
    found = layer(pixels)
    assert found.shape == (B, 7, 4, 6)
    for b, n, m in ((0, 0, 0), (2, 3, 5), (1, 2, 4)):
        block = pixels[b, :, n * 3 : n * 3 + 3, m * 3 : m * 3 + 3]
        wanted = layer.project.weight.flatten(1) @ block.flatten() + layer.project.bias
        laws.close(found[b, :, n, m], wanted, "a patch by hand")


@pytest.mark.parametrize(("pooling", "teacher"), [("cls", "none"), ("cls", "head"), ("mean", "none")])
@torch.no_grad()
def test_patches_permuted_with_their_positions_change_nothing(pooling, teacher):
    model = make("vit", image=(12, 18), pooling=pooling, teacher=teacher).double()
    first, order = model.config.first, torch.randperm(24)
    pixels, table = images(), model.encoder.position.table
    scores, x = model(pixels), model.features(pixels)
    laws.differs(model(shuffled(pixels, order)), scores, "the patches were permuted")
    table[first:] = table[first:][order]
    laws.differs(model(pixels), scores, "the positions were permuted")
    laws.close(model(shuffled(pixels, order)), scores, "patches and positions were permuted")
    y = model.features(shuffled(pixels, order))
    laws.close(y[:, :first], x[:, :first], "the tokens in front")
    laws.close(y[:, first:], x[:, first:][:, order], "each patch took its vector along")


@torch.no_grad()
def test_without_positions_an_image_is_a_set_of_patches():
    model, pixels, order = make("vit", image=(12, 18), position="none").double(), images(), torch.randperm(24)
    laws.close(model(shuffled(pixels, order)), model(pixels), "permuted patches")


@torch.no_grad()
def test_another_resolution_is_a_model_whose_positions_were_stretched():
    small = make("vit", image=(12, 18)).double()
    large = make("vit", image=(21, 15)).double()
    table = small.encoder.position.table
    large.load_state_dict(small.state_dict() | {"encoder.position.table": resample(table, (4, 6), (7, 5), first=1)})
    pixels = images(21, 15)
    laws.close(small(pixels), large(pixels), "7 × 5 patches by a model of 4 × 6")
    laws.close(small(pixels[..., :14]), small(pixels[..., :12]), "columns that make no patch")
    assert small(images(3, 3)).shape == small(images(60, 90)).shape == (B, 5)


def test_stretching_keeps_what_it_should():
    ramp = torch.cartesian_prod(torch.arange(4.0), torch.arange(6.0))  # row and column of each place
    table = torch.cat([torch.full((2, 2), 9.0), ramp])
    assert resample(table, (4, 6), (4, 6), first=2) is table
    wide = resample(table, (4, 6), (8, 12), first=2)
    assert torch.equal(wide[:2], table[:2])
    inner = wide[2:].view(8, 12, 2)[2:-2, 2:-2]  # a straight line stays one, away from the border
    rows, columns = (torch.arange(8.0) - 0.5) / 2, (torch.arange(12.0) - 0.5) / 2
    wanted = torch.cartesian_prod(rows, columns).view(8, 12, 2)[2:-2, 2:-2]
    assert torch.allclose(inner, wanted, atol=0.12) and torch.allclose(inner.mean((0, 1)), wanted.mean((0, 1)))


@torch.no_grad()
def test_what_an_image_becomes():
    pixels = images(13, 19)
    model = make("vit").double()
    laws.close(model(pixels), model.head(model.embed(pixels)), "labels are read off the vector")
    laws.close(model.embed(pixels), model.features(pixels)[:, 0], "the class token")
    mean = make("vit", pooling="mean").double()
    laws.close(mean.embed(pixels), mean.features(pixels).mean(1), "the mean")
    assert mean.features(pixels).shape[1] == 24
    plain = make("vit", labels=(), pooler=True).double()
    laws.close(plain(pixels), plain.pooler(plain.features(pixels)), "a pooler")
    both = make("vit", teacher="head").double()
    x = both.features(pixels)
    assert x.shape[1] == 26
    laws.close(both(pixels), (both.head(x[:, 0]) + both.teacher_head(x[:, 1])) / 2, "two heads")


def test_a_grid_of_waves():
    model = make("vit", image=(12, 18), position="grid:columns=6").double()
    assert model(images()).shape == (B, 5)
    with pytest.raises(
        ValueError, match="positions are for 6 patches in a row, the image has 5; use position=grid:col"
    ):
        model(images(12, 15))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(patch=17), "no patch of 17 × 17 pixels fits into an image of 13 × 19; use a patch of at most 13"),
        (dict(image=(1, 2, 3)), "image=.* must be one positive number, or two"),
        (dict(image=0), "image=0 must be one positive number"),
        (dict(channels=0), "channels=0 must be at least 1"),
        (dict(pooling="mean", teacher="token"), "read the class token; use pooling=cls"),
        (dict(pooler=True), "a model with labels has no pooler"),
        (dict(labels=(), teacher="head"), "a teacher's head needs the names of its labels"),
    ],
)
def test_what_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**SIZES | changes)


def test_images_that_do_not_fit():
    model = make("vit").double()
    with pytest.raises(ValueError, match="images have 1 channels, the model reads 2"):
        model(images()[:, :1])
    with pytest.raises(ValueError, match="no patch of 3 × 3 pixels fits into an image of 2 × 18"):
        model(images()[:, :, :2])


def test_published_sizes():
    with torch.device("meta"):
        count = {n: sum(p.numel() for p in ViT(preset("vit", n)).parameters()) for n in ("vit-b/16", "vit-s/16")}
    assert count == {"vit-b/16": 85_798_656, "vit-s/16": 21_665_664}  # of the papers' tables, without 1,000 labels
    assert grid_of(224, 16) == (14, 14) and sides((3, 5)) == (3, 5)
