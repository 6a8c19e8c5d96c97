"""Weights over pictures: the arrays, the figures made of them, and the same in words."""

import io

import numpy as np
import pytest
from PIL import Image

from regard.inside.draw.overlays import as_rgb, borders, framed, grid_of_images, overlay
from regard.inside.views import find_view, show_view
from regard.inside.views.image import shaded
from regard.models import Captioner, CaptionerConfig
from regard.tasks.image_captioner import ImageCaptioner
from regard.tasks.image_encoder import ImageClassifier
from regard.tasks.object_detector import ObjectDetector
from tests.inside.loaded import GENERATION, spread_out, word_pieces
from tests.inside.seeing import detr, loaded, mvit, picture, swin, vit


def glowing(drawn):
    """Pixels that are warm: more red than blue."""
    return drawn[..., 0].astype(int) - drawn[..., 2] > 40


# ---- arrays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (8, 8, 3), (40, 300, 3)])
def test_a_picture_is_rgb_and_each_of_its_pixels_stays_a_square(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    drawn = as_rgb(pixels)
    times = 32 if shape[1] == 8 else 1
    assert drawn.shape == (shape[0] * times, shape[1] * times, 3) and drawn.dtype == np.uint8
    for row, column in [(0, 0), (3, 5), (7, 7)]:
        square = drawn[row * times : (row + 1) * times, column * times : (column + 1) * times].reshape(-1, 3)
        assert (square == pixels[row, column]).all()
    with pytest.raises(ValueError, match="an image is bytes, rows × columns × 1 or 3, got float64"):
        as_rgb(pixels / 255)


@pytest.mark.parametrize("smooth", [False, True])
def test_the_glow_is_where_the_weights_are(smooth):
    weights = np.zeros((4, 4))
    weights[1, 2] = 0.3
    drawn = overlay(np.full((64, 64), 90, np.uint8), weights, smooth=smooth)
    rows, columns = np.argwhere(drawn.sum(-1) == drawn.sum(-1).max()).mean(0) / 64
    assert (rows, columns) == (pytest.approx(1.5, abs=0.1), pytest.approx(2.5, abs=0.1))
    assert smooth or glowing(drawn).sum() == 64 * 64
    assert not glowing(drawn)[:, :64].any()


def test_several_overlays_share_a_scale_and_nothing_is_dark():
    pixels, weights = np.zeros((8, 8), np.uint8), np.full((2, 2), 0.1)
    strong, weak, none = overlay(pixels, weights), overlay(pixels, weights, top=1.0), overlay(pixels, 0 * weights)
    assert strong.mean() > 2 * weak.mean() > 2 * none.mean() and not glowing(none).any()


def test_places_that_do_not_cover_the_picture_or_reach_over_it():
    pixels = np.full((64, 64), 90, np.uint8)
    cut_off = glowing(overlay(pixels, np.ones((3, 3)), cell=(20, 20)))  # a ViT's: 4 pixels belong to no patch
    assert cut_off[:240, :240].all() and not cut_off[240:].any() and not cut_off[:, 240:].any()
    last = np.zeros((4, 4))
    last[3, 3] = 1
    beyond = glowing(overlay(pixels, last, cell=(20, 20)))  # a Swin's: the last patch has 4 pixels in the picture
    assert beyond[240:, 240:].all() and beyond.sum() == 16 * 16


def test_borders_stand_inside_their_regions():
    picture = np.zeros((40, 60, 3), np.uint8)
    regions = np.zeros((4, 6))
    regions[1:3, 2:4] = 7
    drawn = borders(picture, regions, (10, 10), colour=(255, 0, 0), width=2)[..., 0] == 255
    wanted = np.zeros((40, 60), bool)
    wanted[10:30, 20:40], wanted[12:28, 22:38] = True, False
    assert (drawn == wanted).all()
    whole = framed(picture, (20, 30), (10, 5, 20, 15), (255, 0, 0), width=2)[..., 0] == 255
    assert (whole == wanted).all()
    assert framed(picture, (20, 30), (-5, -5, 50, 50), (255, 0, 0))[..., 0][0].all()


def test_a_grid_has_every_picture_and_refuses_none():
    red = np.full((30, 40, 3), (200, 0, 0), np.uint8)
    figure = grid_of_images([[red, red], [red, None]], [["a", "b"], ["c", ""]], names=["x", "y\nz"], top=0.5)
    pictures, scale = figure.axes
    assert len(pictures.images) == 3 and [text.get_text() for text in scale.get_yticklabels()] == ["0", "0.25", "0.5"]
    assert sorted(text.get_text() for text in pictures.texts) == ["a", "b", "c", "x", "y\nz"]
    (axes,) = grid_of_images([[red]], lead=(red, "first"), title="all").axes
    assert len(axes.images) == 2 and sorted(text.get_text() for text in axes.texts) == ["all", "first"]
    with pytest.raises(ValueError, match="no images to draw"):
        grid_of_images([[None]])
    with pytest.raises(ValueError, match="a figure ends in"):
        grid_of_images([[red]], path="x.gif")


# ---- figures and words -------------------------------------------------------------------------------------------


def captioner():
    sizes = dict(dim=12, heads=2, ffn_dim=9, widths=(4, 6), image=(12, 20), channels=1, max_len=9, dropout=0.0)
    tokenizer = word_pieces()
    model = spread_out(Captioner(CaptionerConfig(vocab_size=len(tokenizer), **sizes))).eval()
    how = loaded(model).preprocessing
    told = GENERATION | dict(num_beams=1, length_penalty=1.0)
    return ImageCaptioner(model, how, tokenizer, told)


def shown(loaded, image, view=None, **options):
    """The data of a view with the lines for a terminal, and what draws it."""
    prepared = loaded.read(image)
    data, draw = show_view(prepared, view, **options)
    return data | {"lines": find_view(prepared, view).render(data)}, draw


def lines_of(said):
    return said["lines"]


VIEWS = {
    "heads": lambda: shown(loaded(vit()), picture(12, 20)),
    "one head": lambda: shown(loaded(vit()), picture(12, 20), layer=1, head=0, patch=(2, 4)),
    "one layer of many heads": lambda: shown(loaded(vit(heads=12, dim=24)), picture(12, 20), layer=0),
    "labelled": lambda: shown(loaded(vit(labels=("no", "yes")), kind=ImageClassifier), picture(12, 20)),
    "rollout": lambda: shown(loaded(vit()), picture(12, 20), view="rollout"),
    "swin": lambda: shown(loaded(swin()), picture(14, 18), patch=(3, 3)),
    "swin's windows": lambda: shown(loaded(swin()), picture(14, 18), view="windows"),
    "mvit": lambda: shown(loaded(mvit()), picture(14, 18)),
    "mvit's rollout": lambda: shown(loaded(mvit()), picture(14, 18), view="rollout", layer=1),
    "detr's queries": lambda: shown(loaded(detr(), kind=ObjectDetector), picture(33, 40)),
    "detr's encoder": lambda: shown(loaded(detr(), kind=ObjectDetector), picture(33, 40), view="heads"),
    "words": lambda: shown(captioner(), picture(12, 20)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_drawn_and_said(name, tmp_path):
    said, draw = VIEWS[name]()
    draw(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as drawn:
        assert len(drawn.convert("RGB").getcolors(1 << 24)) > 50  # pictures, not empty paper
    words = lines_of(said)
    assert all(line.strip() for line in words.splitlines()[:3]) and f"{said['size'][0]} × {said['size'][1]}" in words


def test_svg_and_pdf(tmp_path):
    _, draw = shown(loaded(vit()), picture(12, 20))
    for suffix, sign in ((".svg", b"<?xml"), (".pdf", b"%PDF")):
        draw(tmp_path / f"x{suffix}")
        written = (tmp_path / f"x{suffix}").read_bytes()
        assert written.startswith(sign) and len(written) > 10_000
    with pytest.raises(ValueError, match="a figure ends in"):
        draw(tmp_path / "x.txt")
    buffer = io.BytesIO()
    draw(None).savefig(buffer)
    assert buffer.tell() > 5000


def test_what_is_said_of_heads():
    said, _ = shown(loaded(vit()), picture(12, 20), patch=(1, 3))
    assert said["patches"] == [3, 5] and said["query"] == [1, 3] and len(said["layers"]) == 2
    for layer in said["layers"]:
        for head in layer["heads"]:
            weights = np.array(head["weights"])
            row, column = head["strongest"]
            assert weights.shape == (3, 5) and weights[row, column] == weights.max() == head["weight"]
            assert weights.sum() + head["in_front"] == pytest.approx(1, abs=1e-4)
            assert 0 <= head["entropy"] <= 4
    lines = lines_of(said).splitlines()
    assert lines[1].startswith("what patch 1,3 attends to") and len(lines) == 3 + 4


def test_shades():
    assert shaded([[0.0, 0.1], [0.5, 1.0]]) == ["  ░░", "▒▒██"]
    assert shaded([[0.0]]) == ["  "] and shaded([[1.0] * 65]) == []


@pytest.mark.parametrize(
    ("model", "how", "said"),
    [
        (swin, dict(view="windows", patch=(0, 0)), "the view windows has no option patch; leave it out"),
        (swin, dict(view="queries"), "a Swin has no view 'queries' of this input; use heads or rollout or windows"),
    ],
)
def test_mistakes_are_said(model, how, said):
    with pytest.raises(ValueError, match=said):
        shown(loaded(model()), picture(14, 18), **how)
    with pytest.raises(ValueError, match="the view words has no option layer"):
        shown(captioner(), picture(12, 20), layer=0)
    with pytest.raises(ValueError, match="the view queries has no option patch"):
        shown(loaded(detr(), kind=ObjectDetector), picture(33, 40), patch=(0, 0))
