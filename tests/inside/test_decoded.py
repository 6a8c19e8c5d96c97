"""Walks through a decoder of images: what is decoded is what the model predicts, and moves along the direction."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.data.sets.collection import Examples
from regard.inside.latent.decoded import decoded_walk, draw_walk, render_walk
from regard.models import MAE
from regard.models.mae import MAEConfig
from regard.nn.patches import cut
from regard.tasks import ImageClassifier, ImageRestorer
from tests.inside.seeing import loaded, picture, vit

SIZES = dict(image=(8, 12), channels=1, patch=4, dim=16, depth=1, heads=2, ffn_dim=16, decoder_dim=8, decoder_depth=1,
             decoder_heads=2, decoder_ffn_dim=8, dropout=0.0)  # fmt: skip


def restorer(**changes):
    torch.manual_seed(0)
    how = Preprocessing(channels=1, size=(8, 12), mean=(0.5,), std=(0.25,), scale=1 / 255)
    return ImageRestorer(MAE(MAEConfig(**SIZES | changes)).eval(), how)


def images(count):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 12), dtype=np.uint8)
    names = [str(i) for i in range(count)]
    return Examples([Image.fromarray(one) for one in pixels], names, ["dark", "light"] * (count // 2), True)


@pytest.mark.parametrize("changes", [{}, {"hidden": 0.5}, {"normalized": True}])
def test_masks_show_every_patch_and_decoding_is_the_models_prediction(changes):
    task, item = restorer(**changes), images(2).items[0]
    noise = task.masks(6)
    assert (noise == 0).any(0).all() and ((noise == 0).sum(1) == task.model.config.seen(6)).all()
    decoded = task.decoded(task.latents([item]), item)[0]
    x = torch.from_numpy(task.pixels([item])[0])[None].expand(len(noise), -1, -1, -1)
    with torch.no_grad():
        guesses = task.model.in_pixels(task.model(x, noise), x)
    hidden = (noise > 0).float()[:, :, None]
    wanted = (guesses * hidden).sum(0) / hidden.sum(0)
    found = cut(torch.from_numpy(task.preprocessing.numbers(decoded[None])), 4)[0]
    inside = (wanted > -1.9) & (wanted < 1.9)
    torch.testing.assert_close(found[inside], wanted[inside], atol=0.02, rtol=0)


def test_a_walk_along_components_or_between_labels(tmp_path):
    task, examples = restorer(), images(12)
    data, strips = decoded_walk(task, examples, examples.items[0])
    assert [row["name"] for row in data["directions"]] == ["component 1", "component 2", "component 3"]
    assert data["steps"][3] == 0 and all(row["change"][3] == 0 and row["change"][-1] > 0 for row in data["directions"])
    assert [one.shape for one in strips] == [(7, 8, 12, 1)] * 3
    assert len(draw_walk(data, strips, tmp_path / "walk.png").axes[0].images) == 21
    data, _ = decoded_walk(task, examples, examples.items[0], ("dark", "light"), 1.0)
    assert data["directions"][0]["held_out"] == 6 and "dark → light" in render_walk(data)


def test_what_has_no_decoder_says_so():
    task = loaded(vit(labels=("no", "yes")), (12, 20), ImageClassifier)
    with pytest.raises(ValueError, match="a ViT has no decoder of images; train one: regard train mae"):
        decoded_walk(task, images(2), picture(12, 20))
