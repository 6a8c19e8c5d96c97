"""Images that are varied: from the generator alone, and as it is said."""

import numpy as np
import pytest
import torch

from regard.data.sets.augment import Augmentation, mix

B, C, Y, X = 5, 3, 11, 13


def images(channels=C):
    return torch.rand(B, channels, Y, X, generator=torch.Generator().manual_seed(1)) * 255


def rng(seed=1):
    return np.random.default_rng(seed)


ALL = dict(shift=0.2, zoom=0.2, turn=20.0, flip=True, colour=0.3)


def test_nothing_asked_for_changes_nothing():
    x, labels = images(), torch.arange(B)
    assert Augmentation().change(x, rng()) is x
    assert mix(x, labels, 7, rng()) == (x, labels)


@pytest.mark.parametrize("what", ALL)
def test_only_the_generator_decides(what):
    one = Augmentation(**{what: ALL[what]})
    x = images()
    first = one.change(x, rng())
    torch.manual_seed(7)
    assert torch.equal(one.change(x, rng()), first)
    assert first.shape == x.shape and not torch.allclose(first, x) and not torch.equal(one.change(x, rng(2)), first)
    assert first.min() >= 0 and first.max() <= 255


def test_flip():
    x = images()
    found = Augmentation(flip=True).change(x, rng(3))
    kinds = [
        (torch.allclose(a, b, atol=1e-2), torch.allclose(a, b.flip(-1), atol=1e-2))
        for a, b in zip(found, x, strict=True)
    ]
    assert all(same != mirrored for same, mirrored in kinds) and len(set(kinds)) == 2


def test_a_shift_moves_a_point_and_a_turn_keeps_the_middle():
    x = torch.zeros(200, 1, Y, X)
    x[:, :, 5, 6] = 255
    moved = Augmentation(shift=0.2).change(x, rng())
    rows, columns = (moved.sum((1, axis)) for axis in (3, 2))
    centres = torch.stack([(rows * torch.arange(Y)).sum(1), (columns * torch.arange(X)).sum(1)]) / rows.sum(1)
    away = (centres - torch.tensor([[5.0], [6.0]])).abs()
    assert away[0].max() <= 0.2 * Y + 0.1 and away[1].max() <= 0.2 * X + 0.1
    assert away[0].max() > 0.15 * Y and away[1].max() > 0.15 * X
    turned = Augmentation(turn=45.0, zoom=0.3).change(x, rng())
    assert torch.allclose(turned[:, 0, 5, 6], torch.tensor(255.0), atol=1e-2)


def test_a_turn_keeps_shapes_in_pictures_that_are_not_square():
    """A ring stays a ring."""
    y, x = torch.meshgrid(torch.arange(40.0) - 19.5, torch.arange(80.0) - 39.5, indexing="ij")
    ring = ((y**2 + x**2).sqrt().sub(12).abs() < 3).float()[None, None] * 255
    turned = Augmentation(turn=90.0).change(ring.expand(8, -1, -1, -1), rng())
    assert (turned - ring).abs().mean() < 6 < ring.mean()


def test_light():
    x = images()
    light = Augmentation(colour=0.5).change(x, rng())
    assert light.mean((1, 2, 3)).sub(x.mean((1, 2, 3))).abs().max() > 20
    assert Augmentation(colour=0.5).change(images(1), rng()).shape == (B, 1, Y, X)


def test_mixup_mixes_pictures_and_labels_alike():
    x, labels = images(), torch.tensor([0, 1, 2, 3, 4])
    mixed, targets = mix(x, labels, 7, rng(), mixup=0.8)
    assert targets.shape == (B, 7) and torch.allclose(targets.sum(1), torch.ones(B))
    assert torch.allclose(mixed.flatten(1), targets[:, :5] @ x.flatten(1), atol=1e-3)
    assert not torch.equal(mixed, x)


def test_cutmix_counts_the_area():
    x, labels = images(), torch.tensor([0, 1, 2, 3, 4])
    shares = []
    for seed in range(20):
        mixed, targets = mix(x, labels, 5, rng(seed), cutmix=1.0)
        kept = (mixed == x).all(1).float().mean((1, 2))
        assert torch.allclose(targets.diagonal(), kept, atol=1e-5)
        shares.append(kept[0].item())
    assert max(shares) - min(shares) > 0.3 and torch.equal(x, images()), "the batch itself stays as it is"


@pytest.mark.parametrize(("field", "value"), [("shift", -1.0), ("zoom", 1.0), ("colour", 1.5)])
def test_what_cannot_be(field, value):
    with pytest.raises(ValueError, match=f"{field}={value} must"):
        Augmentation(**{field: value})
