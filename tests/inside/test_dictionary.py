"""A sparse dictionary finds what a mixture was made of, and shows where its units are at work."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.sets.collection import Examples
from regard.inside.latent import dictionary
from regard.inside.latent.dictionary import draw, learn, render, study
from tests.inside import loaded as texts
from tests.inside import seeing


@pytest.fixture
def short(monkeypatch):
    """Training that shows the way, not the end."""
    monkeypatch.setattr(dictionary, "STEPS", 40)
    monkeypatch.setattr(dictionary, "UNITS", 3)


def mixture(features=48, dims=32, count=6000):
    """Vectors of few of many directions, which do not fit at right angles."""
    dice = torch.Generator().manual_seed(1)
    true = F.normalize(torch.randn(features, dims, generator=dice))
    there = torch.rand(count, features, generator=dice) < 0.05
    return true, (there * (0.5 + torch.rand(count, features, generator=dice))) @ true


def test_known_directions_are_found_again():
    true, x = mixture()
    found = learn(x, 64, 4, steps=600)
    likeness = (true @ found.rows.T).max(1).values
    assert likeness.mean() > 0.95, "each true direction has a unit"
    assert (likeness > 0.9).float().mean() > 0.9
    torch.testing.assert_close(found.rows.norm(dim=1), torch.ones(64))
    missed = (x - found(x)).square().sum() / (x - x.mean(0)).square().sum()
    assert missed < 0.1
    strength, units = found.encode(x)
    assert strength.shape == units.shape == (6000, 4) and (strength >= 0).all()


def test_learning_is_the_same_every_time_and_leaves_the_dice():
    _, x = mixture(count=300)
    state = torch.get_rng_state()
    one, other = (learn(x, 8, 2, steps=20).rows for _ in range(2))
    assert torch.equal(one, other) and torch.equal(state, torch.get_rng_state())


def test_dead_units_are_revived():
    """Without it a unit that starts where nothing is stays there."""
    dice = torch.Generator().manual_seed(0)
    x = torch.cat([torch.randn(995, 4, generator=dice).abs() * 0.01, 10 * torch.eye(4) + 0.1, -torch.ones(1, 4)])
    found = learn(x, 12, 1, steps=400)
    _, units = found.encode(x)
    assert len(units.unique()) >= 5


def test_texts_and_their_strongest_tokens(short, tmp_path):
    loaded = texts.encoder()
    examples = Examples(texts.TEXTS * 6, texts.TEXTS * 6, ["x", "y"] * 12, False)
    learned = study(loaded, examples, 1, 16, 3)
    said = learned.data
    assert said["explained"] < 1 and 0 < said["active"] <= 3 and said["examples"] == 24
    for row, (unit, tops) in zip(said["best"], learned.tops, strict=True):
        assert row["unit"] == unit and row["label"] in "xy" and 0.5 <= row["share"] <= 1
        for one, (i, strength) in zip(row["examples"], tops, strict=True):
            piece = learned.tokens[i].labels[one["token"]]
            assert f"[{piece}]" in one["shown"]
            assert one["strength"] == pytest.approx(strength.max().item())
    printed = render(said)
    assert "of the variance of held-out tokens" in printed and f"unit {said['best'][0]['unit']}" in printed
    figure = draw(loaded, learned, tmp_path / "units.svg")
    assert any(text.get_text().startswith("unit ") for text in figure.axes[0].texts)
    assert (tmp_path / "units.svg").stat().st_size > 5000


def test_pictures_and_their_strongest_places(short, tmp_path):
    loaded = seeing.loaded(seeing.swin())
    pictures = [seeing.picture(14, 18).rotate(180 * (i % 2)) for i in range(6)]
    learned = study(loaded, Examples(pictures, [f"p{i}" for i in range(6)], [], True), 0, 8, 2)
    assert "cell " in learned.data["best"][0]["examples"][0]["shown"]
    assert "label" not in learned.data["best"][0]
    draw(loaded, learned, tmp_path / "units.png")
    assert (tmp_path / "units.png").stat().st_size > 5000


def test_mistakes(short):
    with pytest.raises(ValueError, match="cannot use 9 of 8 units; lower --active"):
        study(texts.encoder(), Examples(["bank"], ["bank"], [], False), 0, 8, 9)
    with pytest.raises(ValueError, match="many tokens, got"):
        study(texts.encoder(), Examples(["bank"], ["bank"], [], False), 0, 4, 1)
