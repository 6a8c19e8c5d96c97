"""Pictures as a loaded model takes them: paths, open images, folders with some that cannot be read."""

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.readers.preprocessing import Preprocessing
from regard.models import ViT, ViTConfig
from regard.tasks import ImageEncoder


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    model = ViT(ViTConfig(image=8, patch=4, dim=8, heads=2, depth=1, ffn_dim=8))
    return ImageEncoder(model, Preprocessing(shortest=8, crop=(8, 8)))


def test_an_open_image_has_the_numbers_of_its_file(encoder, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 65536, (12, 9), dtype=np.uint16)
    path = tmp_path / "wide.png"
    Image.fromarray(pixels).save(path)
    one, other = encoder.pixels([path, Image.open(path)])
    looked = encoder.read(Image.open(path)).inputs["pixels"].numpy()[0]
    assert np.array_equal(one, other) and np.array_equal(one, looked)


def test_a_search_passes_over_what_would_become_too_long(encoder, tmp_path):
    Image.new("RGB", (9, 8), "red").save(tmp_path / "red.png")
    Image.new("L", (4_500_000, 1)).save(tmp_path / "long.png")
    (tmp_path / "text.png").write_text("text")
    skipped = []
    found = encoder.search(tmp_path / "red.png", tmp_path, skipped=skipped)
    assert [one.text for one in found] == [str(tmp_path / "red.png")] and len(skipped) == 2
    assert skipped[0].startswith(f"{tmp_path}/long.png of 1 × 4,500,000 pixels would become")
    with pytest.raises(ValueError, match="long.png"):
        encoder.search(tmp_path / "red.png", tmp_path)
